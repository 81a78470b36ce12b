"""Tiny models of operators over images: windows, borders, groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.plugin.onnx_model.builders import FLOAT, Cases, Value, X, ints, node, weights

IMAGE_CASES = Cases()

# Windows, borders and transposed convolutions.
for mode in ("SAME_UPPER", "SAME_LOWER"):
    IMAGE_CASES.add(
        f"conv_{mode}",
        [node("Conv", ["x", "w"], ["y"], auto_pad=mode, strides=[2, 3])],
        X,
        ["y"],
        {"w": weights(4, 3, 3, 2)},
    )
    IMAGE_CASES.add(
        f"maxpool_{mode}", [node("MaxPool", ["x"], ["y"], auto_pad=mode, kernel_shape=[3, 2], strides=[2, 2])], X, ["y"]
    )
    IMAGE_CASES.add(
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
        IMAGE_CASES.add(
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
IMAGE_CASES.add(
    "convtranspose_grouped_pads_dilations",
    [node("ConvTranspose", ["x", "w"], ["y"], group=3, strides=[2, 1], pads=[1, 0, 0, 2], dilations=[1, 2])],
    X,
    ["y"],
    {"w": weights(3, 1, 3, 3)},
)
IMAGE_CASES.add(
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
    IMAGE_CASES.add(
        f"one_window_conv_{size}",
        [node("Conv", ["x", "w"], ["y"], **options)],
        one,
        ["y"],
        {"w": weights(2, 4, kernel_size, 1)},
    )
    IMAGE_CASES.add(f"one_window_maxpool_{size}", [node("MaxPool", ["x"], ["y"], **options)], one, ["y"])
    IMAGE_CASES.add(
        f"one_window_averagepool_{size}",
        [node("AveragePool", ["x"], ["y"], count_include_pad=1, **options)],
        one,
        ["y"],
    )
IMAGE_CASES.add(
    "depth_to_space_crd",
    [node("DepthToSpace", ["x"], ["y"], blocksize=3, mode="CRD")],
    [("x", (2, 18, 2, 5), FLOAT)],
    ["y"],
)
for operator, name, options in (
    ("AveragePool", "uncounted", {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1, 0, 0]}),
    (
        "AveragePool",
        "counted",
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1, 0, 0], "count_include_pad": 1},
    ),
    ("AveragePool", "dilated", {"kernel_shape": [2, 1], "strides": [3, 1], "dilations": [3, 1]}),
    ("MaxPool", "single", {"kernel_shape": [3, 9], "strides": [3, 1]}),
    ("MaxPool", "flat", {"kernel_shape": [2, 1], "strides": [3, 1], "dilations": [3, 1]}),
):
    IMAGE_CASES.add(
        f"{operator}_rounded_up_{name}",
        [node(operator, ["x"], ["y"], ceil_mode=1, **options)],
        [("x", (1, 2, 11, 9), FLOAT)],
        ["y"],
        opset=19,
    )
# Last windows that would start in the padding after the input, in one dimension or both; others that are rounded up.
for operator, name, strides, pads in (
    ("MaxPool", "both", [3, 4], [0, 0, 1, 1]),
    ("MaxPool", "one", [3, 2], [0, 0, 1, 0]),
    ("AveragePool", "both", [3, 4], [0, 0, 1, 1]),
    ("AveragePool", "one", [3, 2], [0, 0, 1, 0]),
):
    rounded = {"kernel_shape": [2, 2], "ceil_mode": 1}
    IMAGE_CASES.add(
        f"{operator}_windows_dropped_in_{name}",
        [
            node(operator, ["x"], ["p"], strides=strides, pads=pads, **rounded),
            node(
                operator,
                ["p"],
                ["q"],
                name="second",
                kernel_shape=[2, 2],
                strides=[3, 1],
                pads=[0, 0, 1, 0],
                ceil_mode=1,
            ),
            node("Flatten", ["q"], ["y"]),
        ],
        [("x", (1, 2, 11, 9), FLOAT)],
        ["y"],
        opset=19,
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
    IMAGE_CASES.add(
        f"maxpool_indices_{name}",
        [node("Round", ["x"], ["r"]), node("MaxPool", ["r"], ["y", "i"], **options)],
        [("x", shape, FLOAT)],
        ["y", ("i", None, TensorProto.INT64)],
    )
IMAGE_CASES.add(
    "maxpool_indices_unused",
    [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], storage_order=1)],
    X,
    ["y"],
)
IMAGE_CASES.add(
    "maxpool_indices_alone",
    [node("MaxPool", ["x"], ["unread", "i"], kernel_shape=[1, 1]), node("Abs", ["i"], ["y"])],
    X,
    [("y", None, TensorProto.INT64)],
)
for mode in ("reflect", "edge", "wrap"):
    IMAGE_CASES.add(
        f"pad_{mode}",
        [node("Pad", ["x", "pads"], ["y"], mode=mode)],
        X,
        ["y"],
        {"pads": ints(0, 1, 3, 2, 0, 0, 1, 5)},
        opset=19,
    )
    IMAGE_CASES.add(
        f"pad_{mode}_and_crop",
        [node("Pad", ["x", "pads"], ["y"], mode=mode)],
        X,
        ["y"],
        {"pads": ints(0, 1, -2, 2, 0, 0, 1, -3)},
        opset=19,
    )
IMAGE_CASES.add(
    "pad_edge_of_a_batch",
    [node("Pad", ["x", "pads"], ["y"], mode="edge")],
    X,
    ["y"],
    {"pads": ints(1, 0, 0, 2, 3, 0, 0, 0)},
    opset=18,
)
IMAGE_CASES.add(
    "pad_edge_of_a_vector",
    [node("Reshape", ["x", "flat"], ["v"]), node("Pad", ["v", "pads"], ["y"], mode="edge")],
    X,
    ["y"],
    {"flat": ints(-1), "pads": ints(2, 1)},
    opset=18,
)
IMAGE_CASES.add(
    "pad_and_crop_axes",
    [node("Pad", ["x", "pads", "", "axes"], ["y"])],
    X,
    ["y"],
    {"pads": ints(-2, 1, 1, -2), "axes": ints(-1, 1)},
    opset=18,
)
IMAGE_CASES.add(
    "pad_and_crop_all_channels",
    [node("Pad", ["x", "pads", "", "axes"], ["y"])],
    X,
    ["y"],
    {"pads": ints(-2, 1, 1, -3), "axes": ints(-1, 1)},
    opset=18,
)
IMAGE_CASES.add(
    "pad_reflect_axes",
    [node("Pad", ["x", "pads", "", "axes"], ["y"], mode="reflect")],
    X,
    ["y"],
    {"pads": ints(3, 1), "axes": ints(-1)},
    opset=18,
)
IMAGE_CASES.add(
    "slice_backward",
    [node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])],
    X,
    ["y"],
    {"starts": ints(-1, 100, 0), "ends": ints(-100, 1, 2), "axes": ints(3, 2, 1), "steps": ints(-2, -1, 1)},
)

# Groups that become convolutions of their own, with and without bias; narrow ones stay.
for count, inputs in ((2, ["x", "w"]), (2, ["x", "w", "b"]), (4, ["x", "w", "b"])):
    IMAGE_CASES.add(
        f"conv_{count}_groups_{len(inputs)}",
        [node("Conv", inputs, ["y"], group=count, pads=[1, 0, 0, 1], strides=[2, 1])],
        [("x", (2, 32, 6, 5), FLOAT)],
        ["y"],
        {"w": weights(40, 32 // count, 3, 2), "b": weights(40)},
    )

# Offsets of one and of two groups, with mask and bias.
for taken, options in (
    (["x", "w", "o"], {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
    (["x", "w", "o", "b", "m"], {"offset_group": 2, "group": 2}),
):
    many, rows, columns = (2, 5, 7) if len(taken) > 3 else (1, 4, 7)
    IMAGE_CASES.add(
        f"deform_conv_{len(taken)}",
        [node("DeformConv", taken, ["y"], **options)],
        [
            ("x", (2, 4, 7, 8), FLOAT),
            ("o", (2, 2 * many * 6, rows, columns), FLOAT),
            *([("m", (2, many * 6, rows, columns), FLOAT)] if len(taken) > 3 else []),
        ],
        ["y"],
        {"w": weights(6, 4 // many, 3, 2), **({"b": weights(6)} if len(taken) > 3 else {})},
        opset=19,
    )

# What IREE lowers only of known weights, or not at all.
for wide, options in ((2, {"group": 2, "strides": [2, 1]}), (1, {"pads": [0, 1, 2, 0], "dilations": [1, 2]})):
    IMAGE_CASES.add(
        f"convtranspose_{wide}_computed_weights",
        [node("ConvTranspose", ["x", "w"], ["y"], **options)],
        [("x", (2, 4, 5, 6), FLOAT), ("w", (4, 3, 3, 2), FLOAT)],
        ["y"],
    )
for options in ({"strides": [2, 1]}, {"pads": [1, 1, 0, 2], "p": 3}):
    IMAGE_CASES.add(
        f"lppool_dilated_{len(options)}",
        [node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], dilations=[2, 1], **options)],
        X,
        ["y"],
        opset=18,
    )
for reduction in ("max", "min"):
    for version in (16, 18):
        IMAGE_CASES.add(
            f"scatter_{reduction}_{version}",
            [node("ScatterElements", ["x", "i", "u"], ["y"], axis=2, reduction=reduction)],
            [*X, ("u", (2, 3, 4, 9), FLOAT)],
            ["y"],
            {"i": np.random.default_rng(0).integers(-7, 7, (2, 3, 4, 9))},
            opset=version,
        )
IMAGE_CASES.add(
    "expand_to_fewer_dimensions",
    [node("Expand", ["x", "s"], ["y"])],
    [("x", (1, 3, 1), FLOAT)],
    ["y"],
    {"s": ints(3, 1)},
)
IMAGE_CASES.add(
    "col2im_strided",
    [node("Col2Im", ["x", "s", "k"], ["y"], pads=[1, 0, 0, 2], strides=[2, 1], dilations=[1, 1])],
    [("x", (1, 12, 18), FLOAT)],
    ["y"],
    {"s": ints(5, 6), "k": ints(2, 3)},
    opset=18,
)
