"""Tiny models, one per form that a rewrite has to handle; each is compared with ONNX Runtime before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.plugin.onnx_model.builders import FLOAT, FLOAT16, MS, Array, Value, model, node, weights

CASES: dict[str, Callable[[], ModelProto]] = {}
X: list[Value] = [("x", (2, 3, 7, 9), FLOAT)]


def _add(name: str, *arguments: Any, **options: Any) -> None:
    assert name not in CASES
    CASES[name] = lambda: model(*arguments, **options)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


# Windows, borders and transposed convolutions.
for mode in ("SAME_UPPER", "SAME_LOWER"):
    _add(
        f"conv_{mode}",
        [node("Conv", ["x", "w"], ["y"], auto_pad=mode, strides=[2, 3])],
        X,
        ["y"],
        {"w": weights(4, 3, 3, 2)},
    )
    _add(
        f"maxpool_{mode}", [node("MaxPool", ["x"], ["y"], auto_pad=mode, kernel_shape=[3, 2], strides=[2, 2])], X, ["y"]
    )
    _add(
        f"convtranspose_{mode}",
        [node("ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, strides=[2, 2])],
        X,
        ["y"],
        {"w": weights(3, 4, 3, 3)},
    )
for stride, kernel, extra in (
    ([2, 2], [2, 2], [0, 0]),
    ([3, 2], [4, 3], [1, 1]),
    ([1, 1], [3, 3], [0, 0]),
    ([3, 3], [1, 2], [0, 1]),
):
    for group in (1, 3):
        _add(
            f"convtranspose_g{group}_s{stride[0]}{stride[1]}_k{kernel[0]}{kernel[1]}",
            [
                node(
                    "ConvTranspose",
                    ["x", "w", "b"],
                    ["y"],
                    group=group,
                    strides=stride,
                    output_padding=extra,
                    kernel_shape=kernel,
                )
            ],
            X,
            ["y"],
            {"w": weights(3, 2, *kernel), "b": weights(2 * group)},
        )
_add(
    "convtranspose_grouped_pads_dilations",
    [node("ConvTranspose", ["x", "w"], ["y"], group=3, strides=[2, 1], pads=[1, 0, 0, 2], dilations=[1, 2])],
    X,
    ["y"],
    {"w": weights(3, 1, 3, 3)},
)
_add(
    "convtranspose_output_shape",
    [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], output_shape=[13, 17])],
    X,
    ["y"],
    {"w": weights(3, 1, 3, 3)},
)
for size, kernel_size, stride_size, padding in ((2, 3, 2, 1), (5, 3, 3, 0), (4, 2, 3, 0)):
    one: list[Value] = [("x", (1, 4, size, 6), FLOAT)]
    options: dict[str, Any] = {
        "kernel_shape": [kernel_size, 1],
        "strides": [stride_size, 1],
        "pads": [padding, 0, padding, 0],
    }
    _add(
        f"one_window_conv_{size}",
        [node("Conv", ["x", "w"], ["y"], **options)],
        one,
        ["y"],
        {"w": weights(2, 4, kernel_size, 1)},
    )
    _add(f"one_window_maxpool_{size}", [node("MaxPool", ["x"], ["y"], **options)], one, ["y"])
    _add(
        f"one_window_averagepool_{size}",
        [node("AveragePool", ["x"], ["y"], count_include_pad=1, **options)],
        one,
        ["y"],
    )
for name, shape, options in (
    ("padded", (2, 3, 7, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("dilated", (2, 3, 7, 9), {"kernel_shape": [2, 3], "dilations": [2, 3]}),
    ("ceil", (1, 2, 7, 9), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("same", (2, 3, 7, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ("columns", (2, 2, 5, 6), {"kernel_shape": [2, 2], "strides": [2, 2], "storage_order": 1}),
    ("line", (2, 3, 8), {"kernel_shape": [3], "strides": [2]}),
    ("volume", (1, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 1, 0]}),
):
    _add(
        f"maxpool_indices_{name}",
        [node("Round", ["x"], ["r"]), node("MaxPool", ["r"], ["y", "i"], **options)],
        [("x", shape, FLOAT)],
        ["y", ("i", None, TensorProto.INT64)],
    )
_add(
    "maxpool_indices_unused",
    [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], storage_order=1)],
    X,
    ["y"],
)
for mode in ("reflect", "edge", "wrap"):
    _add(
        f"pad_{mode}",
        [node("Pad", ["x", "pads"], ["y"], mode=mode)],
        X,
        ["y"],
        {"pads": _ints(0, 1, 3, 2, 0, 0, 1, 5)},
        opset=19,
    )
_add(
    "pad_reflect_axes",
    [node("Pad", ["x", "pads", "", "axes"], ["y"], mode="reflect")],
    X,
    ["y"],
    {"pads": _ints(3, 1), "axes": _ints(-1)},
    opset=18,
)
_add(
    "slice_backward",
    [node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])],
    X,
    ["y"],
    {"starts": _ints(-1, 100, 0), "ends": _ints(-100, 1, 2), "axes": _ints(3, 2, 1), "steps": _ints(-2, -1, 1)},
)

# Matrix products with vectors.
for left, right in (((5,), (2, 5, 3)), ((2, 3, 4, 5), (5,)), ((4, 5), (5,)), ((5,), (5, 3))):
    _add(
        f"matmul_{len(left)}d_{len(right)}d",
        [node("MatMul", ["a", "b"], ["y"])],
        [("a", left, FLOAT), ("b", right, FLOAT)],
        ["y"],
    )

# Resize: every coordinate and rounding mode, up and down.
for transform in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"):
    for target in ((2, 3, 13, 20), (2, 3, 4, 1)):
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            _add(
                f"resize_nearest_{transform}_{rounding}_{target[2]}",
                [
                    node(
                        "Resize",
                        ["x", "", "", "sizes"],
                        ["y"],
                        coordinate_transformation_mode=transform,
                        nearest_mode=rounding,
                    )
                ],
                X,
                ["y"],
                {"sizes": _ints(*target)},
                opset=19,
            )
        for mode in ("linear", "cubic"):
            _add(
                f"resize_{mode}_{transform}_{target[2]}",
                [
                    node(
                        "Resize",
                        ["x", "", "", "sizes"],
                        ["y"],
                        mode=mode,
                        coordinate_transformation_mode=transform,
                        exclude_outside=int(mode == "cubic"),
                        cubic_coeff_a=-0.5,
                    )
                ],
                X,
                ["y"],
                {"sizes": _ints(*target)},
                opset=19,
            )
_add(
    "resize_scales",
    [node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
    X,
    ["y"],
    {"scales": np.array([1, 1, 0.6, 1.7], np.float32)},
)
_add(
    "resize_axes",
    [node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", axes=[3, 2])],
    X,
    ["y"],
    {"sizes": _ints(4, 15)},
    opset=18,
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
CASES["RNN_relu"] = lambda: _recurrent("RNN", 1, "forward", activations=["Relu"])

# Float16 sums.
HALF: list[Value] = [("x", (2, 8, 13, 13), FLOAT16)]
for half_operator, half_options in (
    ("GlobalAveragePool", {}),
    ("AveragePool", {"kernel_shape": [5, 5]}),
    ("Softmax", {"axis": 1}),
    ("ReduceMean", {"axes": [2, 3]}),
):
    _add(f"float16_{half_operator}", [node(half_operator, ["x"], ["y"], **half_options)], HALF, [("y", None, FLOAT16)])

# Standard operators with a function body.
_add(
    "attention_standard",
    [node("Attention", ["q", "k", "v"], ["y"], is_causal=1)],
    [(name, (1, 2, 5, 4), FLOAT) for name in "qkv"],
    ["y"],
    opset=23,
)
_add("rms_normalization", [node("RMSNormalization", ["x", "s"], ["y"])], X, ["y"], {"s": weights(9)}, opset=23)
_add("swish", [node("Swish", ["x"], ["y"])], X, ["y"], opset=24)

# Integer operators.
_add(
    "convinteger_padded",
    [node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 1, 0, 2])],
    [("x", (1, 2, 5, 6), TensorProto.UINT8)],
    [("y", None, TensorProto.INT32)],
    {"w": np.random.default_rng(0).integers(0, 255, (3, 2, 3, 3), dtype=np.uint8), "z": np.uint8(7)},
)
for wide in (np.uint16, np.int16):
    _add(
        f"quantize_{wide.__name__}",
        [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        X,
        ["y"],
        {"s": np.float32(1e-4), "z": wide(1000)},
        opset=21,
    )
_add(
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
_add(
    "norm_after_conv",
    [node("Conv", ["x", "w"], ["c"], group=3), _NORM_NODE],
    X,
    ["y"],
    {"w": weights(6, 1, 3, 3), **_NORM},
)
_add(
    "norm_after_conv_bias",
    [node("Conv", ["x", "w", "cb"], ["c"]), _NORM_NODE],
    X,
    ["y"],
    {"w": weights(6, 3, 1, 1), "cb": weights(6, seed=9), **_NORM},
)
_add(
    "norm_after_convtranspose",
    [node("ConvTranspose", ["x", "w"], ["c"], group=3), _NORM_NODE],
    X,
    ["y"],
    {"w": weights(3, 2, 3, 3), **_NORM},
)
_add(
    "norm_after_gemm",
    [node("Gemm", ["x", "w", "cb"], ["c"], transB=1, alpha=0.5), _NORM_NODE],
    [("x", (4, 5), FLOAT)],
    ["y"],
    {"w": weights(6, 5), "cb": weights(6), **_NORM},
)
_add(
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

# ONNX Runtime's own operators.
SEQUENCE: list[Value] = [("x", (2, 5, 8), FLOAT)]
_G, _B = {"g": weights(8, seed=1), "b": weights(8, seed=2)}, {"bias": weights(8, seed=3)}
_add("ms_gelu", [node("Gelu", ["x"], ["y"], domain=MS)], SEQUENCE, ["y"])
_add("ms_fast_gelu", [node("FastGelu", ["x", "bias"], ["y"], domain=MS)], SEQUENCE, ["y"], _B)
_add("ms_quick_gelu", [node("QuickGelu", ["x"], ["y"], domain=MS, alpha=1.5)], SEQUENCE, ["y"])
_add("ms_bias_gelu", [node("BiasGelu", ["x", "bias"], ["y"], domain=MS)], SEQUENCE, ["y"], _B)
_add(
    "ms_skip_layer_norm",
    [node("SkipLayerNormalization", ["x", "x", "g", "b", "bias"], ["y", "", "", "sum"], domain=MS)],
    SEQUENCE,
    ["y", "sum"],
    {**_G, **_B},
)
_add(
    "ms_skip_rms_norm",
    [node("SkipSimplifiedLayerNormalization", ["x", "x", "g"], ["y"], domain=MS)],
    SEQUENCE,
    ["y"],
    _G,
)
_add("undeclared_rms_norm", [node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1)], SEQUENCE, ["y"], _G)
_add("undeclared_layer_norm", [node("LayerNormalization", ["x", "g", "b"], ["y"])], SEQUENCE, ["y"], _G, opset=14)
_add("ms_fused_matmul", [node("FusedMatMul", ["x", "x"], ["y"], domain=MS, transB=1, alpha=0.25)], SEQUENCE, ["y"])
_add(
    "ms_fused_gemm",
    [node("FusedGemm", ["x", "w", "b"], ["y"], domain=MS, activation="LeakyRelu", activation_alpha=0.1)],
    [("x", (4, 5), FLOAT)],
    ["y"],
    {"w": weights(5, 6), "b": weights(6)},
)
for activation, parameters in (("Relu", []), ("Clip", [-0.5, 0.75]), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.2, 0.5])):
    _add(
        f"ms_fused_conv_{activation}",
        [
            node(
                "FusedConv",
                ["x", "w", "b"],
                ["y"],
                domain=MS,
                activation=activation,
                activation_params=parameters or [0.0],
            )
        ],
        X,
        ["y"],
        {"w": weights(4, 3, 3, 3), "b": weights(4)},
    )
_PROJECTION = {"w": weights(8, 24, scale=0.5), "bias": weights(24, seed=4)}
_add(
    "ms_attention", [node("Attention", ["x", "w", "bias"], ["y"], domain=MS, num_heads=2)], SEQUENCE, ["y"], _PROJECTION
)
_add(
    "ms_attention_causal",
    [node("Attention", ["x", "w", "bias"], ["y"], domain=MS, num_heads=2, unidirectional=1)],
    SEQUENCE,
    ["y"],
    _PROJECTION,
)
_add(
    "ms_attention_mask",
    [node("Attention", ["x", "w", "bias", "m"], ["y"], domain=MS, num_heads=2)],
    SEQUENCE,
    ["y"],
    {**_PROJECTION, "m": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)},
)
_add(
    "ms_attention_lengths",
    [node("Attention", ["x", "w", "bias", "m"], ["y"], domain=MS, num_heads=2)],
    SEQUENCE,
    ["y"],
    {**_PROJECTION, "m": np.array([3, 5], np.int32)},
)
_add(
    "ms_multi_head_attention",
    [node("MultiHeadAttention", ["q", "k", "k", "bias"], ["y"], domain=MS, num_heads=4)],
    [("q", (2, 3, 8), FLOAT), ("k", (2, 6, 8), FLOAT)],
    ["y"],
    {"bias": weights(24)},
)
_add(
    "ms_embed_layer_norm",
    [
        node(
            "EmbedLayerNormalization",
            ["ids", "kinds", "words", "places", "segments", "g", "b"],
            ["y", "mask"],
            domain=MS,
        )
    ],
    [("ids", (2, 5), TensorProto.INT32), ("kinds", (2, 5), TensorProto.INT32)],
    ["y"],
    {"words": weights(11, 8), "places": weights(7, 8), "segments": weights(2, 8), **_G},
)

# Groups that become convolutions of their own, with and without bias; narrow ones stay.
for count, inputs in ((2, ["x", "w"]), (2, ["x", "w", "b"]), (4, ["x", "w", "b"])):
    _add(
        f"conv_{count}_groups_{len(inputs)}",
        [node("Conv", inputs, ["y"], group=count, pads=[1, 0, 0, 1], strides=[2, 1])],
        [("x", (2, 32, 6, 5), FLOAT)],
        ["y"],
        {"w": weights(40, 32 // count, 3, 2), "b": weights(40)},
    )

# Sampling at computed positions, many of them outside the image.
for sampling in ("bilinear", "nearest"):
    for border in ("zeros", "border", "reflection"):
        for aligned in (0, 1):
            _add(
                f"grid_sample_{sampling}_{border}_{aligned}",
                [node("GridSample", ["x", "g"], ["y"], mode=sampling, padding_mode=border, align_corners=aligned)],
                [*X, ("g", (2, 5, 4, 2), FLOAT)],
                ["y"],
                opset=16,
            )

# A norm of zero: the first row of the first image.
for order in (1, 2):
    _add(
        f"lp_normalization_{order}",
        [node("Mul", ["x", "zero"], ["z"]), node("LpNormalization", ["z"], ["y"], p=order, axis=3)],
        X,
        ["y"],
        {"zero": np.concatenate([np.zeros((1, 9)), np.ones((6, 9))]).astype(np.float32)},
    )

# What IREE computes with signs.
_BYTES: list[Value] = [("x", (2, 3, 7, 9), TensorProto.UINT8)]
for operator, operands in (("Clip", ["lo", "hi"]), ("Div", ["hi"]), ("Mod", ["hi"])):
    _add(
        f"uint8_{operator}",
        [node(operator, ["x", *operands], ["y"])],
        _BYTES,
        [("y", None, TensorProto.UINT8)],
        {"lo": np.uint8(20), "hi": np.uint8(200)},
    )
_add(
    "uint8_maxpool",
    [node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3], pads=[1, 0, 0, 1])],
    _BYTES,
    [("y", None, TensorProto.UINT8)],
)
_add(
    "uint8_topk",
    [node("TopK", ["x", "k"], ["y", "i"], axis=3)],
    _BYTES,
    [("y", None, TensorProto.UINT8), ("i", None, TensorProto.INT64)],
    {"k": _ints(4)},
)
_add(
    "uint8_from_float",
    [node("Cast", ["x"], ["f"], to=FLOAT), node("Cast", ["f"], ["y"], name="back", to=TensorProto.UINT8)],
    _BYTES,
    [("y", None, TensorProto.UINT8)],
)
