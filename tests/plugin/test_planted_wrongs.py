"""What is wrong with an output is seen, wherever it is; what rounding does to it is not taken for that."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from sartor.reference.disturbed_model import expand_sigmoid
from sartor.reference.expected_outputs import Expectation, Expected
from sartor.runtime.output_error import largest_error
from sartor.tuning.errors.error_measures import ErrorMeasure
from tests.plugin.measured_models import BOXES, CLASSES, MODELS, inexact, quantised, rounded
from tests.plugin.onnx_model.builders import Array, run, weights

FULL, NARROW = 1e-3, 5e-2
"""Bounds that are usual with f32 and with 8 bits."""


@functools.cache
def _expected(name: str, narrow: bool) -> tuple[ModelProto, Mapping[str, Array], Expected]:
    built = MODELS[name]()
    shape = [each.dim_value for each in built.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": weights(*shape, seed=8)}
    data = built.SerializeToString()
    return built, feeds, Expectation((data,), data, threads=1, narrow=narrow)(feeds)


def _scores_zeroed(y: Array) -> None:
    y[:, BOXES:] = 0


def _one_score_zeroed(y: Array) -> None:
    y[:, BOXES] = 0


def _scores_swapped(y: Array) -> None:
    y[:, [BOXES + 5, BOXES + 15]] = y[:, [BOXES + 15, BOXES + 5]]


def _boxes_swapped(y: Array) -> None:
    y[:, [0, 2]] = y[:, [2, 0]]


def _classes_shifted(y: Array) -> None:
    y[:, BOXES:] = np.roll(y[:, BOXES:], 1, axis=1)


def _one_class_shifted(y: Array) -> None:
    y[:, BOXES + 3] = np.roll(y[:, BOXES + 3], 1, axis=-1)


def _sizes_negated(y: Array) -> None:
    y[:, 2:4] *= -1


def _last_anchor_missing(y: Array) -> None:
    y[:, :, -1] = 0


def _one_class_of_the_last_row_missing(y: Array) -> None:
    y[:, BOXES + CLASSES - 1, -16:] = 0


def _smallest_channel_zeroed(y: Array) -> None:
    y[:, 0] = 0


def _smallest_channel_negated(y: Array) -> None:
    y[:, 0] *= -1


def _channels_swapped(y: Array) -> None:
    y[:, [0, 1]] = y[:, [1, 0]]


def _last_row_missing(y: Array) -> None:
    y[..., -1, :] = 0


def _all_zero(y: Array) -> None:
    y[:] = 0


def _unmasked_replaced(y: Array) -> None:
    y[:, ::4] = 12345


def _unmasked_zero(y: Array) -> None:
    y[:, ::4] = 0


def _unmasked_rolled(y: Array) -> None:
    y[:, ::4] = np.roll(y[:, ::4], 1, axis=1)


def _mask_missing(y: Array) -> None:
    y[:, 1::4] = 0


def _small_entry_zeroed(y: Array) -> None:
    y[1] = 0


def _small_entry_rolled(y: Array) -> None:
    y[1] = np.roll(y[1], 1)


def _numbers_wrong(y: Array) -> None:
    y[~np.isnan(y)] = 0.5


def _unsure(y: Array) -> None:
    """Other classes than the first of all are mixed up."""
    order = np.argsort(-y, axis=-1)
    y[np.arange(4)[:, None], order[:, 1:]] = np.roll(y[np.arange(4)[:, None], order[:, 1:]], 1, axis=-1)


def _thousandfold(y: Array) -> None:
    y *= 1000


def _thousandth(y: Array) -> None:
    y /= 1000


Plant = Callable[[Array], None]

PLANTED: list[tuple[str, int, Plant]] = [
    ("detector", 0, _scores_zeroed),
    ("detector", 0, _one_score_zeroed),
    ("detector", 0, _scores_swapped),
    ("detector", 0, _boxes_swapped),
    ("detector", 0, _classes_shifted),
    ("detector", 0, _one_class_shifted),
    ("detector", 0, _sizes_negated),
    ("detector", 0, _last_anchor_missing),
    ("detector", 0, _one_class_of_the_last_row_missing),
    ("detector", 0, _all_zero),
    ("heads", 0, _smallest_channel_zeroed),
    ("heads", 0, _smallest_channel_negated),
    ("heads", 0, _channels_swapped),
    ("heads", 0, _last_row_missing),
    ("heads", 1, np.negative),
    ("softmax", 0, _unsure),
    ("softmax", 0, _all_zero),
    ("small_sigmoid", 0, _all_zero),
    ("batch", 0, _small_entry_zeroed),
    ("batch", 0, _small_entry_rolled),
    ("single", 0, _all_zero),
    ("not_numbers", 0, _numbers_wrong),
    *(
        (name, 0, plant)
        for name in ("masked_lowest", "masked_infinite", "masked_1e4", "masked_added")
        for plant in (_unmasked_replaced, _unmasked_zero, _unmasked_rolled, _mask_missing)
    ),
]


def _wrong(expected: Expected, index: int, plant: Plant) -> list[Array]:
    outputs = [output.copy() for output in expected.outputs]
    if isinstance(plant, np.ufunc):
        outputs[index] = plant(outputs[index])
    else:
        plant(outputs[index])
    return outputs


@pytest.mark.parametrize(("narrow", "bound"), [(False, FULL), (True, NARROW)], ids=["f32", "narrow"])
@pytest.mark.parametrize(("name", "index", "plant"), PLANTED)
def test_what_is_planted_is_seen(name: str, index: int, plant: Plant, narrow: bool, bound: float) -> None:
    _, _, expected = _expected(name, narrow)
    wrong = _wrong(expected, index, plant)
    assert ErrorMeasure.parse("relative").of_sample(wrong, expected.outputs, expected.scales) > bound


@pytest.mark.parametrize(
    ("measure", "name", "plant", "bound"),
    [
        ("cosine", "single", _thousandfold, 0.5),
        ("cosine", "single", _thousandth, 0.5),
        ("cosine", "detector", _scores_zeroed, 0.1),
        ("cosine", "masked_lowest", _unmasked_replaced, 0.1),
        ("cosine", "batch", _small_entry_zeroed, 0.1),
        ("cosine", "not_numbers", _numbers_wrong, 0.1),
        ("top1", "single", _all_zero, 0.5),
        ("top1", "single", np.negative, 0.5),
        ("top1", "softmax", _all_zero, 0.5),
    ],
)
def test_other_measures_see_it_too(measure: str, name: str, plant: Plant, bound: float) -> None:
    _, _, expected = _expected(name, False)
    wrong = _wrong(expected, 0, plant)
    assert ErrorMeasure.parse(measure).of_sample(wrong, expected.outputs, expected.scales) > bound


Rounding = Callable[[ModelProto, Mapping[str, Array]], ModelProto]

HONEST: dict[str, tuple[Rounding, bool, float]] = {
    "unoptimised": (lambda built, feeds: built, False, FULL),
    "winograd": (lambda built, feeds: inexact(built, 100 * 2.0**-24), False, FULL),
    "bf16": (lambda built, feeds: rounded(built, TensorProto.BFLOAT16), True, 1e-2),
    "f16": (lambda built, feeds: rounded(built, TensorProto.FLOAT16), True, 1e-2),
    "int8": (quantised, True, NARROW),
}


@pytest.mark.parametrize("kind", HONEST)
@pytest.mark.parametrize("name", MODELS)
def test_honest_rounding_is_not_blamed(name: str, kind: str) -> None:
    rounding, narrow, bound = HONEST[kind]
    built, feeds, expected = _expected(name, narrow)
    exact = ModelProto()
    exact.CopyFrom(built)
    expand_sigmoid(exact)
    outputs = list(run(rounding(exact, feeds), feeds).values())
    for measure, allowed in (("relative", bound), ("cosine", bound**2), ("top1", 0.02)):
        error = ErrorMeasure.parse(measure).of_sample(outputs, expected.outputs, expected.scales)
        assert error <= allowed, measure


@pytest.mark.parametrize("kind", ["bf16", "int8"])
def test_slices_of_one_scale_add_nothing_to_the_error(kind: str) -> None:
    rounding, _, _ = HONEST[kind]
    built, feeds, expected = _expected("single", True)
    (output,) = run(rounding(built, feeds), feeds).values()
    error = ErrorMeasure.parse("relative").of_sample([output], expected.outputs, expected.scales)
    assert error == pytest.approx(largest_error(output, expected.outputs[0]), rel=0.5)


def test_another_shape_is_infinitely_wrong() -> None:
    _, _, expected = _expected("heads", False)
    short = [expected.outputs[0][:, :, :-1], expected.outputs[1]]
    assert ErrorMeasure.parse("relative").of_sample(short, expected.outputs, expected.scales) == math.inf
