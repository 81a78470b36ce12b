"""Rewrites of operators that ONNX Runtime cannot run: right ones pass, and planted faults are caught and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

from sartor.errors import RewriteError
from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.preparing import prepare as preparing
from sartor.onnx_model.preparing.simplify import simplify
from sartor.onnx_model.rewrites.operator_sets import expand_operators
from sartor.reference.random_inputs import sample_inputs
from sartor.reference.vouching.rewrite_check import checked_rewrites
from sartor.tuning.workers.protocol import WorkerError
from tests.plugin.reference.vouching.definition_cases import CASES, Fault


def _checked(built: ModelProto, folder: Path) -> bool:
    """What the check of a compilation says of a model, prepared with the rewrites as they are."""
    path = folder / "model.onnx"
    path.write_bytes(built.SerializeToString())
    prepared = preparing.prepare(built).model
    found = checked_rewrites(path, prepared.SerializeToString(), [sample_inputs(prepared, 0)], (), 0.0)
    if isinstance(found, WorkerError):
        raise found.error
    return found


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxslim, whose process takes a second to start."""
    steps = tuple(step for step in preparing.SIMPLIFY if step is not simplify)
    monkeypatch.setattr(preparing, "SIMPLIFY", steps)


@pytest.mark.parametrize("name", sorted(CASES))
def test_right_rewrite_passes(name: str, tmp_path: Path) -> None:
    assert _checked(CASES[name].build(), tmp_path)


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in sorted(CASES) for fault in CASES[name].faults], ids=str
)
def test_fault_in_a_rewrite_is_caught_and_named(
    name: str, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = CASES[name].build()
    operator = CASES[name].operator
    domain = next(node.domain for node in built.graph.node if node.op_type == operator)
    lowerings = expand_operators._LOWERINGS[domain]
    right = lowerings[operator]

    def wrong(node: Any, editor: GraphEditor) -> Any:
        return fault.planted(right, node, editor)

    monkeypatch.setitem(lowerings, operator, wrong)
    with pytest.raises(
        RewriteError, match=rf"internal: the rewrite of node .*{operator}\) differs from its definition"
    ):
        _checked(built, tmp_path)
