"""Models that ONNX Runtime cannot run whole are computed in parts, also in bodies, functions and narrow types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, helper
from onnx.reference import ReferenceEvaluator

from sartor.errors import UnsupportedModelError, UsageError
from sartor.reference.trusted.oracles.attention import attention
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.standard import run_node
from sartor.reference.trusted.oracles.table import is_vouched_by_definitions
from sartor.reference.trusted.parts.control_flow import CONTROL_FLOW, Bodies
from sartor.reference.trusted.parts.division import UncoveredError
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Array, ints, model, node, weights

_EMBEDDED = {"w": weights(9, 4), "i": ints(1, 8, 3)}


def _embedding(output: str, name: str = "embedding") -> NodeProto:
    return node("TorchEmbedding", ["w", "i"], [output], domain=MS, name=name)


def _with_contrib(built: ModelProto) -> ModelProto:
    """A model that imports ONNX Runtime's operators, also if only a body has any."""
    if not any(each.domain == MS for each in built.opset_import):
        built.opset_import.append(helper.make_opsetid(MS, 1))
    return built


def _run(built: ModelProto, feeds: dict[str, Array]) -> tuple[list[Array], str]:
    reference = ReferenceModel(_with_contrib(built).SerializeToString())
    return reference(feeds), reference.described


def _evaluated(built: ModelProto, feeds: dict[str, Array]) -> Array:
    """The first output by ONNX's evaluator."""
    found: Any = ReferenceEvaluator(built).run(None, feeds)
    return np.asarray(found[0])


def test_parts_pass_values_on() -> None:
    nodes = [node("Exp", ["x"], ["e"]), _embedding("r"), node("Add", ["e", "r"], ["s"]), node("Neg", ["s"], ["y"])]
    x = weights(3, 4)
    (y,), described = _run(model(nodes, [("x", (3, 4), FLOAT)], ["y"], _EMBEDDED), {"x": x})
    np.testing.assert_allclose(y, -(np.exp(x) + _EMBEDDED["w"][[1, 8, 3]]), rtol=1e-6)
    assert described == "ONNX Runtime and the definition of TorchEmbedding"


def test_nodes_whose_results_nobody_reads_are_not_run() -> None:
    nodes = [node("Exp", ["x"], ["e"]), _embedding("r"), node("Neg", ["e"], ["unread"]), _embedding("y", "last")]
    (y,), described = _run(model(nodes, [("x", (3, 4), FLOAT)], ["y"], _EMBEDDED), {"x": weights(3, 4)})
    np.testing.assert_array_equal(y, _EMBEDDED["w"][[1, 8, 3]])
    assert described == "ONNX Runtime and the definition of TorchEmbedding"


def test_who_did_not_run_is_not_named() -> None:
    built = model([_embedding("y")], [], ["y"], _EMBEDDED)
    (y,), described = _run(built, {})
    np.testing.assert_array_equal(y, _EMBEDDED["w"][[1, 8, 3]])
    assert described == "the definition of TorchEmbedding"


def test_a_model_that_onnx_runtime_runs_is_run_whole() -> None:
    built = model([node("Exp", ["x"], ["y"])], [("x", (3,), FLOAT)], ["y"])
    reference = ReferenceModel(built.SerializeToString())
    assert (reference.described, reference.own) == ("ONNX Runtime", ())


@pytest.mark.parametrize("is_then", [True, False])
def test_definitions_in_branches(is_then: bool) -> None:
    returned = [helper.make_tensor_value_info("z", FLOAT, [3, 4])]
    branches = {
        "then_branch": helper.make_graph([_embedding("r"), node("Add", ["r", "x"], ["z"])], "then", [], returned),
        "else_branch": helper.make_graph([node("Neg", ["x"], ["z"])], "else", [], returned),
    }
    nodes = [node("If", ["c"], ["a"], **branches), node("Abs", ["a"], ["y"])]
    inputs = [("x", (3, 4), FLOAT), ("c", (), TensorProto.BOOL)]
    x = weights(3, 4, seed=2)
    (y,), described = _run(model(nodes, inputs, ["y"], _EMBEDDED), {"x": x, "c": np.asarray(is_then)})
    np.testing.assert_allclose(y, np.abs(x + _EMBEDDED["w"][[1, 8, 3]]) if is_then else np.abs(x), rtol=1e-6)
    assert described == "ONNX Runtime and the definition of TorchEmbedding"


