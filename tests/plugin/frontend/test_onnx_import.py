"""Import: weights stay arrays, and what cannot be imported is refused by the first node that is."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.codegen.mlir.iree_compiler import translate_bytecode
from sartor.errors import CompileError, UnsupportedModelError
from sartor.frontend import onnx_import
from sartor.frontend.onnx_import import import_model
from sartor.frontend.onnx_parts import first_refused
from tests.tiny_models import Builder, blocks, constant_output, residual


def test_weights_are_the_initialisers() -> None:
    model = residual()
    expected = [numpy_helper.to_array(initializer) for initializer in model.graph.initializer]
    found = import_model(model).weights
    assert len(found) == len(expected)
    assert all(np.array_equal(one, other) for one, other in zip(found.values(), expected, strict=True))


def test_values_may_be_called_as_weights_are() -> None:
    b = Builder()
    first = b.op("Relu", "w1", b.conv("w0", "w2", (3, 16)))
    b.op("Relu", "y", b.conv("conv", first, (16, 8)))
    imported = import_model(b.model([("w2", (1, 3, 4, 4))], [("y", (1, 8, 4, 4))]))
    assert [weight.shape for weight in imported.weights.values()] == [(16, 3, 3, 3), (16,), (8, 16, 3, 3), (8,)]


def test_weights_may_be_described_by_names_that_weights_get() -> None:
    tensors = {"w1": np.ones((2, 3), np.float32), "w0": np.ones(3, np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["p"]), helper.make_node("Add", ["p", "w0"], ["y"])]
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, tensor.shape) for name, tensor in tensors.items()
    ]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    weights = [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()]
    graph = helper.make_graph(nodes, "net", [value], [result], weights, value_info=described)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert [weight.shape for weight in import_model(built).weights.values()] == [(2, 3), (3,)]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_half_floats_stored_as_integers_are_imported(kind: int) -> None:
    weight = helper.make_tensor("w", kind, [3], [1.0, 2.0, 3.0])
    assert weight.int32_data
    x, y = (helper.make_tensor_value_info(name, kind, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"], name="add")], "graph", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (found,) = import_model(model).weights.values()
    assert found.astype(np.float32).tolist() == [1, 2, 3]


def test_the_model_is_not_changed() -> None:
    model = blocks()
    import_model(model)
    assert model == blocks()


def test_importing_twice_gives_the_same_bytes() -> None:
    assert import_model(blocks()).bytecode == import_model(blocks()).bytecode


def test_an_op_that_iree_does_not_know_is_named() -> None:
    b = Builder()
    b.op("StringNormalizer", "y", "x")
    with pytest.raises(UnsupportedModelError, match="StringNormalizer"):
        import_model(b.model([("x", (2, 3))], [("y", (2, 3))]))


def test_bits_of_complex_numbers_are_refused_by_name() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [2, 3])
    result = helper.make_tensor_value_info("y", TensorProto.INT64, [2, 3])
    cast = helper.make_node("BitCast", ["x"], ["y"], name="odd", to=TensorProto.INT64)
    model = helper.make_model(
        helper.make_graph([cast], "graph", [value], [result]), opset_imports=[helper.make_opsetid("", 26)]
    )
    with pytest.raises(UnsupportedModelError, match=r"node 'odd' \(BitCast\) is not .*complex64"):
        import_model(model)


def test_an_output_that_is_an_initialiser_is_imported() -> None:
    model = constant_output()
    constant = model.graph.initializer[0]
    del model.graph.node[1]
    constant.name = "fixed"
    assert import_model(model).bytecode


def test_outputs_that_are_initialisers_may_be_called_as_weights_are() -> None:
    """They were given each other's values."""
    tensors = {"w1": np.full((2, 3), 1, np.float32), "w0": np.full((2, 3), 2, np.float32)}
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("y", *tensors)]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    initialisers = [numpy_helper.from_array(tensor, name) for name, tensor in tensors.items()]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], results, initialisers)
    renamed, weights = onnx_import._with_safe_names(helper.make_model(graph))
    found = {
        node.output[0]: weights[node.input[0]].tolist() for node in renamed.graph.node if node.op_type == "Identity"
    }
    assert found == {name: tensor.tolist() for name, tensor in tensors.items()}
    assert not found.keys() & weights.keys(), "a name has two values"


def test_an_output_of_constants_alone_is_imported() -> None:
    assert import_model(constant_output()).bytecode


def test_what_iree_rejects_is_told_in_the_words_of_onnx() -> None:
    b = Builder()
    b.op("Cast", "y", "x", to=TensorProto.FLOAT8E4M3FN)
    model = b.model([("x", (2, 3))], [("y", (2, 3))], output_dtype=TensorProto.FLOAT8E4M3FN)
    with pytest.raises(UnsupportedModelError) as refused:
        import_model(model)
    assert str(refused.value) == (
        "node 'y' (Cast) is not supported: IREE 3.13 has no lowering for it from float32[2, 3] to float8_e4m3fn[2, 3]; "
        "replace the operator before exporting"
    )


