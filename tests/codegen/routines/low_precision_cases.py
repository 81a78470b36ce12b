"""Layers whose sizes AMX's tiles do not divide, and tiles that nobody would choose for them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto

from sartor.codegen.ir.variants.routine import Parameters
from tests.codegen.routines.kernel_cases import kernel_cases
from tests.codegen.routines.layer_cases import Cases, Follower


def add_runs(cases: Cases) -> None:
    """Images of so few channels that all that a window reads of a row is one run."""
    for channels in (1, 2, 3, 5, 8):
        cases.convolution(f"few{channels}", (1, channels, 7, 21), 20)
    cases.convolution("few_stride2", (3, 3, 13, 19), 40, (7, 7), stride=2, pads=[3] * 4)
    cases.convolution("few_stride3", (1, 5, 11, 17), 17, stride=3, residual=True)
    cases.convolution("few_uneven", (2, 3, 6, 9), 33, (5, 4), pads=[0, 3, 1, 2])
    cases.convolution("few_dilated_rows", (1, 4, 9, 20), 24, dilation=(2, 1))
    cases.convolution("few_dilated_stride2", (2, 3, 11, 23), 24, dilation=3, stride=2)
    cases.convolution("few_wide", (1, 3, 4, 150), 24)
    cases.convolution("few_one_pixel", (8, 3, 1, 1), 24)
    cases.convolution("few_at_once", (1, 3, 12, 35), 70, (4, 20), stride=(2, 3), pads=[1, 9, 2, 10])
    for channels in (1, 2, 3):
        cases.convolution(f"few{channels}_1x1", (2, channels, 5, 9), 24, (1, 1), residual=True)
        cases.convolution(f"few{channels}_1x1_stride2", (1, channels, 5, 9), 24, (1, 1), stride=2)


def add_tiles(cases: Cases) -> None:
    """Convolutions that the unit's rows, depth and vectors do not divide."""
    for channels in (9, 33, 47):
        cases.convolution(f"depth{channels}", (1, channels, 6, 7), 18)
        cases.convolution(f"depth{channels}_1x1", (2, channels, 3, 11), 35, (1, 1))
    cases.convolution("odd1x1_stride2", (3, 19, 9, 10), 35, (1, 1), stride=2)
    cases.convolution("odd1x1_stride3", (1, 19, 22, 7), 35, (1, 1), stride=3)
    cases.convolution("whole1x1_stride2", (2, 64, 9, 10), 48, (1, 1), stride=2, residual=True)
    cases.convolution("pixels1x1", (2, 96, 9, 7), 70, (1, 1), residual=True)
    cases.convolution("deep1x1", (1, 200, 4, 5), 40, (1, 1), bias=False)
    cases.convolution("deep", (8, 170, 3, 3), 30, residual=True)
    cases.convolution("wide", (1, 32, 3, 130), 16, pads=[0, 1, 2, 0])
    cases.convolution("streamed", (1, 128, 5, 5), 250)
    cases.convolution("streamed1x1", (1, 520, 3, 3), 530, (1, 1), followers=[Follower("Mul", (1, 530, 1, 1))])
    cases.convolution("stride3_dilation2", (1, 40, 19, 16), 33, stride=3, dilation=2, pads=[4, 0, 1, 3])
    cases.convolution("row_of_results", (3, 24, 3, 70), 33, pads=[0, 2, 0, 1])
    cases.convolution("seven_rows", (2, 24, 7, 7), 40, residual=True)
    cases.product("single_row", (1, 70), (70, 530))
    cases.product("many_rows", (100, 96), (96, 50), followers=[Follower("Add", (100, 50)), Follower("Relu")])
    cases.product("odd_rows", (3, 11, 45), (45, 19), gelu=True)
    cases.product("deep_rows", (17, 777), (777, 33), bias=False)
    cases.gemm("turned_rows", 5, 50, 23)


def add_products(cases: Cases) -> None:
    """Products of two activations, as in attention, that the unit's rows, depth and columns do not divide."""
    cases.product("scores", (4, 50, 32), (4, 32, 50), weight=False, followers=[Follower("Add", (1, 1, 50))], bias=False)
    cases.product("context", (3, 33, 47), (3, 47, 19), weight=False, bias=False)
    cases.product(
        "unpaired", (2, 5, 35), (2, 35, 70), weight=False, bias=False, followers=[Follower("Add", (2, 5, 70))]
    )
    cases.product("deep_activations", (20, 300), (300, 40), weight=False)
    cases.product("depth3_activations", (2, 9, 3), (2, 3, 17), weight=False, bias=False)
    cases.product("weight_per_batch", (3, 9, 21), (3, 21, 37), bias=False)
    builder = cases.builder
    turned = builder.op("Transpose", "heads.turned", cases.source("heads.y", (1, 21, 3, 16)), perm=[0, 2, 1, 3])
    value = builder.op("MatMul", "heads", cases.source("heads.x", (1, 3, 13, 21)), turned)
    value = builder.op("Transpose", "heads.joined", value, perm=[0, 2, 1, 3])
    shape = builder.constant(np.array([1, 13, 48]))
    cases.finish("heads", builder.op("Reshape", "heads.reshaped", value, shape), (1, 13, 48))


