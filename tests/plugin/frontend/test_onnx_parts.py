"""Long models, which are lowered in parts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper, parser, shape_inference

from sartor.codegen.mlir.iree_compiler import ir, run_passes
from sartor.frontend import onnx_import
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.onnx_import import import_model
from sartor.frontend.onnx_parts import cut_into_parts
from tests.importing import imported_model

_HEADER = '<ir_version: 9, opset_import: ["" : 17]> g '
# Values skip parts, one is an output as well, an input is not used, and a size is computed.
_BRANCHES = """
(float[1,4,8] x, float[2] unused, bool[1,4,8] mask) => (float[1,4,8] early, float[1,4,8] y, int64[1,4,8] cast)
<float[8,8] w> {
    a = MatMul(x, w)
    early = Relu(a)
    b = Where(mask, early, x)
    n = Not(mask)
    sizes = Shape(b)
    c = Reshape(b, sizes)
    d = Add(c, a)
    e = MatMul(d, w)
    cast = Cast <to = 7> (b)
    h = Where(n, e, x)
    i = Softmax <axis = 2> (h)
    j = Mul(i, early)
    y = Relu(j)
}"""


def model_of(text: str) -> ModelProto:
    model = parser.parse_model(_HEADER + text)
    for index, node in enumerate(model.graph.node):
        node.name = f"node{index}"
    if model.graph.value_info:
        weight = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
        model.graph.initializer.append(numpy_helper.from_array(weight, model.graph.value_info.pop().name))
    return shape_inference.infer_shapes(model, data_prop=True)


def operators(parts: list[ModelProto]) -> list[list[str]]:
    return [[node.op_type for node in part.graph.node] for part in parts]


def canonical(bytecode: bytes) -> str:
    """The module as text with constants and weights where they are used: only their places depend on the parts."""
    module = ir.Module.parse(bytecode, ir.Context())
    run_passes(module, "builtin.module(util.func(canonicalize,cse),symbol-dce)")
    text = str(module)
    constants = dict(re.findall(r"(%\w+) = (?:arith\.constant|util\.global\.load) (.*)", text))
    lines = (line for line in text.splitlines() if not re.search(r" = (arith\.constant|util\.global\.load) ", line))
    return re.sub(r"%\w+", lambda found: constants.get(found[0], found[0]), "\n".join(lines))


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_parts_are_joined_to_what_the_whole_is(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(_BRANCHES)
    whole = import_model(model)
    assert len(cut_into_parts(model, nodes)) > 1
    monkeypatch.setattr(onnx_import, "cut_into_parts", partial(cut_into_parts, nodes=nodes))
    parts = import_model(model)
    assert canonical(parts.bytecode) == canonical(whole.bytecode)
    assert parts.weights.keys() == whole.weights.keys()


def test_sizes_are_not_cut_from_what_reads_them() -> None:
    found = operators(cut_into_parts(model_of(_BRANCHES), 1))
    assert ["Shape", "Reshape"] in found
    assert [len(each) for each in found] == [1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1]


def test_what_has_no_place_to_cut_is_whole() -> None:
    text = "(float[4] x) => (float[4] y) { a = Cast <to = 16> (x) b = Relu(a) c = Relu(b) y = Cast <to = 1> (c) }"
    model = model_of(text)
    assert cut_into_parts(model, 1) == [model], "bfloat16 is not passed"


def test_an_output_that_a_part_does_not_compute_is_imported_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("(float[4] x) => (float[4] y, float[4] same) { a = Relu(x) y = Neg(a) same = Identity(x) }")
    whole = import_model(model)
    monkeypatch.setattr(onnx_import, "cut_into_parts", partial(cut_into_parts, nodes=1))
    assert import_model(model).bytecode == whole.bytecode


def chain(nodes: int, path: Path) -> Path:
    """A network of convolutions, Relus and additions in turn, as long as wanted."""
    weights = np.random.default_rng(0).standard_normal((nodes, 4, 4, 1, 1)).astype(np.float32)
    made, tensors, last = [], [], "x"
    for index in range(nodes):
        kind, name = ("Conv", "Relu", "Add")[index % 3], f"v{index}"
        operands = {"Conv": [last, f"w{index}"], "Relu": [last], "Add": [last, f"v{index - 3}" if index > 2 else "x"]}
        made.append(helper.make_node(kind, operands[kind], [name], name=f"node{index}"))
        tensors += [numpy_helper.from_array(weights[index], f"w{index}")] if kind == "Conv" else []
        last = name
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4, 4, 4]) for name in ("x", last)]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def importing(path: Path, found: list[ImportedModel]) -> None:
    imported = imported_model(path)
    found.append(imported)


def counted(work: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C."""
    calls = 0

    def count(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event.endswith("call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_importing_takes_steps_in_proportion_to_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, as times depend on the machine: every step of a quadratic pass is a call of something."""
    monkeypatch.setattr(onnx_import, "cut_into_parts", partial(cut_into_parts, nodes=75))
    lengths = (225, 450, 1500)
    files = [chain(nodes, tmp_path / f"{nodes}.onnx") for nodes in lengths]
    run_import(files[0], {}, None)
    found: list[ImportedModel] = []
    calls = [counted(partial(importing, path, found)) for path in files]
    assert [each.node_count for each in found] == [*lengths]
    few = (calls[1] - calls[0]) / (lengths[1] - lengths[0])
    many = (calls[2] - calls[1]) / (lengths[2] - lengths[1])
    assert many < 1.15 * few
