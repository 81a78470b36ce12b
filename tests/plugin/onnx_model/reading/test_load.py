"""What is not a sound ONNX file is refused with its own message, before anything else sees it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.errors import SartorError, UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.limits import MAX_NESTING
from sartor.onnx_model.graphs.wire import nesting
from sartor.onnx_model.reading.load import load_model
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.conftest import Load, Prepare


def _sound() -> ModelProto:
    return model([node("Add", ["x", "w"], ["y"])], [("x", (2, 3), FLOAT)], ["y"], {"w": weights(2, 3)})


def test_sound_model_loads(save_and_load: Load) -> None:
    assert save_and_load(_sound()) == _sound()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello world, this is no model", "is not an ONNX model"),
        (b"PK\x03\x04" + b"\0" * 60, "is not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (_sound().SerializeToString()[:-20], "is truncated"),
        (helper.make_tensor_value_info("x", FLOAT, [1]).SerializeToString(), "is not an ONNX model"),
        (b"\x08\x08", "has no graph"),
    ],
)
def test_wrong_file(content: bytes, message: str, save_and_load: Load) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        save_and_load(content)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        load_model(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="is not a file"):
        load_model(tmp_path)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    for path in (tmp_path / "\udcff.onnx", tmp_path / "\udcff" / "model.onnx"):
        with pytest.raises(UsageError, match="that is not UTF-8; rename it"):
            load_model(path)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda m: m.graph.initializer[0].ClearField("raw_data"), "has 0 values of data where its shape .* needs 6"),
        (lambda m: m.graph.initializer[0].dims.append(2**31), "impossible shape"),
        (lambda m: m.graph.initializer[0].dims.append(-1), "impossible shape"),
        (lambda m: m.graph.initializer[0].dims.extend([2**30, 2**30, 2**30]), "more than the"),
        (lambda m: setattr(m.graph.initializer[0], "raw_data", b"1234567"), "has 7 bytes of data"),
        (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "unknown element type 99"),
        (lambda m: setattr(m.opset_import[0], "version", 9999), "opset 9999"),
        (lambda m: setattr(m.opset_import[0], "version", 0), "opset 0"),
        (lambda m: setattr(m.opset_import[0], "domain", "org.example"), "declares no version"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Loop"), r"node 'add' \(Loop\) lacks the attribute 'body'"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Cast"), r"node 'add' \(Cast\) lacks the attribute 'to'"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Adder"), r"node 'add' \(Adder\) is not an operator"),
        (lambda m: setattr(m.graph.node[0], "domain", "org.example"), "operator set 'org.example'"),
        (lambda m: setattr(m.graph.node[0], "domain", "com.microsoft"), "ONNX Runtime operator"),
        (lambda m: m.graph.ClearField("output"), "no outputs"),
        (lambda m: m.graph.initializer[0].segment.SetInParent(), "segments"),
        (lambda m: m.graph.ClearField("input"), r"node 'add' \(Add\) reads 'x', which nothing computes"),
        (lambda m: m.graph.node[0].input.append("z"), r"node 'add' \(Add\) reads 'z', which nothing computes"),
        (lambda m: setattr(m.graph.output[0], "name", "z"), "nothing computes the output 'z'"),
        (lambda m: setattr(m.graph.output[0], "name", ""), "output 0 of the model has no name"),
        (lambda m: setattr(m.graph.input[0], "name", ""), "input 0 of the model has no name"),
        (lambda m: setattr(m.graph.initializer[0], "name", ""), "constant 0 of the model has no name"),
        (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "two constants of the model are called 'w'"),
        (lambda m: m.graph.input.append(m.graph.input[0]), "two inputs of the model are called 'x'"),
        (lambda m: m.graph.output.append(m.graph.output[0]), "two outputs of the model are called 'y'"),
        (lambda m: m.graph.node.append(m.graph.node[0]), "'y', which another node computes too"),
        (
            lambda m: m.graph.node[0].output.__setitem__(0, "x"),
            r"node 'add' \(Add\) computes 'x', which is given as well",
        ),
        (lambda m: m.ClearField("opset_import"), "declares no opset; export"),
    ],
)
def test_damaged_model(broken: Callable[[ModelProto], None], message: str, save_and_load: Load) -> None:
    built = _sound()
    broken(built)
    with pytest.raises(UnsupportedModelError, match=message):
        save_and_load(built)


def test_a_branch_that_returns_a_value_twice_is_refused(save_and_load: Load) -> None:
    """ONNX Runtime loads it, and gives one of the results only."""
    body = helper.make_graph(
        [node("Sin", ["x"], ["a"])], "body", [], [helper.make_tensor_value_info("a", FLOAT, [3])] * 2
    )
    branches = node("If", ["c"], ["y", "z"], then_branch=body, else_branch=body)
    built = model([branches], [("x", (3,), FLOAT), ("c", (), TensorProto.BOOL)], ["y", "z"])
    with pytest.raises(UnsupportedModelError, match=r"node 'if' \(If\) has a body that returns 'a' twice"):
        save_and_load(built)


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_norms_that_onnx_runtime_writes_without_its_domain_are_taken(operator: str, save_and_load: Load) -> None:
    built = model([node(operator, ["x", "g"], ["y"])], [("x", (2, 3), FLOAT)], ["y"], {"g": weights(3)}, opset=14)
    assert save_and_load(built).graph.node[0].op_type == operator


@pytest.mark.parametrize(("training", "refused"), [(True, True), (False, False)])
def test_dropout_is_refused_in_training_alone(
    training: bool, refused: bool, save_and_load: Load, prepare_quickly: Prepare
) -> None:
    constants = {"ratio": np.float32(0.5), "training": np.bool_(training)}
    built = model([node("Dropout", ["x", "ratio", "training"], ["y"])], [("x", (2, 3), FLOAT)], ["y"], constants)
    with pytest.raises(UnsupportedModelError, match=r"'dropout' \(Dropout\) draws") if refused else nullcontext():
        prepare_quickly(save_and_load(built))


@pytest.mark.parametrize(
    ("nodes", "constants", "message"),
    [
        ([node("MatMul", ["x", "w"], ["y"])], {"w": weights(8, 4)}, r"\(MatMul\) contradicts .*Incompatible"),
        ([node("Add", ["x", "w"], ["y"])], {"w": np.ones(9, np.int64)}, r"\(Add\) contradicts .*inconsistent type"),
        ([node("Concat", ["x", "w"], ["y"], axis=0)], {"w": weights(3, 8)}, r"\(Concat\) contradicts .*Inferred=8"),
        ([node("Gather", ["x", "i"], ["y"], axis=5)], {"i": np.array([0])}, r"\(Gather\) contradicts .*axis must be"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    nodes: list[NodeProto], constants: dict[str, object], message: str, save_and_load: Load, prepare_quickly: Prepare
) -> None:
    built = model(nodes, [("x", (3, 9), FLOAT)], ["y"], constants)
    with pytest.raises(UnsupportedModelError, match=message):
        prepare_quickly(save_and_load(built))


def test_constants_may_be_repeated(save_and_load: Load, prepare_quickly: Prepare) -> None:
    values = [numpy_helper.from_array(np.full(3, number, np.float32)) for number in (1, 2)]
    nodes = [node("Constant", [], ["c"], value=value, name=f"c{index}") for index, value in enumerate(values)]
    built = model([*nodes, node("Add", ["x", "c"], ["y"])], [("x", (3,), FLOAT)], ["y"])
    prepared = prepare_quickly(save_and_load(built))
    (constant,) = prepared.model.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(constant), [2, 2, 2])
    built.graph.node.append(node("Neg", ["x"], ["c"]))
    with pytest.raises(UnsupportedModelError, match=r"\(Neg\) computes 'c', which another node computes too"):
        save_and_load(built)


def _nested(depth: int) -> ModelProto:
    """Conditionals within each other, each of which takes the outer value or one that it computes."""
    body = [node("Neg", ["x"], ["v0"], name="innermost")]
    for level in range(depth):
        inner = helper.make_graph(body, f"body{level}", [], [helper.make_tensor_value_info(f"v{level}", FLOAT, [2])])
        name = f"if{level}"
        body = [node("If", ["c"], [f"v{level + 1}"], then_branch=inner, else_branch=inner, name=name)]
    return model(body, [("x", (2,), FLOAT), ("c", (), TensorProto.BOOL)], [f"v{depth}"])


def test_conditionals_may_lie_within_each_other_up_to_a_depth(save_and_load: Load) -> None:
    sound, deep, damaged = _sound().SerializeToString(), _nested(5).SerializeToString(), b"\x3a\x05no"
    assert [nesting(memoryview(each)) for each in (sound, deep, damaged)] == [0, 5, 0]
    assert save_and_load(deep) == _nested(5)


def test_deeper_conditionals_are_refused_as_such(save_and_load: Load) -> None:
    """Written by hand, as protobuf does not read what it writes: each level holds one node with one body."""
    content = b""
    for _ in range(MAX_NESTING + 4):
        for field in (6, 5, 1):
            content = bytes([field << 3 | 2]) + _varint(len(content)) + content
    content = b"\x3a" + _varint(len(content)) + content
    with pytest.raises(UnsupportedModelError, match=f"more than {MAX_NESTING} deep.*flatten the branches"):
        save_and_load(content)


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


def test_bodies_see_what_is_around_them(save_and_load: Load) -> None:
    inner = helper.make_graph(
        [node("Neg", ["h"], ["n"])], "inner", [], [helper.make_tensor_value_info("n", FLOAT, [2])]
    )
    outer = model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner), node("Abs", ["x"], ["h"])],
        [("x", (2,), FLOAT), ("c", (), TensorProto.BOOL)],
        ["y"],
    )
    assert save_and_load(outer) == outer
    outer.graph.node[1].output[0] = "other"
    with pytest.raises(UnsupportedModelError, match=r"node 'neg' \(Neg\) reads 'h', which nothing computes"):
        save_and_load(outer)


def test_functions_see_their_parameters_alone(save_and_load: Load) -> None:
    function = _function("F", ["Relu"])
    function.node[0].input[0] = "outside"
    with pytest.raises(UnsupportedModelError, match=r"\(Relu\) reads 'outside', which nothing computes"):
        save_and_load(_calling(function))
    function = _function("F", ["Relu"])
    function.output[0] = "z"
    with pytest.raises(UnsupportedModelError, match="nothing computes the result 'z' of function 'F'"):
        save_and_load(_calling(function))


def test_a_circle_is_named(save_and_load: Load, prepare_quickly: Prepare) -> None:
    built = model([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"])], [("x", (2,), FLOAT)], ["b"])
    with pytest.raises(UnsupportedModelError, match=r"node 'add' \(Add\) depends on its own result"):
        prepare_quickly(save_and_load(built))


def test_text_that_is_not_text(save_and_load: Load) -> None:
    with pytest.raises(UnsupportedModelError, match="not valid text"):
        save_and_load(_sound().SerializeToString().replace(b"add", b"\xff\xfe\xfd"))


def _function(name: str, calls: list[str]) -> FunctionProto:
    body: list[NodeProto] = []
    last = "x"
    for index, called in enumerate(calls):
        output = "y" if index == len(calls) - 1 else f"t{index}"
        body.append(helper.make_node(called, [last], [output], domain="" if called == "Relu" else "local"))
        last = output
    return helper.make_function(
        "local", name, ["x"], ["y"], body, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    )


def _calling(*functions: FunctionProto) -> ModelProto:
    built = model([node(functions[0].name, ["x"], ["y"], domain="local")], [("x", (2,), FLOAT)], ["y"])
    built.functions.extend(functions)
    built.opset_import.append(helper.make_opsetid("local", 1))
    return built


def test_functions_are_inlined(save_and_load: Load, prepare_quickly: Prepare) -> None:
    loaded = save_and_load(_calling(_function("Outer", ["Inner", "Relu"]), _function("Inner", ["Relu"])))
    prepared = prepare_quickly(loaded)
    assert [item.op_type for item in prepared.model.graph.node] == ["Relu", "Relu"]
    assert not prepared.model.functions


def test_defaults_of_functions_attributes(save_and_load: Load, prepare_quickly: Prepare) -> None:
    slope = helper.make_node("LeakyRelu", ["x"], ["y"])
    slope.attribute.add(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    opset = [helper.make_opsetid("", 17)]
    defaults = [helper.make_attribute("slope", 0.25)]
    function = helper.make_function("local", "F", ["x"], ["y"], [slope], opset, attribute_protos=defaults)
    built = _calling(function)
    built.graph.node.append(helper.make_node("F", ["y"], ["z"], domain="local", slope=0.5))
    built.graph.output[0].name = "z"
    prepared = prepare_quickly(save_and_load(built))
    assert [item.attribute[0].f for item in prepared.model.graph.node] == [0.25, 0.5]


def test_defaults_behind_attributes_that_a_call_leaves_out(save_and_load: Load, prepare_quickly: Prepare) -> None:
    slope = helper.make_node("LeakyRelu", ["x"], ["y"])
    slope.attribute.add(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT)
    call = helper.make_node("Inner", ["x"], ["y"], domain="local")
    call.attribute.add(name="slope", ref_attr_name="given", type=AttributeProto.FLOAT)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    defaults = [helper.make_attribute("slope", 0.25)]
    inner = helper.make_function("local", "Inner", ["x"], ["y"], [slope], opsets, attribute_protos=defaults)
    built = _calling(helper.make_function("local", "Outer", ["x"], ["y"], [call], opsets, ["given"]), inner)
    built.graph.node.append(helper.make_node("Outer", ["y"], ["z"], domain="local", given=0.5))
    built.graph.output[0].name = "z"
    prepared = prepare_quickly(save_and_load(built))
    assert [item.attribute[0].f for item in prepared.model.graph.node] == [0.25, 0.5]


def test_operands_that_calls_leave_out(save_and_load: Load, prepare_quickly: Prepare) -> None:
    body = [helper.make_node("Clip", ["x", "low"], ["y"])]
    function = helper.make_function("local", "F", ["x", "low"], ["y"], body, [helper.make_opsetid("", 17)])
    prepared = prepare_quickly(save_and_load(_calling(function)))
    assert [list(item.input) for item in prepared.model.graph.node] == [["x"]]


def test_functions_that_nothing_calls_may_be_anything(save_and_load: Load, prepare_quickly: Prepare) -> None:
    other = _function("G", ["Relu"])
    other.node[0].op_type = "Nonsense"
    loaded = save_and_load(_calling(_function("F", ["Relu"]), other))
    assert [item.op_type for item in prepare_quickly(loaded).model.graph.node] == ["Relu"]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([_function("A", ["B"]), _function("B", ["A"])], "calls itself"),
        ([_function("A", ["A"])], "calls itself"),
        ([_function("A", ["Relu"]), _function("A", ["Relu"])], "defines the function 'A' twice"),
        ([*(_function(f"F{i}", [f"F{i + 1}"] * 2) for i in range(40)), _function("F40", ["Relu"])], "expands to"),
        ([*(_function(f"F{i}", [f"F{i + 1}"]) for i in range(5000)), _function("F5000", ["Relu"])], "deep"),
    ],
)
def test_functions_without_end(functions: list[FunctionProto], message: str, save_and_load: Load) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        save_and_load(_calling(*functions))


def test_value_too_large_names_the_node(save_and_load: Load, prepare_quickly: Prepare) -> None:
    size = {"shape": np.array([2**20, 2**20], np.int64)}
    built = model([node("Expand", ["x", "shape"], ["y"])], [("x", (1, 1), FLOAT)], ["y"], size)
    with pytest.raises(UnsupportedModelError, match=r"node 'expand' \(Expand\) computes a value of"):
        prepare_quickly(save_and_load(built))


def test_sparse_tensor_outside_its_shape(save_and_load: Load, prepare_quickly: Prepare) -> None:
    built = model([node("Add", ["x", "s"], ["y"])], [("x", (4,), FLOAT)], ["y"])
    values, rows = numpy_helper.from_array(np.ones(1, np.float32), "s"), numpy_helper.from_array(np.array([9]), "i")
    built.graph.sparse_initializer.append(helper.make_sparse_tensor(values, rows, [4]))
    with pytest.raises(UnsupportedModelError, match="indices outside its shape"):
        prepare_quickly(save_and_load(built))


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_never_escapes_as_another_error(seed: int, save_and_load: Load, prepare_quickly: Prepare) -> None:
    """Flip, delete and insert bytes; every outcome is a prepared model or one of the product's errors."""
    randomness = random.Random(seed)
    names = ["conv_SAME_UPPER", "if_of_shape", "LSTM_bidirectional_bare", "ms_attention_mask", "pad_reflect"]
    originals = [CASES[name]().SerializeToString() for name in names]
    refused = 0
    for _ in range(120):
        data = bytearray(randomness.choice(originals))
        for _ in range(randomness.randint(1, 3)):
            place = randomness.randrange(len(data))
            data[place : place + randomness.randint(0, 2)] = randomness.randbytes(randomness.randint(0, 2))
        try:
            prepare_quickly(save_and_load(bytes(data)))
        except SartorError:
            refused += 1
    assert refused > 20


def test_tensors_in_every_corner_are_checked(save_and_load: Load) -> None:
    """An attribute tensor with too little data, two control-flow levels down."""
    short = TensorProto(name="deep", data_type=FLOAT, dims=[4], raw_data=b"1234")
    inner = helper.make_graph([node("Constant", [], ["c"], value=short)], "inner", [], [])
    middle = helper.make_graph([node("If", ["b"], ["c"], then_branch=inner, else_branch=inner)], "middle", [], [])
    built = model(
        [node("If", ["b"], ["y"], then_branch=middle, else_branch=middle)], [("b", (), TensorProto.BOOL)], ["y"]
    )
    with pytest.raises(UnsupportedModelError, match=r"tensor 'deep' of node 'constant' \(Constant\) has 4 bytes"):
        save_and_load(built)