@pytest.mark.parametrize("count", [0, 3])
def test_definitions_in_loops(count: int) -> None:
    body = helper.make_graph(
        [
            _embedding("r"),
            node("Add", ["s", "r"], ["t"]),
            node("Identity", ["c"], ["d"]),
            node("ReduceSum", ["t"], ["o"], keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("n", INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, [3, 4]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", FLOAT, [3, 4]),
            helper.make_tensor_value_info("o", FLOAT, []),
        ],
    )
    nodes = [node("Loop", ["m", "", "x"], ["y", "sums"], body=body)]
    x = weights(3, 4, seed=2)
    built = model(nodes, [("x", (3, 4), FLOAT), ("m", (), INT64)], ["y", "sums"], _EMBEDDED)
    (y, sums), _ = _run(built, {"x": x, "m": np.asarray(count, np.int64)})
    added = _EMBEDDED["w"][[1, 8, 3]]
    np.testing.assert_allclose(y, x + count * added, rtol=1e-5)
    np.testing.assert_allclose(sums, [(x + number * added).sum() for number in range(1, count + 1)], rtol=1e-4)


@pytest.mark.parametrize("back", [0, 1])
def test_definitions_in_scans(back: int) -> None:
    body = helper.make_graph(
        [
            _embedding("r"),
            node("ReduceSum", ["r"], ["q"], keepdims=0),
            node("Mul", ["v", "q"], ["p"]),
            node("Add", ["s", "v"], ["t"]),
        ],
        "body",
        [helper.make_tensor_value_info("s", FLOAT, [2]), helper.make_tensor_value_info("v", FLOAT, [2])],
        [helper.make_tensor_value_info("t", FLOAT, [2]), helper.make_tensor_value_info("p", FLOAT, [2])],
    )
    scan = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_input_directions": [back], "scan_output_axes": [1]}
    nodes = [node("Scan", ["a", "x"], ["total", "y"], body=body, **scan)]
    x, a = weights(2, 5, seed=2), weights(2, seed=3)
    built = model(nodes, [("a", (2,), FLOAT), ("x", (2, 5), FLOAT)], ["total", "y"], _EMBEDDED)
    (total, y), _ = _run(built, {"a": a, "x": x})
    np.testing.assert_allclose(total, a + x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(y, (x[:, ::-1] if back else x) * _EMBEDDED["w"][[1, 8, 3]].sum(), rtol=1e-4)


def test_definitions_in_functions() -> None:
    function = helper.make_function(
        "own", "F", ["w", "i"], ["o"], [_embedding("r"), node("Neg", ["r"], ["o"])],
        [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)],
    )  # fmt: skip
    built = model([helper.make_node("F", ["w", "i"], ["y"], domain="own")], [], ["y"], _EMBEDDED)
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("own", 1))
    (y,), _ = _run(built, {})
    np.testing.assert_array_equal(y, -_EMBEDDED["w"][[1, 8, 3]])


def test_functions_have_their_defaults() -> None:
    norm = node("SimplifiedLayerNormalization", ["x", "w"], ["y"], domain=MS)
    norm.attribute.append(AttributeProto(name="epsilon", ref_attr_name="smallest", type=AttributeProto.FLOAT))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    default = helper.make_attribute("smallest", 2.0)
    function = helper.make_function("own", "F", ["x", "w"], ["y"], [norm], imports, attribute_protos=[default])
    x, scale = weights(3, 4), weights(4, seed=1)
    built = model([helper.make_node("F", ["x", "w"], ["y"], domain="own")], [("x", (3, 4), FLOAT)], ["y"], {"w": scale})
    built.functions.append(function)
    built.opset_import.append(helper.make_opsetid("own", 1))
    (y,), _ = _run(built, {"x": x})
    np.testing.assert_allclose(y, x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 2) * scale, rtol=1e-5)


