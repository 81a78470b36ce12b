"""Blocks of decoders compile without an option: attentions keep their caches, and experts take any number of tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import sartor
from sartor.config import CompileConfig
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from tests.attention_models import by_heads, drawn, feeds, stacked

CALLS = 4


def compiled(model: ModelProto, folder: Path) -> tuple[Path, OnnxRuntimeReference]:
    path = folder / "block.onnx"
    onnx.save(model, path)
    config = CompileConfig(threads=1, jobs=1, database=folder / "tuning.db", time_budget=0)
    return sartor.compile(path, config).path, OnnxRuntimeReference(path, threads=1)


@pytest.mark.parametrize("make", [by_heads, stacked], ids=["heads", "stacked"])
def test_an_attention_keeps_its_caches(make: Callable[[int, int], ModelProto], tmp_path: Path) -> None:
    model = make(1, 1)
    module, reference = compiled(model, tmp_path)
    caches = [name for name in reference.input_names if name.startswith("past")]
    held = {name: array for name, array in feeds(model, 1, past=0).items() if name in caches}
    with Session(module, threads=1) as session:
        assert {state.name for state in session.get_states()} == {*caches}
        for past in range(CALLS):
            given = {name: array for name, array in feeds(model, 1, past).items() if name not in caches}
            right = dict(zip(reference.output_names, reference({**given, **held}), strict=True))
            held = {name: right[re.sub("past(_key_values)?", "present", name)] for name in caches}
            assert relative_error(session.run(None, given), [right["y"]]) < 1e-5, past
        kept = session.save()
    assert relative_error([kept[name] for name in caches], [*held.values()]) < 1e-5


def test_experts_take_any_number_of_tokens(tmp_path: Path) -> None:
    experts, width, inner = 4, 16, 24
    held = {"r": drawn(width, experts), "w1": drawn(experts, inner, width), "w2": drawn(experts, width, inner)}
    options: dict[str, Any] = {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    nodes = [
        helper.make_node("MatMul", ["x", "r"], ["routes"], name="router"),
        helper.make_node("MoE", ["x", "routes", "w1", "", "w2"], ["y"], name="e", domain="com.microsoft", **options),
    ]
    given, made = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ("tokens", width))] for name in "xy")
    weights = [numpy_helper.from_array(array, name) for name, array in held.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "experts", given, made, weights)
    module, reference = compiled(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path)
    with Session(module, threads=1) as session:
        for tokens in (1, 3, 8):
            rows: dict[str, Array] = {"x": drawn(tokens, width)}
            assert relative_error(session.run(None, rows), reference(rows)) < 1e-5
