"""ONNX's Attention over buffers that TensorScatter writes, of which ``nonpad_kv_seqlen`` tells the live part: the
buffers are states of fixed length, found by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.pipeline import compile_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session

_HEADS, _GROUPS, _WIDTH, _ROOM, _WORDS = 4, 2, 8, 6, 11
_DEPTH = _HEADS * _WIDTH
_CACHES = ("past_key_values.0.key", "past_key_values.0.value")


def decoder() -> ModelProto:
    """A layer over buffers with room for some positions."""
    random, held, nodes = np.random.default_rng(0), list[TensorProto](), list[NodeProto]()

    def hold(array: Any) -> str:
        held.append(numpy_helper.from_array(np.asarray(array), f"held_{len(held)}"))
        return held[-1].name

    def weight(rows: int, columns: int) -> str:
        return hold((random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32))

    def add(operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=f"n{len(nodes)}", **attributes))
        return name

    def by_head(x: str, count: int) -> str:
        split = add("Reshape", add("MatMul", x, weight(_DEPTH, count * _WIDTH)), hold([1, 1, count, _WIDTH]))
        return add("Transpose", split, perm=[0, 2, 1, 3])

    place = add("Gather", weight(_ROOM, _DEPTH), add("Unsqueeze", "write_indices", hold([1])))
    x = add("Add", add("Gather", weight(_WORDS, _DEPTH), "input_ids"), place)
    query = by_head(x, _HEADS)
    caches = [
        add(
            "TensorScatter",
            cache,
            by_head(x, _GROUPS),
            "write_indices",
            output=cache.replace("past_key_values", "present"),
            axis=2,
        )
        for cache in _CACHES
    ]
    context = add("Attention", query, *caches, "", "", "", "nonpad_kv_seqlen")
    flat = add("Reshape", add("Transpose", context, perm=[0, 2, 1, 3]), hold([1, 1, _DEPTH]))
    add("MatMul", flat, weight(_DEPTH, _WORDS), output="logits")
    numbers = {"input_ids": (1, 1), "write_indices": (1,), "nonpad_kv_seqlen": (1,)}
    shape = (1, _GROUPS, _ROOM, _WIDTH)
    graph = helper.make_graph(
        nodes,
        "decoder",
        [
            *(helper.make_tensor_value_info(name, TensorProto.INT64, dims) for name, dims in numbers.items()),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in _CACHES),
        ],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, (1, 1, _WORDS)),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in caches),
        ],
        held,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def feeds(place: int) -> dict[str, Array]:
    return {
        "input_ids": np.array([[3 * place % _WORDS]]),
        "write_indices": np.array([place]),
        "nonpad_kv_seqlen": np.array([place + 1]),
    }


def test_buffers_are_kept_and_rows_beyond_them_refused(tmp_path: Path) -> None:
    path, config = tmp_path / "decoder.onnx", CompileConfig(threads=1, jobs=1, time_budget=0)
    onnx.save(decoder(), path)
    made = compile_model(path, tmp_path / "decoder.vmfb", config)
    reference = ReferenceModel(path, threads=1)
    empty = np.zeros((1, _GROUPS, _ROOM, _WIDTH), np.float32)
    with Session(made.path, threads=1) as session:
        assert {state.name for state in session.get_states()} == {*_CACHES}
        for _ in range(2):
            held: dict[str, Array] = dict.fromkeys(_CACHES, empty)
            for place in range(_ROOM):
                right = reference({**feeds(place), **held})
                assert relative_error(session.run(None, feeds(place)), right[:1]) < 1e-5, place
                held = dict(zip(_CACHES, right[1:], strict=True))
            assert relative_error([session.save()[name] for name in _CACHES], [*held.values()]) < 1e-5
            session.reset()
        with pytest.raises(UsageError, match=f"'write_indices' has {_ROOM}"):
            session.run(None, feeds(_ROOM))
