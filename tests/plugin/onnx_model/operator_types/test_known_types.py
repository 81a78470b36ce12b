"""The results of ONNX Runtime's operators have known types and shapes, in each type that the schemas allow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.onnx_model.graphs.graph import GraphEditor
from sartor.onnx_model.graphs.infer import check_shapes, infer_shapes
from sartor.onnx_model.operator_types.schemas import CONTRIB_DOMAIN, Schema, schemas
from sartor.onnx_model.rewrites.operator_sets.expand_operators import CONTRIB_OPERATORS, expand_operators
from sartor.runtime.reference import ORT_ERRORS
from tests.plugin.onnx_model.operator_types.samples import SAMPLES, Sample

# Of numbers in 4 and 8 bits with a fraction no operator has a kernel.
_SUPPORTED = frozenset(
    getattr(TensorProto, name)
    for name in (
        *("BFLOAT16", "BOOL", "DOUBLE", "FLOAT", "FLOAT16"),
        *("INT4", "INT8", "INT16", "INT32", "INT64", "UINT4", "UINT8", "UINT16", "UINT32", "UINT64"),
    )
)


def _choices(schema: Schema, sample: Sample) -> Iterator[dict[str, int]]:
    """Element types by type name: each that a name may stand for, with the first of every other name."""
    kinds = {name: allowed for name, allowed in (*schema.allowed.items(), *sample.allowed.items()) if allowed}
    usual = {name: allowed[0] for name, allowed in kinds.items()}
    yield usual
    for name, allowed in kinds.items():
        for kind in allowed[1:]:
            if kind in _SUPPORTED:
                yield usual | {name: kind}


def _built(operator: str, sample: Sample, schema: Schema, kinds: dict[str, int]) -> ModelProto:
    """A model of the node alone, whose results are not described."""
    names, inputs, constants = [], [], []
    for index, operand in enumerate(sample.operands):
        name = "" if operand is None else f"operand{index}"
        names.append(name)
        kind = kinds[sample.names[index] if sample.names else schema.operand(index)]
        if isinstance(operand, np.ndarray):
            values = operand.astype(helper.tensor_dtype_to_np_dtype(kind))
            constants.append(numpy_helper.from_array(values, name))
        elif operand is not None:
            inputs.append(helper.make_tensor_value_info(name, kind, operand))
    results = [f"result{index}" for index in range(sample.results)]
    node = helper.make_node(operator, names, results, "node", domain=CONTRIB_DOMAIN, **sample.attributes)
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB_DOMAIN, 1)]
    graph = helper.make_graph([node], "graph", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _cases() -> Iterator[tuple[str, dict[str, int]]]:
    for operator in sorted(CONTRIB_OPERATORS):
        for kinds in _choices(schemas()[CONTRIB_DOMAIN, operator], SAMPLES[operator]):
            yield operator, kinds


def _label(value: object) -> str:
    if isinstance(value, dict):
        return "-".join(f"{name}_{TensorProto.DataType.Name(kind).lower()}" for name, kind in sorted(value.items()))
    return str(value)


def _described(model: ModelProto) -> list[tuple[str, tuple[int, ...] | None]]:
    editor = GraphEditor(model.graph)
    return [
        (
            TensorProto.DataType.Name(editor.element_type(output.name)).lower(),
            editor.shape(output.name),
        )
        for output in model.graph.output
    ]


@pytest.mark.parametrize(("operator", "kinds"), _cases(), ids=_label)
def test_types_and_shapes_of_all_results_are_those_of_onnx_runtime(operator: str, kinds: dict[str, int]) -> None:
    sample = SAMPLES[operator]
    model = _built(operator, sample, schemas()[CONTRIB_DOMAIN, operator], kinds)
    infer_shapes(model)
    described = _described(model)
    assert all(kind != "undefined" and shape is not None for kind, shape in described)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except ORT_ERRORS:
        return
    expected = [
        (output.type.removeprefix("tensor(").removesuffix(")"), tuple(output.shape)) for output in session.get_outputs()
    ]
    assert described == expected


@pytest.mark.parametrize(("operator", "kinds"), _cases(), ids=_label)
def test_lowerings_know_the_types_that_they_ask_for(operator: str, kinds: dict[str, int]) -> None:
    """And keep those of the results."""
    model = _built(operator, SAMPLES[operator], schemas()[CONTRIB_DOMAIN, operator], kinds)
    infer_shapes(model)
    before = _described(model)
    expand_operators(model)
    del model.graph.value_info[:]
    infer_shapes(model)
    check_shapes(model)
    assert _described(model) == before
