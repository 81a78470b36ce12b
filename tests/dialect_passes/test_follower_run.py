"""Layers are formed by looking at each use once or twice, however long the network is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper

from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import entry_function
from sartor.dialect_passes.follower_run import FollowerRun
from sartor.dialect_passes.partition import partition
from sartor.frontend.onnx_import import import_model
from sartor.onnx_model.graphs.infer import infer_shapes
from tests.tiny_models import Builder

_LENGTH = 120


def _chain() -> ModelProto:
    """One elementwise operator after the other."""
    make, value = Builder(), "x"
    for index in range(_LENGTH):
        value = make.op(("Sigmoid", "Tanh")[index % 2], f"v{index}", value)
    return make.model([("x", (2, 3))], [(value, (2, 3))])


def _comb() -> ModelProto:
    """The same, of which every value is an output."""
    made = _chain()
    for index in range(_LENGTH - 1):
        made.graph.output.append(helper.make_tensor_value_info(f"v{index}", 1, [2, 3]))
    return made


def _fan() -> ModelProto:
    """One value with many readers, whose results are summed."""
    make = Builder()
    total = make.op("Exp", "e", "x")
    for index in range(_LENGTH):
        scale = make.constant(np.array([index + 1], np.float32))
        total = make.op("Add", f"s{index}", total, make.op("Mul", f"m{index}", "e", scale))
    return make.model([("x", (2, 3))], [(total, (2, 3))])


@pytest.mark.parametrize("made", [_chain, _comb, _fan])
def test_steps_grow_with_the_network(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()  # type: ignore[operator]
    infer_shapes(model)
    module = ir.Module.parse(import_model(model).bytecode, ir.Context())
    steps, following = [0], FollowerRun.next

    def counted(run: FollowerRun) -> ir.Operation | None:
        steps[0] += 1
        return following(run)

    monkeypatch.setattr(FollowerRun, "next", counted)
    with module.context, ir.Location.unknown(module.context):
        groups = partition(entry_function(module))
    assert sum(len(group.ops) for group in groups) >= _LENGTH
    assert steps[0] <= 6 * sum(len(group.ops) for group in groups)
