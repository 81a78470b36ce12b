"""States of which a layer writes some rows: they have one buffer, in which a call writes these rows alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.codegen.linking.functions.written_over import is_written_over, overwritten
from sartor.codegen.linking.stitching import stitch
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import state_pairs, writes_rows
from sartor.policies import StatePolicy
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import STATES_FORMAT
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, stitchings
from tests.codegen.linking.test_stitching import TARGET, build, split
from tests.importing import imported_model

PAST, PRESENT = "past_key_values.0.key", "present.0.key"
TIED = """util.func private @write(%arg0: tensor<2x4xf32> {a}, %arg1: tensor<1x4xf32> {a}) -> (tensor<8xf32> {a}) {
  %0 = flow.tensor.reshape %arg0 : tensor<2x4xf32> -> tensor<8xf32>
  %1 = flow.dispatch @d::@d(%arg1, %0) : (tensor<1x4xf32>, tensor<8xf32>) -> %0
  util.return %1 : tensor<8xf32>
}"""


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("", "", 0),
        ("-> %0", "-> tensor<8xf32>", None),
        ("-> %0", "-> %arg1", 1),
        # Something else of the code reads what would be written over.
        ("(%arg1, %0)", "(%arg0, %0)", None),
        ("(%arg1, %0)", "(%0, %0)", None),
    ],
)
def test_arguments_that_results_are_tied_to(old: str, new: str, place: int | None) -> None:
    assert overwritten("write", TIED.replace(old, new) if old else TIED) == place
    assert overwritten("other", TIED) is None


def test_an_argument_of_which_other_code_has_several_results_is_not_tied_to() -> None:
    pair = "%2:2 = flow.dispatch @e::@e(%arg0) : (tensor<2x4xf32>) -> (tensor<f32>, tensor<f32>)"
    assert overwritten("write", TIED.replace("  util.return", f"  {pair}\n  util.return")) is None


LINES = [
    "%v0 = util.call @write(%t0, %t1) : (tensor<2x4xf32>, tensor<1x4xf32>) -> (tensor<8xf32>)",
    "%v1 = util.call @read(%v0) : (tensor<8xf32>) -> (tensor<8xf32>)",
]


def test_inputs_that_something_else_reads_are_not_written_over() -> None:
    code = {"write": TIED}
    assert is_written_over("%t0", "%v0", LINES, ["%v0", "%v1"], code)
    assert not is_written_over("%t1", "%v0", LINES, ["%v0", "%v1"], code)
    assert not is_written_over("%t0", "%v1", LINES, ["%v0", "%v1"], code)
    assert not is_written_over("%t0", "%v0", LINES, ["%v0", "%v0"], code)
    assert not is_written_over("%t0", "%v0", LINES, ["%v0", "%t0"], code)
    assert not is_written_over("%t0", "%t0", LINES, ["%t0"], code)
    again = [*LINES, "%v2 = util.call @read(%t0) : (tensor<2x4xf32>) -> (tensor<8xf32>)"]
    assert not is_written_over("%t0", "%v0", again, ["%v0", "%v2"], code)
    parts = [*LINES, "%v2:2 = util.call @split(%t0) : (tensor<2x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>)"]
    assert not is_written_over("%t0", "%v0", parts, ["%v0", "%v2#0"], code)
    twice = [*LINES, "%v2 = util.call @write(%v0, %t1) : (tensor<8xf32>, tensor<1x4xf32>) -> (tensor<8xf32>)"]
    assert not is_written_over("%t0", "%v2", twice, ["%v2"], code), "what was read between would be another value"
    assert is_written_over("%t0", "%v2", [twice[0], twice[2]], ["%v2"], code)


def cached(shape: tuple[int, ...], count: int, mode: str = "linear", *, reads: bool = False) -> ModelProto:
    """Rows that are written into a cache behind a place, of which a sum is read; ``mode`` may be "indices".

    With ``reads`` the cache of before is read, too.
    """
    batch, heads, _, width = shape
    rows = (batch, heads, count, width)
    nodes = [helper.make_node("ReduceSum", [PRESENT, "axes"], ["y"], name="read", keepdims=0)]
    if reads:
        nodes.append(helper.make_node("ReduceSum", [PAST, "axes"], ["before"], name="before", keepdims=0))
    held: dict[str, Array] = {"axes": np.array([1, 2])}
    if mode == "indices":
        held["places"] = np.moveaxis(np.indices((batch, heads, count)), 0, -1)
        held["unit"] = np.array([0, 0, 1])
        nodes[:0] = [
            helper.make_node("Mul", ["place", "unit"], ["moved"], name="moved"),
            helper.make_node("Add", ["places", "moved"], ["numbers"], name="numbers"),
            helper.make_node("ScatterND", [PAST, "numbers", "rows"], [PRESENT], name="write"),
        ]
    else:
        nodes.insert(0, helper.make_node("TensorScatter", [PAST, "rows", "place"], [PRESENT], name="write", mode=mode))
    made = {PRESENT: shape, "y": (batch, width), **({"before": (batch, width)} if reads else {})}
    places = (1,) if mode == "indices" else (batch,)
    graph = helper.make_graph(
        nodes,
        "cached",
        [
            helper.make_tensor_value_info(PAST, TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, rows),
            helper.make_tensor_value_info("place", TensorProto.INT64, places),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in made.items()],
        [numpy_helper.from_array(np.asarray(array, np.int64), name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def imported(*arguments: Any, **options: Any) -> ImportedModel:
    model = imported_model(cached(*arguments, **options), states=StatePolicy(finds=True))
    assert len(model.states) == 1
    return model


def made(model: ImportedModel, folder: Path) -> Path:
    net, files = replace(split(model), states=state_pairs(model)), NetFiles(folder / "net.vmfb", None)
    build(model, net, files, states=model.states, format=STATES_FORMAT)
    return files.module


def text_of(model: ImportedModel) -> str:
    net = replace(split(model), states=state_pairs(model))
    (stitching,) = stitchings(net, model.weights, TARGET).values()
    return stitch(stitching, TARGET, "").text


@pytest.mark.parametrize(
    ("shape", "count", "mode", "places"),
    [
        ((1, 2, 6, 4), 1, "linear", [[0], [1], [5], [3]]),
        ((2, 3, 8, 2), 3, "linear", [[0, 5], [3, 0], [5, 1]]),
        # A whole cache, and one row of many.
        ((1, 1, 4, 2), 4, "linear", [[0]]),
        ((2, 1, 5, 3), 2, "circular", [[0, 4], [3, 2], [4, 4]]),
        ((1, 2, 4, 3), 4, "circular", [[3], [1]]),
        # Negative numbers count from the end.
        ((2, 3, 5, 4), 1, "indices", [[0], [-1], [3]]),
    ],
)
def test_rows_are_written_where_they_lie(
    shape: tuple[int, ...], count: int, mode: str, places: list[list[int]], tmp_path: Path
) -> None:
    model = imported(shape, count, mode)
    assert writes_rows(model)
    assert "$next" not in text_of(model), "the state has one buffer"
    random, (batch, heads, size, width) = np.random.default_rng(0), shape
    with Session(made(model, tmp_path), threads=1) as session:
        for _ in range(2):
            cache, saved = np.zeros(shape, np.float32), dict[str, Array]()
            for place in places:
                rows = random.standard_normal((batch, heads, count, width)).astype(np.float32)
                before, saved = session.save()[PAST], session.save()
                (summed,) = session.run(None, {"rows": rows, "place": np.array(place)})
                np.testing.assert_array_equal(before, cache)
                for sequence, begin in enumerate(np.broadcast_to(place, batch)):
                    cache[sequence, :, (begin + np.arange(count)) % size] = rows[sequence].swapaxes(0, 1)
                np.testing.assert_array_equal(session.save()[PAST], cache)
                np.testing.assert_allclose(summed, cache.sum((1, 2)), rtol=1e-5, atol=1e-5)
            other = session.fork()
            assert not other.save()[PAST].any()
            session.restore(saved)
            session.run(None, {"rows": rows, "place": np.array(places[-1])})
            np.testing.assert_array_equal(session.save()[PAST], cache)
            assert not other.save()[PAST].any()
            other.close()
            session.reset()


def test_rows_that_would_end_behind_the_last_one_end_there(tmp_path: Path) -> None:
    rows = np.ones((1, 1, 2, 2), np.float32)
    with Session(made(imported((1, 1, 4, 2), 2), tmp_path), threads=1) as session:
        for place in (3, 100, -5):
            session.run(None, {"rows": rows, "place": np.array([place])})
        np.testing.assert_array_equal(session.save()[PAST], np.ones((1, 1, 4, 2)))


def test_a_cache_that_is_read_as_it_was_has_two_buffers(tmp_path: Path) -> None:
    model = imported((1, 2, 4, 2), 1, reads=True)
    assert "$next" in text_of(model)
    with Session(made(model, tmp_path), threads=1) as session:
        for place in range(3):
            summed, before = session.run(None, {"rows": np.ones((1, 2, 1, 2), np.float32), "place": np.array([place])})
            assert (summed == 2 * place + 2).all()
            assert (before == 2 * place).all()
