"""What is not a sound ONNX file is refused with its own message, before anything else sees it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.errors import SartorError, UnsupportedModelError, UsageError
from sartor.onnx_model.reading.load import load_model
from tests.plugin.onnx_model.builders import FLOAT, model, node, weights
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.conftest import Prepare

Load = Callable[[ModelProto | bytes], ModelProto]


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
        (lambda m: setattr(m.graph.node[0], "op_type", "Adder"), r"node 'add' \(Adder\) is not an operator"),
        (lambda m: setattr(m.graph.node[0], "domain", "org.example"), "operator set 'org.example'"),
        (lambda m: setattr(m.graph.node[0], "domain", "com.microsoft"), "ONNX Runtime operator"),
        (lambda m: m.graph.ClearField("output"), "no outputs"),
        (lambda m: m.graph.initializer[0].segment.SetInParent(), "segments"),
    ],
)
def test_damaged_model(broken: Callable[[ModelProto], None], message: str, save_and_load: Load) -> None:
    built = _sound()
    broken(built)
    with pytest.raises(UnsupportedModelError, match=message):
        save_and_load(built)


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


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([_function("A", ["B"]), _function("B", ["A"])], "calls itself"),
        ([_function("A", ["A"])], "calls itself"),
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