def test_nodes_in_any_order() -> None:
    branch = helper.make_graph(
        [node("Add", ["r", "x"], ["t"], name="sum"), _embedding("r")],
        "branch",
        [],
        [helper.make_value_info("t", TypeProto())],
    )
    nodes = [
        node("Neg", ["s"], ["y"]),
        node("If", ["c"], ["s"], then_branch=branch, else_branch=branch),
        node("Cast", ["n"], ["c"], to=TensorProto.BOOL),
    ]
    inputs = [("x", (3, 4), FLOAT), ("n", (), INT64)]
    x = weights(3, 4)
    (y,), _ = _run(model(nodes, inputs, ["y"], _EMBEDDED), {"x": x, "n": np.array(1)})
    np.testing.assert_array_equal(y, -(_EMBEDDED["w"][[1, 8, 3]] + x))


def test_weights_in_another_file(tmp_path: Path) -> None:
    table = weights(3000, 4)
    nodes = [node("TorchEmbedding", ["w", "i"], ["r"], domain=MS), node("MatMul", ["r", "v"], ["y"])]
    constants = {"w": table, "i": ints(1, 2000), "v": weights(4, 600)}
    built = model(nodes, [], ["y"], constants)
    onnx.save(built, tmp_path / "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=100)
    (y,) = ReferenceModel(tmp_path / "net.onnx")({})
    np.testing.assert_allclose(y, table[[1, 2000]] @ constants["v"], rtol=1e-4, atol=1e-5)


def test_a_product_in_bfloat16_is_rounded_once() -> None:
    bfloat = TensorProto.BFLOAT16
    nodes = [
        node("Cast", ["x"], ["b"], to=bfloat),
        node("MatMul", ["b", "w"], ["p"]),
        node("Cast", ["p"], ["y"], name="back", to=FLOAT),
    ]
    w, x = weights(32, 8).astype(ml_dtypes.bfloat16), weights(4, 32, seed=1)
    (y,), described = _run(model(nodes, [("x", (4, 32), FLOAT)], ["y"], {"w": w}), {"x": x})
    exact = x.astype(ml_dtypes.bfloat16).astype(np.float64) @ w.astype(np.float64)
    assert np.abs(y - exact).max() <= 2.0**-8 * np.abs(exact).max()
    np.testing.assert_array_equal(y, y.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert described == "ONNX Runtime and the definition of MatMul"


def test_results_in_bfloat16_without_a_name_keep_their_place() -> None:
    wide = {"w": weights(1, 12, 5), "r": weights(1, 12, 3)}
    tables = {name: value.astype(ml_dtypes.bfloat16) for name, value in wide.items()}
    nodes = [
        node("Cast", ["x"], ["n"], to=TensorProto.BFLOAT16),
        node("LSTM", ["n", "w", "r"], ["", "h"], hidden_size=3),
        node("Cast", ["h"], ["y"], to=FLOAT),
    ]
    x = weights(4, 2, 5)
    (y,), _ = _run(model(nodes, [("x", (4, 2, 5), FLOAT)], ["y"], tables, opset=14), {"x": x})
    rounded = {"x": x, **wide}
    exact = {name: value.astype(ml_dtypes.bfloat16).astype(np.float32) for name, value in rounded.items()}
    (right,) = run_node(node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=3), exact, {"": 14})
    np.testing.assert_allclose(y, right, rtol=2.0**-8)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
def test_a_cast_to_four_bits_drops_the_fraction(kind: int) -> None:
    nodes = [node("Cast", ["x"], ["i"], to=kind), node("Cast", ["i"], ["y"], name="back", to=FLOAT)]
    built = model(nodes, [("x", (6,), FLOAT)], ["y"], opset=21)
    x = np.array([0.5, 1.5, 2.9, 6.99, 3.0, 0.0], np.float32)
    x = x if kind == TensorProto.UINT4 else x * np.float32(-1) ** np.arange(6, dtype=np.float32)
    (y,), _ = _run(built, {"x": x})
    np.testing.assert_array_equal(y, _evaluated(built, {"x": x}))
    np.testing.assert_array_equal(y, np.trunc(x))


def test_a_cast_to_the_type_of_four_bits_drops_the_fraction() -> None:
    nodes = [node("CastLike", ["x", "t"], ["i"]), node("Cast", ["i"], ["y"], name="back", to=FLOAT)]
    built = model(nodes, [("x", (3,), FLOAT)], ["y"], opset=21)
    built.graph.initializer.append(helper.make_tensor("t", TensorProto.INT4, [1], [1]))
    (y,), described = _run(built, {"x": np.array([1.7, -2.6, 3.5], np.float32)})
    np.testing.assert_array_equal(y, [1, -2, 3])
    assert described == "ONNX Runtime and the definition of CastLike"


def test_a_mask_that_is_shorter_than_the_keys() -> None:
    built = model(
        [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])],
        [
            ("q", (2, 4, 3, 8), FLOAT),
            ("k", (2, 2, 6, 8), FLOAT),
            ("v", (2, 2, 6, 8), FLOAT),
            ("m", (2, 1, 3, 4), FLOAT),
        ],
        ["y"],
        opset=24,
    )
    built.ir_version = 11
    sizes = {"q": (2, 4, 3, 8), "k": (2, 2, 6, 8), "v": (2, 2, 6, 8), "m": (2, 1, 3, 4)}
    feeds = {name: weights(*size, seed=number) for number, (name, size) in enumerate(sizes.items())}
    (y,), described = _run(built, feeds)
    cut = {**feeds, "k": feeds["k"][:, :, :4], "v": feeds["v"][:, :, :4]}
    np.testing.assert_allclose(y, _evaluated(built, cut), rtol=1e-5, atol=1e-6)
    assert described == "the definition of Attention"


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("has_past", [False, True])
@pytest.mark.parametrize("mask", ["", "bool", "float"])
def test_attention_is_as_onnx_runtime_has_it(mask: str, has_past: bool, is_flat: bool) -> None:
    for mode, is_causal, cap in itertools.product((0, 1, 2, 3), (0, 1), (0.0, 2.0)):
        settings: dict[str, Any] = {"qk_matmul_output_mode": mode, "is_causal": is_causal, "softcap": cap}
        settings |= {"q_num_heads": 4, "kv_num_heads": 2} if is_flat else {}
        values = _attended(mask, has_past=has_past, is_flat=is_flat)
        names = ["q", "k", "v", *(name if name in values else "" for name in ("m", "p", "r"))]
        outputs = ["y", *(["keys", "values"] if has_past else ["", ""]), "scores"]
        item = helper.make_node("Attention", names, outputs, **settings)
        right = run_node(item, values, {"": 24})
        found = attention(Call(item, [values.get(name) for name in names], 24))
        wanted = [value for name, value in zip(outputs, found, strict=True) if name]
        for own, known in zip(wanted, right, strict=True):
            finite = np.isfinite(own)
            np.testing.assert_allclose(own[finite], known[finite], rtol=1e-4, atol=1e-5)


