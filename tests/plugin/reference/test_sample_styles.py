"""Where outputs say nothing on the usual values, others are drawn, and what is left is named."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.config import CompileConfig
from sartor.errors import ReferenceFailedError
from sartor.precision.calibration import calibrate
from sartor.reference import sample_styles
from sartor.reference.random_inputs import OTHERS, USUAL, Indices, Style, sample_inputs
from sartor.reference.sample_styles import Doubts, choose_styles, dependent_outputs, says_nothing
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.samples.given_samples import HeldSamples
from sartor.samples.sample_sets import DRAWN, sample_set
from sartor.samples.samples_job import look_at
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, Value, model, node, weights
from tests.tiny_models import looping

X: list[Value] = [("x", (1, 16), FLOAT)]
W = {"w": weights(16, 8), "low": np.float32(30), "one": np.float32(1)}
PRODUCT = node("MatMul", ["x", "w"], ["z"])


def _model(*nodes: NodeProto, outputs: tuple[str, ...] = ("y",)) -> ModelProto:
    return model([PRODUCT, *nodes], X, [(name, (1, 8), FLOAT) for name in outputs], W)


SHIFTED = node("Sub", ["z", "low"], ["s"])
SATURATED = _model(SHIFTED, node("Relu", ["s"], ["y"]))
"""Zero unless the input is large."""
FAR = _model(node("Add", ["low", "low"], ["far"]), node("Sub", ["z", "far"], ["s"]), node("Relu", ["s"], ["y"]))
NEVER = _model(node("Sub", ["z", "z"], ["y"]))
ROOT = model([node("Sqrt", ["x"], ["r"]), node("ReduceSum", ["r"], ["y"])], X, [("y", (1, 1), FLOAT)])
"""Not a number unless all inputs are positive."""


def _choose(built: ModelProto) -> tuple[tuple[Style, ...], tuple[str, ...]]:
    found = choose_styles(built, built.SerializeToString())
    return found.styles, found.doubts.unchecked


def test_usual_values_stay_where_every_output_says_something() -> None:
    assert _choose(_model(node("Relu", ["z"], ["y"]))) == ((USUAL,), ())


@pytest.mark.parametrize("built", [SATURATED, FAR, ROOT], ids=["saturated", "far", "root"])
def test_other_values_are_drawn_where_an_output_says_nothing(built: ModelProto) -> None:
    (style,), unchecked = _choose(built)
    assert style in OTHERS
    assert unchecked == ()
    reference = ReferenceModel(built.SerializeToString())
    (first,), (second,) = (reference(sample_inputs(built, seed, style)) for seed in (0, 1))
    assert not says_nothing([first, second])
    assert _choose(built) == ((style,), ()), "it is the same each time"


def test_both_branches_are_taken() -> None:
    branches = {
        key: helper.make_graph(
            [node(operator, ["z"], [key])], key, [], [helper.make_tensor_value_info(key, FLOAT, None)]
        )
        for key, operator in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    built = _model(node("If", ["c"], ["y"], **branches))
    built.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    styles, unchecked = _choose(built)
    assert unchecked == ()
    assert {bool(sample_inputs(built, 0, style)["c"]) for style in styles} == {True, False}


def test_what_no_values_help_is_named() -> None:
    two = _model(node("Sub", ["z", "z"], ["y"]), node("Relu", ["z"], ["right"]), outputs=("right", "y"))
    assert _choose(two) == ((USUAL,), ("y",))


def test_outputs_that_are_partly_not_finite_are_named() -> None:
    rooted = _model(
        node("Sqrt", ["z"], ["r"]), node("Relu", ["z"], ["right"]), node("Neg", ["r"], ["y"]), outputs=("right", "y")
    )
    found = choose_styles(rooted, rooted.SerializeToString())
    assert found.styles == (USUAL,)
    assert found.doubts == Doubts(unchecked=(), not_finite=("y",))
    assert choose_styles(ROOT, ROOT.SerializeToString()).doubts == Doubts(), "drawn where it is finite"


def test_samples_of_several_styles_are_drawn_where_no_one_style_does_for_all() -> None:
    """One output is not a number on positive inputs, the other on negative ones."""
    nodes = [
        node("ReduceMin", ["x"], ["least"], keepdims=0),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Sqrt", ["least"], ["root"]),
        node("Neg", ["least"], ["n"]),
        node("Sqrt", ["n"], ["other"], name="other"),
        node("Add", ["other", "most"], ["b"], name="b"),
        node("Add", ["root", "most"], ["a"]),
    ]
    built = model(nodes, X, [("a", (), FLOAT), ("b", (), FLOAT)])
    styles, unchecked = _choose(built)
    assert unchecked == ()
    assert choose_styles(built, built.SerializeToString()).doubts.not_finite == (), "each is a number in one"
    assert len(styles) == 2
    assert styles[0] == USUAL


def test_constants_are_right_to_be_constant() -> None:
    built = _model(node("Relu", ["z"], ["y"]), node("Add", ["low", "one"], ["anchors"]), outputs=("y", "anchors"))
    assert dependent_outputs(built) == {"y"}
    assert _choose(built) == ((USUAL,), ())


@pytest.mark.parametrize(
    ("values", "silent"),
    [
        ([[0.0, 0.0], [0.0, 0.0]], True),
        ([[np.nan, np.inf], [np.nan, np.nan]], True),
        ([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], True),
        ([[0.25, 0.5, 0.0], [1.0, 0.0, 0.0]], False),
        ([[np.nan, 1.0, 2.0], [np.nan, 3.0, 4.0]], False),
        ([[0.5], [0.5]], True),
        ([[0.5], [0.25]], False),
        ([[], []], False),
    ],
)
def test_what_says_nothing(values: list[list[float]], silent: bool) -> None:
    assert says_nothing([np.array(value, np.float32) for value in values]) == silent


def test_whole_numbers_may_be_two_but_not_always_one() -> None:
    assert says_nothing([np.array([7]), np.array([7])])
    assert not says_nothing([np.array([7, 7, 7]), np.array([7, 8, 7])])
    assert not says_nothing([np.array(["a"], object)])


def test_a_model_that_fails_on_random_indices_is_run_on_others() -> None:
    """A table is read one place after the index."""
    nodes = [node("Add", ["i", "step"], ["j"]), node("Gather", ["table", "j"], ["y"])]
    constants = {"table": weights(2, 8), "step": np.int64(0)}
    built = model(nodes, [("i", (1, 4), INT64)], [("y", (1, 4, 8), FLOAT)], constants)
    assert _choose(built) == ((USUAL,), ())
    short = model(
        [node("Slice", ["w", "start", "i"], ["y"])],
        [("i", (1,), INT64)],
        [("y", None, FLOAT)],
        {"w": weights(8), "start": np.array([0])},
    )
    assert _choose(short)[1] == ()


def test_integers_of_other_styles_stay_within_their_bounds() -> None:
    built = model(
        [node("Gather", ["table", "i"], ["y"])],
        [("i", (2, 5), INT64)],
        [("y", (2, 5, 4), FLOAT)],
        {"table": weights(3, 4)},
    )
    ones, rising = (sample_inputs(built, 0, Style(indices=each))["i"] for each in (Indices.ONES, Indices.RISING))
    np.testing.assert_array_equal(ones, np.ones((2, 5), np.int64))
    np.testing.assert_array_equal(rising, [[0, 1, 2, 0, 1]] * 2)
    mask = model([node("Not", ["m"], ["y"])], [("m", (64,), TensorProto.BOOL)], [("y", (64,), TensorProto.BOOL)])
    assert sample_inputs(mask, 0, Style(indices=Indices.ONES))["m"].all()
    assert not sample_inputs(mask, 0)["m"].all()


def test_the_users_samples_are_looked_at_too() -> None:
    def samples(scale: float) -> HeldSamples:
        draws: list[Array] = [np.random.default_rng(seed).normal(0, scale, (1, 16)) for seed in range(3)]
        return HeldSamples(tuple({"x": draw.astype(np.float32)} for draw in draws))

    data = SATURATED.SerializeToString()
    assert look_at(data, samples(1.0)).doubts.unchecked == ("y",)
    assert look_at(data, samples(50.0)).doubts.unchecked == ()


def test_a_compilation_works_with_the_samples_that_say_something() -> None:
    imported = imported_model(SATURATED)
    for narrow, count in ((False, 1), (True, DRAWN)):
        found = sample_set(imported, None, narrow=narrow)
        assert len(found) == count
        assert found.doubts == Doubts()
        assert found.digest not in ("", f"{DRAWN} drawn"), "what is known by it is known of other samples"
        np.testing.assert_array_equal(found.first["x"], imported.samples["x"])
        reference = ReferenceModel(imported.path)
        assert not says_nothing([reference(feeds)[0] for feeds in found.source.since(0)])


def test_who_compiles_is_told_what_is_not_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    imported = imported_model(
        _model(node("Sign", ["z"], ["y"]), node("Relu", ["z"], ["right"]), outputs=("right", "y"))
    )
    with WorkerPool(1) as pool:
        config = CompileConfig(threads=1, database=tmp_path / "t.db")
        assert calibrate(imported, config.calibrating, pool).samples.doubts.unchecked == ("y",)
        assert "output 'y' is not checked" in caplog.text
        np.save(tmp_path / "zeros.npy", np.zeros((1, 16), np.float32))
        given = replace(config, calibration=tmp_path / "zeros.npy")
        assert calibrate(imported, given.calibrating, pool).samples.doubts.unchecked == ("right", "y")


def test_a_model_that_runs_for_ever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even without a budget: nothing could be compared with its results."""
    built = looping(2_000_000_000)
    monkeypatch.setattr(sample_styles, "_MOST_SECONDS", 0.3)
    with pytest.raises(
        ReferenceFailedError, match=r"within 0\.[23]\d* s, and every module is compared with its results$"
    ):
        choose_styles(built, built.SerializeToString())


def test_a_model_that_runs_longer_than_the_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    built = looping(2_000_000_000)
    monkeypatch.setattr(sample_styles, "_LEAST_SECONDS", 0.2)
    with pytest.raises(ReferenceFailedError, match="allow more by --time-budget"):
        choose_styles(built, built.SerializeToString(), time.monotonic() - 1)


def test_outputs_are_not_doubted_for_want_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    built = looping(3)
    taken: list[float] = []

    def run(reference: ReferenceModel, feeds: object, seconds: float) -> list[np.ndarray]:
        taken.append(seconds)
        if len(taken) > 1:
            raise ReferenceFailedError("slow")
        return [np.ones(3, np.float32)]

    monkeypatch.setattr(ReferenceModel, "__call__", run)
    found = choose_styles(built, built.SerializeToString())
    assert (found.doubts, found.is_hurried) == (Doubts(), False), "more time would not help"
    assert len(taken) == 2
    assert taken[1] <= taken[0] <= 120
    taken.clear()
    assert choose_styles(built, built.SerializeToString(), time.monotonic() + 60).is_hurried
