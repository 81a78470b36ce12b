"""Buffers that TensorScatter writes to are states: what calls compare sees rows that are stale or at another place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sartor.codegen.linking import stitching
from sartor.codegen.linking.stitching import Stitched
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import state_pairs
from sartor.policies import StatePolicy
from sartor.profiling.state_check import CALLS, CallErrors, verify_states
from sartor.profiling.verify_job import Check
from sartor.samples.sample_sets import DrawnSamples
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks import build_job
from sartor.tuning.networks.build_job import NetFiles
from tests.codegen.linking.functions.test_written_over import cached
from tests.importing import imported_model
from tests.plugin.profiling.test_state_check import WRONG, built
from tests.plugin.test_states import ROOM, decoder

MODES = ("circular", "linear")
WRITTEN, LIVE = ("TensorScatter", 2), ("Attention", 6)
"""Operators, and the input that tells the first of them where to write, the other how many rows live."""


def stale(text: str) -> str:
    """A reset writes to the buffer of the first state in place of the last."""
    before, head, after = text.partition("util.func private @state$start(")
    body, end, rest = after.partition("\n}")
    assert "@state$1 :" in body
    return before + head + body.replace("@state$1 :", "@state$0 :") + end + rest


def imported(*fault: Any) -> ImportedModel:
    """The decoder; at fault an operator's input is moved by some rows, within bounds."""
    model = decoder()
    if fault:
        (operator, place), by, bounds = fault
        named = dict(zip(("by", "least", "most"), (by, *bounds), strict=True))
        model.graph.initializer.extend(
            onnx.numpy_helper.from_array(np.array([each]), name) for name, each in named.items()
        )
        nodes = [*model.graph.node]
        readers = [node for node in nodes if node.op_type == operator]
        given = readers[0].input[place]
        for node in readers:
            node.input[place] = "within"
        moved = onnx.helper.make_node("Add", [given, "by"], ["moved"], name="moving")
        bounded = [onnx.helper.make_node("Max", ["moved", "least"], ["above"], name="bounding")]
        bounded.append(onnx.helper.make_node("Min", ["above", "most"], ["within"], name="bounding_too"))
        del model.graph.node[:]
        model.graph.node.extend([moved, *bounded, *nodes])
    return imported_model(model, states=StatePolicy(finds=True))


@pytest.fixture(scope="module")
def right() -> ImportedModel:
    found = imported()
    assert len(found.states) == 2
    return found


def checked(right: ImportedModel, module: Path) -> CallErrors:
    """The errors of calls with inputs as compilations draw them."""
    check = Check(
        files=NetFiles(module, None),
        values=(right.graph.inputs, right.graph.outputs),
        models=(right.path, right.prepared),
        samples=DrawnSamples(right.skeleton, 8, right.styles),
        count=8,
        measure=RELATIVE,
        narrow=False,
        device="cpu",
        threads=1,
    )
    found = verify_states(check, right.states)
    assert isinstance(found, CallErrors), found
    return found


def made(model: ImportedModel, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return built(model, folder, state_pairs(model))


def test_a_right_module_is_right_in_all_calls(right: ImportedModel, tmp_path: Path) -> None:
    assert max(checked(right, made(right, tmp_path)).errors) < 1e-5


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param((WRITTEN, 1, (0, ROOM - 1)), id="a row too late"),
        pytest.param((LIVE, 1, (1, ROOM)), id="a row behind the live part"),
    ],
)
def test_rows_at_another_place_are_seen(fault: Any, right: ImportedModel, tmp_path: Path) -> None:
    errors = checked(right, made(imported(*fault), tmp_path)).errors
    assert max(errors[: CALLS[0]]) > WRONG
    assert max(errors[CALLS[0] :]) > WRONG


def test_rows_that_are_not_written_around_the_end_are_seen(tmp_path: Path) -> None:
    models = [imported_model(cached((1, 2, 4, 2), 2, mode), states=StatePolicy(finds=True)) for mode in MODES]
    modules = [made(model, tmp_path / mode) for model, mode in zip(models, MODES, strict=True)]
    errors, wrong = (checked(models[0], module).errors for module in modules)
    assert max(errors) < 1e-5
    assert max(wrong[: CALLS[0]]) > WRONG


def test_rows_of_before_a_reset_are_seen(right: ImportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stitch(*arguments: Any) -> Stitched:
        found = stitching.stitch(*arguments)
        return replace(found, text=stale(found.text))

    monkeypatch.setattr(build_job, "stitch", stitch)
    errors = checked(right, made(right, tmp_path)).errors
    assert max(errors[1 : CALLS[0]]) < 1e-5
    assert errors[CALLS[0]] > WRONG
