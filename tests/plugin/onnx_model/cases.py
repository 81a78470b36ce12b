"""Tiny models, one per form that a rewrite has to handle; each is compared with ONNX Runtime before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, INT64, Cases, Value, X, ints, model, node, weights
from tests.plugin.onnx_model.contrib_cases import CONTRIB_CASES
from tests.plugin.onnx_model.fused_cases import FUSED_CASES
from tests.plugin.onnx_model.image_cases import IMAGE_CASES
from tests.plugin.onnx_model.sampling_cases import SAMPLING_CASES
from tests.plugin.onnx_model.sequence_cases import SEQUENCE_CASES

CASES = Cases({**IMAGE_CASES, **SAMPLING_CASES, **CONTRIB_CASES, **FUSED_CASES, **SEQUENCE_CASES})

# Matrix products with vectors.
for left, right in (((5,), (2, 5, 3)), ((2, 3, 4, 5), (5,)), ((4, 5), (5,)), ((5,), (5, 3))):
    CASES.add(
        f"matmul_{len(left)}d_{len(right)}d",
        [node("MatMul", ["a", "b"], ["y"])],
        [("a", left, FLOAT), ("b", right, FLOAT)],
        ["y"],
    )


# Recurrent operators.
def _recurrent(
    operator: str, gates: int, direction: str, *, bare: bool = False, layout: int = 0, **options: Any
) -> ModelProto:
    directions, hidden, width, steps, batch = (2 if direction == "bidirectional" else 1), 4, 3, 5, 2
    source = (batch, steps, width) if layout else (steps, batch, width)
    inputs: list[Value] = [("x", source, FLOAT)]
    constants = {
        "w": weights(directions, gates * hidden, width),
        "r": weights(directions, gates * hidden, hidden, seed=1),
    }
    names = ["x", "w", "r"]
    if not bare:
        state = (batch, directions, hidden) if layout else (directions, batch, hidden)
        constants["b"] = weights(directions, 2 * gates * hidden, seed=2)
        constants["lengths"] = np.full(batch, steps, np.int32)
        inputs.append(("h", state, FLOAT))
        names += ["b", "lengths", "h"]
        if operator == "LSTM":
            inputs.append(("c", state, FLOAT))
            constants["p"] = weights(directions, 3 * hidden, seed=3)
            names += ["c", "p"]
    outputs = ["y", "last", "memory"] if operator == "LSTM" else ["y", "last"]
    options = {"direction": direction, "hidden_size": hidden, **({"layout": layout} if layout else {}), **options}
    return model([node(operator, names, outputs, **options)], inputs, list(outputs), constants)


for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    for direction in ("forward", "reverse", "bidirectional"):
        CASES[f"{operator}_{direction}"] = lambda o=operator, g=gates, d=direction: _recurrent(o, g, d)  # type: ignore[misc]
        CASES[f"{operator}_{direction}_bare"] = lambda o=operator, g=gates, d=direction: _recurrent(o, g, d, bare=True)  # type: ignore[misc]
CASES["GRU_linear_before_reset"] = lambda: _recurrent("GRU", 3, "bidirectional", linear_before_reset=1)
CASES["LSTM_clip"] = lambda: _recurrent("LSTM", 4, "forward", clip=0.5)
CASES["LSTM_coupled"] = lambda: _recurrent("LSTM", 4, "bidirectional", input_forget=1)
CASES["RNN_relu"] = lambda: _recurrent("RNN", 1, "forward", activations=["Relu"])

# Weights that are inputs.
for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    CASES.add(
        f"{operator}_computed_weights",
        [node(operator, ["x", "w", "r", "b"], ["y"], hidden_size=4)],
        [
            ("x", (5, 2, 3), FLOAT),
            ("w", (1, 4 * gates, 3), FLOAT),
            ("r", (1, 4 * gates, 4), FLOAT),
            ("b", (1, 8 * gates), FLOAT),
        ],
        ["y"],
    )

# Transforms, scans and moves that are written out.
CASES.add("dft", [node("DFT", ["x"], ["y"], axis=1)], [("x", (2, 12, 3, 2), FLOAT)], ["y"])
CASES.add("dft_half", [node("DFT", ["x"], ["y"], axis=1, onesided=1)], [("x", (2, 12, 1), FLOAT)], ["y"])
CASES.add("dft_inverse", [node("DFT", ["x"], ["y"], axis=1, inverse=1)], [("x", (2, 9, 2), FLOAT)], ["y"])
CASES.add(
    "stft",
    [node("STFT", ["x", "step", "window"], ["y"])],
    [("x", (2, 40, 1), FLOAT)],
    ["y"],
    {"step": np.int64(5), "window": np.abs(weights(16))},
)
CASES.add(
    "stft_plain",
    [node("STFT", ["x", "step", "window"], ["y"], onesided=1)],
    [("x", (2, 40), FLOAT)],
    ["y"],
    {"step": np.int64(5), "window": np.abs(weights(16))},
)
CASES.add(
    "stft_of_declared_half",
    [node("STFT", ["x", "step", "window"], ["y"])],
    [("x", (2, 40, 1), FLOAT)],
    [("y", (2, 5, 9, 2), FLOAT)],
    {"step": np.int64(5), "window": np.abs(weights(16))},
)
CASES.add(
    "slice_from_far_below",
    [node("Slice", ["x", "first", "end", "axis", "back"], ["y"])],
    X,
    ["y"],
    {"first": ints(-10), "end": ints(-20), "axis": ints(3), "back": ints(-1)},
)
CASES.add(
    "max_pool_indices_rounded_up",
    [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)],
    [("x", (1, 2, 2, 5), FLOAT)],
    ["y", ("i", None, INT64)],
)
CASES.add(
    "log_sum_of_one_integer",
    [node("ReduceLogSum", ["x"], ["y"], axes=[1])],
    [("x", (4, 1), TensorProto.INT32)],
    [("y", None, TensorProto.INT32)],
)
CASES.add(
    "convtranspose_grouped_longer_than_natural",
    [node("ConvTranspose", ["x", "w"], ["y"], group=2, strides=[3, 2], output_shape=[10, 8])],
    [("x", (1, 4, 3, 3), FLOAT)],
    ["y"],
    {"w": weights(4, 3, 3, 3)},
)
CASES.add(
    "resize_antialias",
    [node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1)],
    [("x", (1, 2, 9, 8), FLOAT)],
    ["y"],
    {"sizes": ints(1, 2, 4, 5)},
    opset=18,
)
CASES.add(
    "resize_crop",
    [
        node(
            *("Resize", ["x", "roi", "", "sizes"], ["y"]),
            mode="linear",
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.0,
        )
    ],
    [("x", (1, 2, 9, 8), FLOAT)],
    ["y"],
    {"roi": np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], np.float32), "sizes": ints(1, 2, 4, 5)},
    opset=18,
)
CASES.add(
    "reverse_sequence",
    [node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=0, batch_axis=1)],
    [("x", (5, 3, 2), FLOAT)],
    ["y"],
    {"lengths": ints(5, 1, 3)},
)
CASES.add("det", [node("Det", ["x"], ["y"])], [("x", (4, 4), FLOAT)], ["y"])

# Float16 sums.
HALF: list[Value] = [("x", (2, 8, 13, 13), FLOAT16)]
for half_operator, half_options in (
    ("GlobalAveragePool", {}),
    ("AveragePool", {"kernel_shape": [5, 5]}),
    ("Softmax", {"axis": 1}),
    ("ReduceMean", {"axes": [2, 3]}),
):
    CASES.add(
        f"float16_{half_operator}", [node(half_operator, ["x"], ["y"], **half_options)], HALF, [("y", None, FLOAT16)]
    )

# Written out: IREE lowers them to something else, or not at all.
CASES.add("softsign_before_its_body", [node("Softsign", ["x"], ["y"])], X, ["y"], opset=17)
CASES.add("gelu_tanh", [node("Gelu", ["x"], ["y"], approximate="tanh")], X, ["y"], opset=20)
CASES.add("mean_of_four", [node("Mean", ["x", "x", "x", "x"], ["y"])], X, ["y"])
for variadic in ("Max", "Min", "Sum", "Mean"):
    CASES.add(
        f"{variadic}_of_different_shapes",
        [node(variadic, ["row", "x", "deep", "row"], ["y"])],
        X,
        ["y"],
        {"row": weights(9, seed=1), "deep": weights(2, 1, 3, 7, 9, seed=2)},
    )

for norm in ("ReduceL1", "ReduceL2", "ReduceLogSumExp"):
    for keeps in (0, 1):
        CASES.add(
            f"{norm}_of_one_{keeps}",
            [node("Unsqueeze", ["x", "axis"], ["single"]), node(norm, ["single", "axis"], ["y"], keepdims=keeps)],
            X,
            ["y"],
            {"axis": ints(-1)},
            opset=18,
        )

# Standard operators with a function body.
CASES.add(
    "attention_standard",
    [node("Attention", ["q", "k", "v"], ["y"], is_causal=1)],
    [(name, (1, 2, 5, 4), FLOAT) for name in "qkv"],
    ["y"],
    opset=23,
)
CASES.add("rms_normalization", [node("RMSNormalization", ["x", "s"], ["y"])], X, ["y"], {"s": weights(9)}, opset=23)
CASES.add("swish", [node("Swish", ["x"], ["y"])], X, ["y"], opset=24)

# Integer operators.
CASES.add(
    "convinteger_padded",
    [node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 1, 0, 2])],
    [("x", (1, 2, 5, 6), TensorProto.UINT8)],
    [("y", None, TensorProto.INT32)],
    {"w": np.random.default_rng(0).integers(0, 255, (3, 2, 3, 3), dtype=np.uint8), "z": np.uint8(7)},
)
for wide in (np.uint16, np.int16):
    CASES.add(
        f"quantize_{wide.__name__}",
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        X,
        ["y"],
        {"s": np.float32(1e-4), "z": wide(1000)},
        opset=21,
    )
CASES.add(
    "dequantize_last_block_smaller",
    [node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=4), node("MatMul", ["x", "w"], ["y"])],
    [("x", (3, 7), FLOAT)],
    ["y"],
    {
        "q": np.random.default_rng(0).integers(-128, 127, (7, 5), dtype=np.int8),
        "s": np.random.default_rng(1).uniform(0.01, 0.02, (2, 5)).astype(np.float32),
    },
    opset=21,
)
CASES.add(
    "dequantize_blocked",
    [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=4), node("MatMul", ["x", "w"], ["y"])],
    [("x", (3, 8), FLOAT)],
    ["y"],
    {
        "q": np.random.default_rng(0).integers(-128, 127, (8, 5), dtype=np.int8),
        "s": np.abs(weights(2, 5)),
        "z": np.random.default_rng(1).integers(-9, 9, (2, 5), dtype=np.int8),
    },
    opset=21,
)

# Batch normalisation.
_NORM = {"g": weights(6, seed=5), "b": weights(6, seed=6), "m": weights(6, seed=7), "v": np.abs(weights(6, seed=8))}
_NORM_NODE = node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"], epsilon=1e-3)
CASES.add(
    "norm_after_conv",
    [node("Conv", ["x", "w"], ["c"], group=3), _NORM_NODE],
    X,
    ["y"],
    {"w": weights(6, 1, 3, 3), **_NORM},
)
CASES.add(
    "norm_after_conv_bias",
    [node("Conv", ["x", "w", "cb"], ["c"]), _NORM_NODE],
    X,
    ["y"],
    {"w": weights(6, 3, 1, 1), "cb": weights(6, seed=9), **_NORM},
)
CASES.add(
    "norm_after_convtranspose",
    [node("ConvTranspose", ["x", "w"], ["c"], group=3), _NORM_NODE],
    X,
    ["y"],
    {"w": weights(3, 2, 3, 3), **_NORM},
)
CASES.add(
    "norm_after_gemm",
    [node("Gemm", ["x", "w", "cb"], ["c"], transB=1, alpha=0.5), _NORM_NODE],
    [("x", (4, 5), FLOAT)],
    ["y"],
    {"w": weights(6, 5), "cb": weights(6), **_NORM},
)
CASES.add(
    "norm_of_shared_conv",
    [node("Conv", ["x", "w"], ["c"]), _NORM_NODE, node("Relu", ["c"], ["z"])],
    X,
    ["y", "z"],
    {"w": weights(6, 3, 1, 1), **_NORM},
)


# Conditionals.
def _conditional() -> ModelProto:
    """The condition follows from a shape; the branches read an outer value and an initialiser of their own."""
    then = helper.make_graph(
        [node("Add", ["x", "k"], ["t"], name="then_add"), node("Relu", ["t"], ["u"], name="then_relu")],
        "then",
        [],
        [helper.make_tensor_value_info("u", FLOAT, None)],
        [numpy_helper.from_array(np.array(2, np.float32), "k")],
    )
    other = helper.make_graph(
        [node("Identity", ["x"], ["e"], name="else_identity")],
        "else",
        [],
        [helper.make_tensor_value_info("e", FLOAT, None)],
    )
    return model(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "i"], ["n"]),
            node("Equal", ["n", "seven"], ["c"]),
            node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        ],
        X,
        ["y"],
        {"i": np.int64(2), "seven": np.int64(7)},
    )


CASES["if_of_shape"] = _conditional

# A norm of zero: the first row of the first image.
for order in (1, 2):
    CASES.add(
        f"lp_normalization_{order}",
        [node("Mul", ["x", "zero"], ["z"]), node("LpNormalization", ["z"], ["y"], p=order, axis=3)],
        X,
        ["y"],
        {"zero": np.concatenate([np.zeros((1, 9)), np.ones((6, 9))]).astype(np.float32)},
    )

CASES.add(
    "mod_by_infinity",
    [node("Mod", ["x", "by"], ["y"], fmod=1)],
    X,
    ["y"],
    {"by": np.asarray([np.inf, 3, -np.inf, 0.5, -2, np.inf, 7, -0.25, 1], np.float32)},
)

# What IREE computes with signs.
_BYTES: list[Value] = [("x", (2, 3, 7, 9), TensorProto.UINT8)]
for operator, operands in (("Clip", ["lo", "hi"]), ("Div", ["hi"]), ("Mod", ["hi"])):
    CASES.add(
        f"uint8_{operator}",
        [node(operator, ["x", *operands], ["y"])],
        _BYTES,
        [("y", None, TensorProto.UINT8)],
        {"lo": np.uint8(20), "hi": np.uint8(200)},
    )
CASES.add(
    "uint8_maxpool",
    [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3], pads=[1, 0, 0, 1])],
    _BYTES,
    [("y", None, TensorProto.UINT8)],
)
CASES.add(
    "uint8_topk",
    [node("TopK", ["x", "k"], ["y", "i"], axis=3)],
    _BYTES,
    [("y", None, TensorProto.UINT8), ("i", None, TensorProto.INT64)],
    {"k": ints(4)},
)
CASES.add(
    "uint8_from_float",
    [node("Cast", ["x"], ["f"], to=FLOAT), node("Cast", ["f"], ["y"], name="back", to=TensorProto.UINT8)],
    _BYTES,
    [("y", None, TensorProto.UINT8)],
)
CASES.add("uint8_abs", [node("Abs", ["x"], ["y"])], _BYTES, [("y", None, TensorProto.UINT8)])

# Empty names behind the last operand, as exporters write operands that are left out.
CASES.add("left_out_conv", [node("Conv", ["x", "w", ""], ["y"])], X, ["y"], {"w": weights(2, 3, 2, 2)})
CASES.add("left_out_pad", [node("Pad", ["x", "p", ""], ["y"])], X, ["y"], {"p": ints(0, 0, 1, 1, 0, 0, 1, 2)})
for reduction in ("max", "min"):
    CASES.add(
        f"scatter_elements_{reduction}_to_a_corner",
        [node("ScatterElements", ["x", "i", "u"], ["y"], axis=1, reduction=reduction)],
        [("x", (4, 5, 3), FLOAT)],
        ["y"],
        {"i": ints(0, 4, -1, 2, 2, 0, 1, 1, 3, 0, 2, 4).reshape(2, 3, 2), "u": weights(2, 3, 2)},
        opset=18,
    )
CASES.add(
    "dropout_with_mask",
    [node("Dropout", ["x"], ["d", "kept"]), node("Where", ["kept", "d", "w"], ["y"])],
    X,
    ["y"],
    {"w": weights(1)},
)
for equation in ("ij,jk", "bA,A->b", "...i,i", "zy, yx", "ii"):
    CASES.add(
        f"einsum_{equation}",
        [node("Einsum", ["x", "w"] if "," in equation else ["x"], ["y"], equation=equation)],
        [("x", (4, 4), FLOAT)],
        ["y"],
        {"w": weights(4) if equation in ("bA,A->b", "...i,i") else weights(4, 4)} if "," in equation else {},
    )
CASES.add(
    "dropout_of_none",
    [node("Dropout", ["x", "ratio", "training"], ["d"]), node("Relu", ["d"], ["y"])],
    X,
    ["y"],
    {"ratio": np.float32(0), "training": np.bool_(True)},
)
CASES.add("left_out_dropout", [node("Dropout", ["x", "", ""], ["d"]), node("Relu", ["d"], ["y"])], X, ["y"])
CASES.add(
    "left_out_resize", [node("Resize", ["x", "", "s", ""], ["y"])], X, ["y"], {"s": np.array([1, 1, 2, 2], np.float32)}
)
CASES.add(
    "left_out_slice", [node("Slice", ["x", "l", "m", "", ""], ["y"])], X, ["y"], {"l": ints(0, 1), "m": ints(1, 3)}
)

# Sums of nothing, and results without elements, which are parts of others.
CASES.add(
    "sums_of_nothing",
    [node("Slice", ["x", "n", "n", "last"], ["e"]), node("MatMul", ["e", "w"], ["s"]), node("Add", ["s", "b"], ["y"])],
    X,
    ["y"],
    {"n": ints(0), "last": ints(3), "w": np.zeros((0, 4), np.float32), "b": weights(1, 1, 1, 4)},
)

# ONNX checks its types by a function body, which reads the axes.
for mvn_name, mvn_options in (("", {}), ("_axes", {"axes": [2, 3]})):
    CASES.add(f"mean_variance{mvn_name}", [node("MeanVarianceNormalization", ["x"], ["y"], **mvn_options)], X, ["y"])
