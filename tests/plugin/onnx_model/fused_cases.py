"""ONNX Runtime's operators that it fuses from others."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.plugin.onnx_model.builders import FLOAT, MS, Cases, Value, X, node, weights

FUSED_CASES = Cases()

_SEQUENCE: list[Value] = [("x", (2, 5, 8), FLOAT)]
_G, _B = {"g": weights(8, seed=1), "b": weights(8, seed=2)}, {"bias": weights(8, seed=3)}
FUSED_CASES.add("ms_gelu", [node("Gelu", ["x"], ["y"], domain=MS)], _SEQUENCE, ["y"])
FUSED_CASES.add("ms_fast_gelu", [node("FastGelu", ["x", "bias"], ["y"], domain=MS)], _SEQUENCE, ["y"], _B)
FUSED_CASES.add("ms_quick_gelu", [node("QuickGelu", ["x"], ["y"], domain=MS, alpha=1.5)], _SEQUENCE, ["y"])
FUSED_CASES.add("ms_bias_gelu", [node("BiasGelu", ["x", "bias"], ["y"], domain=MS)], _SEQUENCE, ["y"], _B)
FUSED_CASES.add(
    "ms_skip_layer_norm",
    [node("SkipLayerNormalization", ["x", "x", "g", "b", "bias"], ["y", "", "", "sum"], domain=MS)],
    _SEQUENCE,
    ["y", "sum"],
    {**_G, **_B},
)
FUSED_CASES.add(
    "ms_skip_rms_norm",
    [node("SkipSimplifiedLayerNormalization", ["x", "x", "g"], ["y"], domain=MS)],
    _SEQUENCE,
    ["y"],
    _G,
)
FUSED_CASES.add(
    "undeclared_rms_norm", [node("SimplifiedLayerNormalization", ["x", "g"], ["y"], axis=-1)], _SEQUENCE, ["y"], _G
)
FUSED_CASES.add(
    "undeclared_layer_norm", [node("LayerNormalization", ["x", "g", "b"], ["y"])], _SEQUENCE, ["y"], _G, opset=14
)
FUSED_CASES.add(
    "ms_fused_matmul", [node("FusedMatMul", ["x", "x"], ["y"], domain=MS, transB=1, alpha=0.25)], _SEQUENCE, ["y"]
)
for turned, taken, other in (
    (["transBatchA"], (5, 2, 4), (2, 4, 6)),
    (["transA", "transBatchB"], (2, 4, 5), (4, 2, 6)),
    (["transBatchA", "transBatchB", "transB"], (5, 2, 4), (6, 2, 4)),
):
    FUSED_CASES.add(
        "ms_fused_matmul_" + "_".join(turned),
        [node("FusedMatMul", ["a", "b"], ["y"], domain=MS, **dict.fromkeys(turned, 1))],
        [("a", taken, FLOAT), ("b", other, FLOAT)],
        ["y"],
    )
for activation, given in (
    ("LeakyRelu", {"alpha": 0.1}),
    ("Elu", {"alpha": 0.7}),
    ("Selu", {"alpha": 1.5, "gamma": 1.2}),
    ("ThresholdedRelu", {"alpha": 0.4}),
    ("Softplus", {}),
    ("Softsign", {}),
):
    FUSED_CASES.add(
        f"ms_fused_gemm_{activation}",
        [
            node(
                "FusedGemm",
                ["x", "w", "b"],
                ["y"],
                domain=MS,
                activation=activation,
                **{f"activation_{name}": value for name, value in given.items()},
            )
        ],
        [("x", (4, 5), FLOAT)],
        ["y"],
        {"w": weights(5, 6), "b": weights(6)},
    )
for activation, parameters in (("Relu", []), ("Clip", [-0.5, 0.75]), ("LeakyRelu", [0.2]), ("HardSigmoid", [0.2, 0.5])):
    FUSED_CASES.add(
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
FUSED_CASES.add(
    "ms_attention",
    [node("Attention", ["x", "w", "bias"], ["y"], domain=MS, num_heads=2)],
    _SEQUENCE,
    ["y"],
    _PROJECTION,
)
FUSED_CASES.add(
    "ms_attention_causal",
    [node("Attention", ["x", "w", "bias"], ["y"], domain=MS, num_heads=2, unidirectional=1)],
    _SEQUENCE,
    ["y"],
    _PROJECTION,
)
FUSED_CASES.add(
    "ms_attention_mask",
    [node("Attention", ["x", "w", "bias", "m"], ["y"], domain=MS, num_heads=2)],
    _SEQUENCE,
    ["y"],
    {**_PROJECTION, "m": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)},
)
FUSED_CASES.add(
    "ms_attention_lengths",
    [node("Attention", ["x", "w", "bias", "m"], ["y"], domain=MS, num_heads=2)],
    _SEQUENCE,
    ["y"],
    {**_PROJECTION, "m": np.array([3, 5], np.int32)},
)
FUSED_CASES.add(
    "ms_multi_head_attention",
    [node("MultiHeadAttention", ["q", "k", "k", "bias"], ["y"], domain=MS, num_heads=4)],
    [("q", (2, 3, 8), FLOAT), ("k", (2, 6, 8), FLOAT)],
    ["y"],
    {"bias": weights(24)},
)
FUSED_CASES.add(
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