@pytest.mark.parametrize(
    ("operator", "operands", "attributes", "reason"),
    [
        ("Conv", [(4, 3, 3, 3)], {"group": 3}, "Input channels C is not equal to kernel channels * group."),
        ("Conv", [(4, 5, 3, 3)], {}, "Input channels C is not equal to kernel channels * group."),
        ("Conv", [(4, 3, 3, 3), (5,)], {}, "bias must be a 1D tensor"),
        ("PRelu", [(4, 1, 1)], {}, "broadcast an axis by a dimension other than 1"),
        ("LayerNormalization", [(5,)], {}, "must match X.shape[axis:]"),
    ],
)
def test_what_iree_rejects_and_is_not_valid_is_told_with_the_reason(
    operator: str, operands: list[tuple[int, ...]], attributes: dict[str, int], reason: str
) -> None:
    b = Builder()
    b.op(operator, "y", "x", *(b.weight(*shape) for shape in operands), **attributes)
    with pytest.raises(UnsupportedModelError) as rejected:
        import_model(b.model([("x", (1, 3, 6, 6))], [("y", (1, 4, 4, 4) if operator == "Conv" else (1, 3, 6, 6))]))
    said = str(rejected.value)
    assert said.startswith(f"node 'y' ({operator}) is not valid: ")
    assert reason in said
    assert said.endswith("; export the model again")
    assert "%" not in said


def _amid_others(operator: str, kind: int, **attributes: object) -> ModelProto:
    """A node with others before it and behind it."""
    names = ["x", "first", "second", "asked", "fourth", "y"]
    operators = ["Abs", "Neg", operator, "Neg", "Abs"]
    nodes = [
        helper.make_node(each, [names[index]], [names[index + 1]], name=names[index + 1])
        for index, each in enumerate(operators)
    ]
    for name, value in attributes.items():
        nodes[2].attribute.append(helper.make_attribute(name, value))
    values = [helper.make_tensor_value_info(name, kind, [2, 3]) for name in ("x", "y")]
    values[1].type.tensor_type.ClearField("shape")
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_node_is_named_where_what_iree_makes_of_it_has_no_location() -> None:
    with pytest.raises(UnsupportedModelError, match=r"^node 'asked' \(ReduceMean\) is not supported"):
        import_model(_amid_others("ReduceMean", TensorProto.INT32, axes=[1]))


@pytest.mark.parametrize(
    ("operator", "kind", "attributes"),
    [
        ("StringNormalizer", TensorProto.FLOAT, {}),
        ("ReduceMean", TensorProto.INT32, {"axes": [0]}),
        ("Cast", TensorProto.FLOAT, {"to": TensorProto.FLOAT8E4M3FN}),
    ],
)
def test_a_node_is_named_if_diagnostics_have_no_locations(
    operator: str, kind: int, attributes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locations(source: str | bytes, flags: Sequence[str], *, to: str) -> bytes:
        try:
            return translate_bytecode(source, flags, to=to)
        except CompileError as error:
            raise CompileError(re.sub(r'loc\("[^"]*"\)', "loc(unknown)", str(error).partition("\n")[0])) from None

    monkeypatch.setattr(onnx_import, "translate_bytecode", without_locations)
    with pytest.raises(UnsupportedModelError) as refused:
        import_model(_amid_others(operator, kind, **attributes))
    assert str(refused.value).startswith(f"node 'asked' ({operator}) is ")


_LENGTH = 100


def _chain(length: int) -> ModelProto:
    nodes = [helper.make_node("Neg", [f"v{index}"], [f"v{index + 1}"], name=f"n{index}") for index in range(length)]
    values = [helper.make_tensor_value_info(f"v{index}", TensorProto.FLOAT, [2]) for index in range(length + 1)]
    graph = helper.make_graph(nodes, "graph", values[:1], values[-1:], value_info=values[1:-1])
    return helper.make_model(graph)


@pytest.mark.parametrize("faulty", [0, 1, 49, 50, 98, 99])
def test_the_first_refused_node_is_found(faulty: int) -> None:
    tried = []

    def is_refused(model: ModelProto) -> bool:
        tried.append(len(model.graph.node))
        assert [each.name for each in model.graph.output] == [model.graph.node[-1].output[0]]
        return any(node.name == f"n{faulty}" for node in model.graph.node)

    found = first_refused(_chain(_LENGTH), is_refused)
    assert found is not None
    assert found.name == f"n{faulty}"
    assert len(tried) <= math.ceil(math.log2(_LENGTH))


@pytest.mark.parametrize("faulty", [0, 1999, 3999])
def test_a_long_model_is_never_tried_whole(faulty: int) -> None:
    def is_refused(model: ModelProto) -> bool:
        assert len(model.graph.node) <= 2000
        return any(node.name == f"n{faulty}" for node in model.graph.node)

    found = first_refused(_chain(4000), is_refused)
    assert found is not None
    assert found.name == f"n{faulty}"


def test_a_model_without_nodes_has_none() -> None:
    assert first_refused(_chain(0), lambda _: True) is None
