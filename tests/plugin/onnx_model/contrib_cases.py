"""ONNX Runtime's operators that have a standard counterpart, or hold weights of few bits."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Array, Cases, Value, X, ints, node, weights

CONTRIB_CASES = Cases()
_SEQUENCE: list[Value] = [("x", (2, 5, 8), FLOAT)]


def _bytes(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 255, shape, dtype=np.uint8, endpoint=True)


CONTRIB_CASES.add("ms_trilu", [node("Trilu", ["x", "k"], ["y"], domain=MS, upper=0)], X, ["y"], {"k": np.int64(-1)})
CONTRIB_CASES.add("ms_expand_dims", [node("ExpandDims", ["x", "a"], ["y"], domain=MS)], X, ["y"], {"a": np.int32(-1)})
CONTRIB_CASES.add(
    "ms_range",
    [node("Range", ["a", "b"], ["r"], domain=MS), node("Add", ["x", "r"], ["y"])],
    X,
    ["y"],
    {"a": np.float32(2), "b": np.float32(11)},
)
CONTRIB_CASES.add(
    "ms_pad",
    [node("Pad", ["x", "p", "v"], ["y"], domain=MS)],
    X,
    ["y"],
    {"p": ints(0, 0, 1, 2, 0, 0, 0, 3), "v": np.array([1.5], np.float32)},
)
CONTRIB_CASES.add(
    "ms_gather_nd", [node("GatherND", ["x", "i"], ["y"], domain=MS)], X, ["y"], {"i": ints(1, 2).reshape(1, 2)}
)
for _dim, _step in ((-1, 1), (2, 2)):
    CONTRIB_CASES.add(
        f"ms_unfold_{_step}", [node("UnfoldTensor", ["x"], ["y"], domain=MS, dim=_dim, size=3, step=_step)], X, ["y"]
    )
for _metric in ("euclidean", "sqeuclidean"):
    CONTRIB_CASES.add(
        f"ms_cdist_{_metric}",
        [node("CDist", ["a", "b"], ["y"], domain=MS, metric=_metric)],
        [("a", (4, 7), FLOAT), ("b", (3, 7), FLOAT)],
        ["y"],
    )
for _mode, _padding, _corners in (("bilinear", "zeros", 0), ("nearest", "border", 1)):
    CONTRIB_CASES.add(
        f"ms_grid_sample_{_mode}",
        [node("GridSample", ["x", "g"], ["y"], domain=MS, mode=_mode, padding_mode=_padding, align_corners=_corners)],
        X,
        ["y"],
        {"g": weights(2, 4, 5, 2, scale=0.6)},
    )
CONTRIB_CASES.add(
    "ms_conv_transpose",
    [node("ConvTransposeWithDynamicPads", ["x", "w", "p", "b"], ["y"], domain=MS, strides=[2, 1])],
    X,
    ["y"],
    {"w": weights(3, 4, 3, 3), "p": ints(1, 0, 1, 2), "b": weights(4)},
)
CONTRIB_CASES.add(
    "ms_nhwc_max_pool",
    [node("NhwcMaxPool", ["x"], ["y"], domain=MS, kernel_shape=[2, 3], strides=[1, 2])],
    [("x", (1, 6, 7, 3), TensorProto.UINT8)],
    [("y", None, TensorProto.UINT8)],
)
CONTRIB_CASES.add(
    "ms_matmul_int16",
    [node("MatMulInteger16", ["a", "b"], ["y"], domain=MS)],
    [("a", (4, 5), TensorProto.INT16)],
    [("y", None, TensorProto.INT32)],
    {"b": np.random.default_rng(0).integers(-3000, 3000, (5, 3), dtype=np.int16)},
)
for _name, _attributes, _shape, _table, _positions in (
    ("halves", {}, (2, 3, 5, 8), 4, ints(*range(10)).reshape(2, 5)),
    ("interleaved", {"interleaved": 1}, (2, 3, 5, 8), 4, ints(*range(10)).reshape(2, 5)),
    ("offset", {}, (2, 5, 24), 4, ints(3)),
    ("partial", {"num_heads": 3, "rotary_embedding_dim": 4}, (2, 5, 24), 2, ints(3)),
):
    CONTRIB_CASES.add(
        f"ms_rotary_{_name}",
        [node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], domain=MS, **_attributes)],
        [("x", _shape, FLOAT)],
        ["y"],
        {"p": _positions, "c": np.cos(weights(12, _table)), "s": np.sin(weights(12, _table))},
    )
for _bits, _zero in ((4, True), (4, False), (8, True), (2, False)):
    CONTRIB_CASES.add(
        f"ms_matmul_{_bits}_bits{'_zero' if _zero else ''}",
        [
            node(
                "MatMulNBits",
                ["x", "w", "s", *(["z"] if _zero else [])],
                ["y"],
                domain=MS,
                K=40,
                N=6,
                bits=_bits,
                block_size=16,
            )
        ],
        [("x", (2, 3, 40), FLOAT)],
        ["y"],
        {"w": _bytes(6, 3, 2 * _bits), "s": np.abs(weights(18)), "z": _bytes(6 * -(-3 * _bits // 8), seed=1)},
    )
CONTRIB_CASES.add(
    "ms_gather_4_bits",
    [node("GatherBlockQuantized", ["w", "i", "s", "z"], ["y"], domain=MS, bits=4, block_size=16, quantize_axis=1)],
    [("i", (2, 3), INT64)],
    ["y"],
    {"w": _bytes(9, 16), "s": np.abs(weights(9, 2)), "z": _bytes(9, 1, seed=1)},
)
_QUANTISED = {
    "w": np.random.default_rng(0).integers(-128, 127, (8, 24), dtype=np.int8),
    **{"bias": weights(24, seed=4), "xs": np.float32(0.02), "ws": np.float32(0.01)},
    **{"xz": np.uint8(120), "wz": np.int8(0)},
}
CONTRIB_CASES.add(
    "ms_quantised_attention",
    [node("QAttention", ["x", "w", "bias", "xs", "ws", "", "xz", "wz"], ["y"], domain=MS, num_heads=2)],
    [("x", (2, 5, 8), TensorProto.UINT8)],
    ["y"],
    _QUANTISED,
)
_TABLES = {
    name: _bytes(*shape, seed=seed)
    for seed, (name, shape) in enumerate(
        {"words": (11, 8), "places": (7, 8), "segments": (2, 8), "g": (8,), "b": (8,)}.items()
    )
}
_SCALES = {f"{name}_scale": np.float32(0.01 * (index + 1)) for index, name in enumerate(_TABLES)}
_POINTS = {f"{name}_point": np.uint8(100 + index) for index, name in enumerate(_TABLES)}
CONTRIB_CASES.add(
    "ms_quantised_embedding",
    [
        node(
            "QEmbedLayerNormalization",
            ["ids", "kinds", *_TABLES, "", *_SCALES, *_POINTS],
            ["y", "mask"],
            domain=MS,
            epsilon=1e-6,
        )
    ],
    [("ids", (2, 5), TensorProto.INT32), ("kinds", (2, 5), TensorProto.INT32)],
    ["y"],
    {**_TABLES, **_SCALES, **_POINTS},
)
