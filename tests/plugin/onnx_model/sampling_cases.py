"""Tiny models of operators that read images at computed positions: resizing, and sampling by grids and regions."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.plugin.onnx_model.builders import FLOAT, Cases, Value, X, ints, node

SAMPLING_CASES = Cases()

# Resize: every coordinate and rounding mode, up and down.
for transform in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"):
    for target in ((2, 3, 13, 20), (2, 3, 4, 1)):
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            SAMPLING_CASES.add(
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
                {"sizes": ints(*target)},
                opset=19,
            )
        for mode in ("linear", "cubic"):
            SAMPLING_CASES.add(
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
                {"sizes": ints(*target)},
                opset=19,
            )
SAMPLING_CASES.add(
    "resize_scales",
    [node("Resize", ["x", "", "scales"], ["y"], mode="linear")],
    X,
    ["y"],
    {"scales": np.array([1, 1, 0.6, 1.7], np.float32)},
)
# Factors whose product with a size is a whole number in f32 only: 20 rows by 0.7 are 14.
DECIMALS: list[Value] = [("x", (1, 2, 20, 30), FLOAT)]
for mode, transform in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("cubic", "align_corners")):
    for factor in (0.7, 1.3, 2.3):
        SAMPLING_CASES.add(
            f"resize_{mode}_by_{factor}",
            [
                node("Resize", ["x", "", "scales"], ["t"], mode=mode, coordinate_transformation_mode=transform),
                node("Relu", ["t"], ["y"]),
            ],
            DECIMALS,
            ["y"],
            {"scales": np.array([1, 1, factor, factor], np.float32)},
        )
SAMPLING_CASES.add(
    "resize_by_decimals_twice",
    [
        node("Resize", ["x", "", "scales"], ["t"], name="first", mode="linear"),
        node("Resize", ["t", "", "scales"], ["y"], name="second", mode="linear"),
    ],
    DECIMALS,
    ["y"],
    {"scales": np.array([1, 1, 0.7, 0.9], np.float32)},
)
SAMPLING_CASES.add(
    "resize_axes_by_decimals",
    [node("Resize", ["x", "", "scales"], ["y"], axes=[3, 2], mode="linear")],
    DECIMALS,
    ["y"],
    {"scales": np.array([0.9, 0.7], np.float32)},
    opset=18,
)
SAMPLING_CASES.add(
    "resize_by_decimals_10",
    [node("Resize", ["x", "scales"], ["y"], mode="nearest")],
    DECIMALS,
    ["y"],
    {"scales": np.array([1, 1, 0.7, 1.4], np.float32)},
    opset=10,
)
SAMPLING_CASES.add(
    "upsample_by_decimals_9",
    [node("Upsample", ["x", "scales"], ["y"], mode="nearest")],
    DECIMALS,
    ["y"],
    {"scales": np.array([1, 1, 2.3, 1.4], np.float32)},
    opset=9,
)
SAMPLING_CASES.add(
    "upsample_by_decimals_7",
    [node("Upsample", ["x"], ["y"], mode="nearest", scales=[1.0, 1.0, 2.3, 1.4])],
    DECIMALS,
    ["y"],
    opset=7,
)
SAMPLING_CASES.add(
    "resize_axes",
    [node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", axes=[3, 2])],
    X,
    ["y"],
    {"sizes": ints(4, 15)},
    opset=18,
)
for policy in ("not_larger", "not_smaller"):
    # The result's sizes are the rounded products of one factor, which is not their quotient; (7, 9) changes nothing.
    for mode, height, width in (("linear", 3, 9), ("cubic", 9, 5), ("nearest", 17, 16), ("linear", 7, 9)):
        SAMPLING_CASES.add(
            f"resize_{policy}_{mode}_{height}",
            [
                node(
                    "Resize",
                    ["x", "", "", "sizes"],
                    ["y"],
                    mode=mode,
                    axes=[2, 3],
                    keep_aspect_ratio_policy=policy,
                    coordinate_transformation_mode="asymmetric" if mode == "nearest" else "half_pixel",
                )
            ],
            X,
            ["y"],
            {"sizes": ints(height, width)},
            opset=18,
        )
SAMPLING_CASES.add(
    "resize_float16_linear",
    [node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")],
    [("x", (1, 2, 5, 4), TensorProto.FLOAT16)],
    [("y", None, TensorProto.FLOAT16)],
    {"sizes": ints(1, 2, 10, 6)},
)
for many, version, mode in ((400, 18, "linear"), (150, 19, "cubic")):
    SAMPLING_CASES.add(
        f"resize_antialias_{many}_to_few",
        [node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode, antialias=1)],
        [("x", (1, 2, many, 150), FLOAT)],
        ["y"],
        {"sizes": ints(1, 2, 2, 3)},
        opset=version,
    )

# Sampling at computed positions, many of them outside the image.
for sampling in ("bilinear", "nearest"):
    for border in ("zeros", "border", "reflection"):
        for aligned in (0, 1):
            SAMPLING_CASES.add(
                f"grid_sample_{sampling}_{border}_{aligned}",
                [node("GridSample", ["x", "g"], ["y"], mode=sampling, padding_mode=border, align_corners=aligned)],
                [*X, ("g", (2, 5, 4, 2), FLOAT)],
                ["y"],
                opset=16,
            )
            SAMPLING_CASES.add(
                f"grid_sample_volume_{sampling}_{border}_{aligned}",
                [
                    node(
                        "GridSample",
                        ["x", "g"],
                        ["y"],
                        mode={"bilinear": "linear"}.get(sampling, sampling),
                        padding_mode=border,
                        align_corners=aligned,
                    )
                ],
                [("x", (2, 3, 4, 5, 6), FLOAT), ("g", (2, 2, 3, 4, 3), FLOAT)],
                ["y"],
                opset=20,
            )
for aligned in (0, 1):
    for border in ("zeros", "border", "reflection"):
        SAMPLING_CASES.add(
            f"grid_sample_cubic_{border}_{aligned}",
            [node("GridSample", ["x", "g"], ["y"], mode="bicubic", padding_mode=border, align_corners=aligned)],
            [*X, ("g", (2, 5, 4, 2), FLOAT)],
            ["y"],
            opset=16,
        )
for sampling in ("linear", "cubic"):
    SAMPLING_CASES.add(
        f"grid_sample_float16_{sampling}",
        [node("GridSample", ["x", "g"], ["y"], mode=sampling)],
        [("x", (2, 3, 7, 9), TensorProto.FLOAT16), ("g", (2, 5, 4, 2), FLOAT)],
        [("y", None, TensorProto.FLOAT16)],
        opset=20,
    )

for corners in (0, 1):
    for grid in ((1, 3, 4, 5), (2, 1, 1, 6), (1, 2, 2, 3, 4), (2, 1, 3, 1, 2)):
        SAMPLING_CASES.add(
            f"affine_grid_{corners}_{'x'.join(map(str, grid))}",
            [node("AffineGrid", ["t", "s"], ["y"], align_corners=corners)],
            [("t", (grid[0], len(grid) - 2, len(grid) - 1), FLOAT)],
            ["y"],
            {"s": ints(*grid)},
            opset=20,
        )

# Regions of which parts, or all, are outside the image; also turned ones.
_REGIONS = np.array([[0, 0, 9, 5], [2.5, 1.25, 4, 20], [-9, -3, 1, 1], [5, 5, 3, 3]], np.float32)
for pooling in ("avg", "max"):
    for halved in ("half_pixel", "output_half_pixel"):
        for version in (16, 18):
            SAMPLING_CASES.add(
                f"roi_align_{pooling}_{halved}_{version}",
                [
                    node(
                        "RoiAlign",
                        ["x", "r", "i"],
                        ["y"],
                        mode=pooling,
                        coordinate_transformation_mode=halved,
                        output_height=3,
                        output_width=2,
                        sampling_ratio=2,
                        spatial_scale=0.75,
                    )
                ],
                X,
                ["y"],
                {"r": _REGIONS, "i": ints(0, 1, 1, 0)},
                opset=version,
            )