def _attended(mask: str, *, has_past: bool, is_flat: bool) -> dict[str, Array]:
    """Operands of Attention: 2 entries, 4 heads of queries, 2 of keys, 3 queries, 5 keys, and 2 of the past."""
    total = 7 if has_past else 5
    values = {"q": weights(2, 4, 3, 8), "k": weights(2, 2, 5, 8, seed=1), "v": weights(2, 2, 5, 8, seed=2)}
    if is_flat:
        values = {name: value.swapaxes(1, 2).reshape(2, value.shape[2], -1) for name, value in values.items()}
    if mask:
        bias = weights(2, 1, 3, total, seed=3)
        values["m"] = bias > -0.5 if mask == "bool" else bias
    if has_past:
        values |= {"p": weights(2, 2, 2, 8, seed=4), "r": weights(2, 2, 2, 8, seed=5)}
    return values


@pytest.mark.parametrize(("activation", "alpha"), [("Relu", 0.0), ("LeakyRelu", 0.3), ("Elu", 1.0)])
def test_fused_activations_that_the_kernels_refuse(activation: str, alpha: float) -> None:
    constants = {
        "w": weights(8, 5),
        "c": weights(5),
        "f": weights(4, 3, 3, 3),
        "b": weights(4),
        "z": weights(1, 4, 3, 3),
    }
    settings = {"activation": activation} | ({"activation_alpha": alpha} if alpha else {})
    gemm = node("FusedGemm", ["x", "w", "c"], ["y"], domain=MS, alpha=0.5, beta=2.0, **settings)
    parameters = {"activation_params": [alpha]} if alpha else {}
    conv = node("FusedConv", ["i", "f", "b", "z"], ["v"], domain=MS, activation=activation, **parameters)
    inputs = [("x", (3, 8), FLOAT), ("i", (1, 3, 5, 5), FLOAT)]
    attributes = {"alpha": alpha} if alpha else {}
    plain = [
        node("Gemm", ["x", "w", "c"], ["g"], alpha=0.5, beta=2.0),
        node(activation, ["g"], ["y"], name="first", **attributes),
        node("Conv", ["i", "f", "b"], ["t"]),
        node("Add", ["t", "z"], ["s"]),
        node(activation, ["s"], ["v"], name="second", **attributes),
    ]
    feeds = {"x": weights(3, 8, seed=5), "i": weights(1, 3, 5, 5, seed=6)}
    found, _ = _run(model([gemm, conv], inputs, ["y", "v"], constants), feeds)
    right, described = _run(model(plain, inputs, ["y", "v"], constants), feeds)
    assert described == "ONNX Runtime"
    for own, known in zip(found, right, strict=True):
        np.testing.assert_allclose(own, known, rtol=1e-5, atol=1e-6)