def add_others(cases: Cases) -> None:
    """Layers that neither multiply nor have a window, and some that no kernel computes."""
    builder = cases.builder
    cases.finish("exp", builder.op("Exp", "exp", cases.source("exp.x", (3, 5, 7))), (3, 5, 7))
    cases.finish("scalar", builder.op("Exp", "scalar", cases.source("scalar.x", ())), ())
    softmax = builder.op("Softmax", "softmax", cases.source("softmax.x", (3, 17)), axis=-1)
    cases.finish("softmax", softmax, (3, 17))
    sources = [cases.source(f"joined_few.{number}", (2, number, 3, 5)) for number in (3, 16)]
    cases.finish("joined_few", builder.op("Concat", "joined_few", *sources, axis=1), (2, 19, 3, 5))
    sources = [cases.source(f"sum.{each}", (2, 9, 4, 4)) for each in "xy"]
    cases.finish("sum", builder.op("Add", "sum", *sources), (2, 9, 4, 4))


# Of the cases of kernels over f32.
KERNEL_CASES = (
    *("larger_kernel_odd", "wide_padding", "uneven_padding", "stride3", "uneven_window", "dilation3_stride2"),
    *("one_row", "batch3", "images3", "filter2x2", "panels", "one_pixel1x1", "enlarged_unevenly"),
    *("one_pixel3x3", "padded1x1", "padded_rows1x1", "by_row", "by_image", "squeeze_excite", "pixel_bias"),
    *("apart_stride3", "apart_dilation3_stride2", "apart_longest_kernel", "average32x32", "average_of_what_is_there"),
    *("max_uneven_padding", "vectors", "vector", "depth1", "column1", "one_number", "batch_by_weight", "odd"),
    *("matrix_bias", "masked", "many", "turned"),
)


def low_precision_cases() -> Cases:
    """All of them, beside those of the kernels over f32, of which only some are used."""
    cases = kernel_cases()
    for add in (add_runs, add_tiles, add_products, add_others):
        add(cases)
    return cases


def low_precision_model() -> ModelProto:
    """All of them in one model."""
    return low_precision_cases().model()


def _tilings(*rows: tuple[int, int, int, int, int, int, int]) -> list[Parameters]:
    names = ("lines", "tiles", "pixels", "vectors", "depth", "row_groups", "panel_groups")
    return [dict(zip(names, row, strict=True)) for row in rows]


# Tiles of one pixel, blocks of many and of all vectors, short rows of tiles, more groups than there is work.
_TILES = _tilings(
    (1, 1, 1, 1, 32, 1, 1),
    (1, 1, 5, 6, 16, 3, 99),
    (1, 2, 3, 2, 32, 5, 3),
    (1, 1, 3, 5, 2, 99, 1),
    (1, 2, 4, 1, 30, 7, 2),
    (1, 3, 2, 1, 8, 2, 14),
)
_LINES = _tilings((2, 1, 4, 2, 24, 1, 5), (3, 1, 7, 1, 32, 2, 2), (2, 1, 1, 1, 6, 4, 1))
_ROWS_OF_16 = _tilings(
    (1, 1, 16, 3, 32, 1, 1), (1, 2, 16, 2, 22, 2, 1), (1, 3, 16, 1, 32, 9, 9), (1, 1, 16, 4, 4, 1, 2)
)

EXTREME_TILES: Mapping[str, list[Parameters]] = {
    "seven_rows": [*_TILES, *_LINES, *_tilings((1, 1, 7, 2, 32, 7, 1), (1, 1, 7, 3, 24, 6, 2))],
    "images3": [*_TILES, *_LINES],
    "few_uneven": [*_TILES[:4], *_LINES[:1]],
    "few_stride2": [*_TILES, *_LINES],
    "few_wide": _ROWS_OF_16,
    "wide": _ROWS_OF_16,
    "whole1x1_stride2": _TILES,
    "deep1x1": _TILES[:2],
    "pixels1x1": [*_TILES, _ROWS_OF_16[0], *_ROWS_OF_16[2:]],
    "odd1x1_stride3": [*_TILES[:1], *_tilings((1, 1, 3, 3, 32, 8, 1), (1, 1, 3, 1, 20, 7, 2))],
    "single_row": _tilings((1, 1, 1, 6, 32, 1, 99), (1, 1, 1, 5, 4, 1, 3), (1, 1, 1, 1, 14, 9, 1)),
    "many_rows": [*_TILES, *_ROWS_OF_16],
    "scores": [*_TILES, *_ROWS_OF_16],
    "context": [*_TILES, *_ROWS_OF_16[:3]],
    "unpaired": _tilings((1, 1, 5, 3, 32, 1, 2), (1, 1, 2, 2, 4, 2, 3), (1, 2, 3, 2, 18, 1, 1)),
    "heads": [*_TILES[:4], *_tilings((1, 1, 13, 1, 22, 1, 1))],
}
