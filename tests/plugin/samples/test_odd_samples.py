"""What is odd about samples is said in a sentence, and ordinary samples are not odd."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sartor.reference.sample_styles import Doubts
from sartor.runtime.driver.signature import Array
from sartor.samples.checked_samples import _warn_of_oddities
from sartor.samples.given_samples import HeldSamples
from sartor.samples.odd_samples import Extent, extents, united
from sartor.samples.samples_job import Look, look_at

_ORDINARY = np.random.default_rng(0).standard_normal((3, 2, 4), np.float32)


def _with_bias() -> bytes:
    """``y`` is ``x`` and a number for each of four channels."""
    bias = numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "b")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "b"], ["y"])], "g", ends[:1], ends[1:], [bias])
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize(
    ("samples", "odd"),
    [
        (_ORDINARY, ()),
        (_ORDINARY[:1], ()),
        (_ORDINARY * 0, ("input 'x' is 0 everywhere",)),
        (_ORDINARY[:1] * 0 + 2.5, ("input 'x' is 2.5 everywhere",)),
        (_ORDINARY.clip(-1, 1) * np.float32(1e30), ("input 'x' has numbers up to 1e+30",)),
        (_ORDINARY.clip(-1, 1) * np.float32(1e-30), ("input 'x' has numbers up to 1e-30",)),
        (_ORDINARY.clip(-1, 1) * np.float32(1e-10), ("output 'y' is always the same",)),
        (_ORDINARY[[0, 0]], ("output 'y' is always the same",)),
    ],
    ids=["ordinary", "one", "zeros", "one constant", "large", "tiny", "vanishing", "repeated"],
)
def test_samples_that_say_nothing_are_odd(samples: Array, odd: tuple[str, ...]) -> None:
    look = look_at(_with_bias(), HeldSamples(tuple({"x": sample} for sample in samples)))
    assert look == Look(Doubts(), len(samples), odd)


def test_integers_and_single_numbers_may_be_constant() -> None:
    feeds: dict[str, Array] = {
        "mask": np.ones(4, np.int64),
        "scale": np.ones((), np.float32),
        "x": np.array([1, 2], np.float16),
    }
    assert united([extents(feeds), extents({"x": np.array([-3, 1], np.float16)})]) == {"x": Extent(-3, 2)}


def test_the_warning_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _warn_of_oddities(Look(count=8, oddities=("input 'x' is 0 everywhere",)), 100)
        _warn_of_oddities(Look(count=8, oddities=("output 'y' is always the same",)), 8)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("input 'x' is 0 everywhere in the first 8 samples: ranges for 8 bits")
    assert second.startswith("output 'y' is always the same in the samples")
    assert "with --calibration" in first