def test_nobody_is_trusted_with_an_unknown_operator() -> None:
    item = node("IsAllFinite", ["x"], ["y"], domain=MS)
    built = model([item], [("x", (3, 4), FLOAT)], [("y", None, TensorProto.BOOL)])
    with pytest.raises(UncoveredError, match=r"node 'isallfinite' .* has no reference that results can be checked"):
        ReferenceModel(built.SerializeToString())


def test_what_a_kernel_refuses_is_not_valid() -> None:
    built = model([node("LRN", ["x"], ["y"], size=4)], [("x", (1, 2, 3, 4), FLOAT)], ["y"])
    with pytest.raises(UnsupportedModelError, match=r"it requires size % 2 == 1"):
        ReferenceModel(built.SerializeToString())


def test_an_operand_that_is_no_index_is_named() -> None:
    built = model(
        [_embedding("r"), node("Add", ["r", "x"], ["y"])],
        [("x", (3, 4), FLOAT), ("i", (3,), INT64)],
        ["y"],
        {"w": weights(9, 4)},
    )
    with pytest.raises(UsageError, match=r"node 'embedding' \(com\.microsoft\.TorchEmbedding\)"):
        _run(built, {"x": weights(3, 4), "i": ints(1, 2, 99)})


def _in_constant(value: TensorProto) -> ModelProto:
    return model([node("Constant", [], ["y"], value=value)], [], ["y"])


def _in_body(value: TensorProto) -> ModelProto:
    body = helper.make_graph([node("Identity", ["w"], ["r"])], "body", [], [helper.make_value_info("r", TypeProto())])
    body.initializer.append(value)
    branches = {"then_branch": body, "else_branch": body}
    return model([node("If", ["x"], ["y"], **branches)], [("x", (), TensorProto.BOOL)], ["y"])


def _in_output(value: TensorProto) -> ModelProto:
    return model([node("Identity", ["x"], ["y"])], [("x", (2,), FLOAT)], [("y", None, value.data_type)])


@pytest.mark.parametrize("build", [_in_constant, _in_body, _in_output])
@pytest.mark.parametrize(("kind", "is_vouched"), [(TensorProto.BFLOAT16, True), (FLOAT, False)])
def test_bfloat16_is_found_wherever_it_is(
    build: Callable[[TensorProto], ModelProto], kind: int, is_vouched: bool
) -> None:
    assert is_vouched_by_definitions(build(helper.make_tensor("w", kind, [2], [1.0, 2.0]))) == is_vouched


def test_scans_of_batches_are_refused_by_name() -> None:
    bodies = Bodies(node("Scan", ["", "x"], ["y"], name="scan"), {}, 8)
    with pytest.raises(UnsupportedModelError, match=r"node 'scan' \(Scan\) of opset 8"):
        CONTROL_FLOW["Scan"](bodies, [None, weights(1, 2, 3)], {})
