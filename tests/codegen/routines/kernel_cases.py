"""Layers of sizes that the kernels' tiles do not divide, and register tiles that nobody would choose for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import ModelProto

from sartor.codegen.ir.variants.routine import Parameters
from tests.codegen.routines.layer_cases import Cases, Follower, Shape


def add_windows_of_pixels(cases: Cases) -> None:
    """Convolutions whose windows lie on their images in every way."""
    cases.convolution("larger_kernel", (1, 16, 3, 4), 32, (7, 7))
    cases.convolution("larger_kernel_odd", (1, 3, 2, 2), 20, (5, 5))
    cases.convolution("wide_padding", (1, 16, 3, 3), 32, pads=[18] * 4)
    cases.convolution("uneven_padding", (1, 16, 6, 7), 32, pads=[0, 2, 1, 3])
    cases.convolution("stride3", (1, 17, 13, 11), 40, stride=3)
    cases.convolution("uneven_window", (1, 16, 13, 11), 40, (3, 5), stride=(2, 1), dilation=(1, 2))
    cases.convolution("dilation3_stride2", (1, 16, 17, 15), 32, stride=2, dilation=3)
    cases.convolution("one_row", (1, 16, 3, 20), 32, pads=[0] * 4)
    cases.convolution("one_column", (1, 16, 20, 3), 32, pads=[0] * 4)
    cases.convolution("batch3", (3, 24, 9, 8), 24)
    cases.convolution("images3", (3, 19, 7, 9), 70, residual=True)


def add_filters(cases: Cases) -> None:
    """Convolutions of stride 1 by filters of other sizes than 3x3."""
    cases.convolution("filter2x2", (1, 17, 6, 5), 19, (2, 2), pads=[0] * 4)
    cases.convolution("filter4x4", (2, 19, 9, 7), 33, (4, 4), pads=[1, 1, 2, 2], residual=True)
    cases.convolution("filter5x5", (1, 16, 8, 11), 32, (5, 5), pads=[2] * 4)
    cases.convolution("filter6x6", (1, 18, 7, 7), 20, (6, 6), pads=[2, 2, 3, 3])
    cases.convolution("filter7x7", (1, 16, 5, 6), 16, (7, 7), pads=[3] * 4)
    cases.convolution("filter1x7", (1, 20, 6, 9), 24, (1, 7), pads=[0, 3, 0, 3])
    cases.convolution("filter7x1", (3, 16, 9, 6), 32, (7, 1), pads=[3, 0, 3, 0])
    cases.convolution("filter2x5", (1, 16, 4, 9), 32, (2, 5), pads=[0, 2, 1, 2])


def add_channels(cases: Cases) -> None:
    """Convolutions with few channels, or with some more than vectors and panels hold."""
    cases.convolution("panels", (1, 8, 9, 9), 150)
    cases.convolution("panels1x1", (1, 8, 9, 9), 150, (1, 1))
    cases.convolution("prime1x1", (3, 16, 7, 13), 40, (1, 1), activation="Tanh")
    cases.convolution("one_pixel1x1", (1, 64, 1, 1), 48, (1, 1), activation="HardSwish")
    cases.convolution("one_pixel3x3", (2, 16, 1, 1), 24)
    cases.convolution("padded1x1", (1, 16, 5, 6), 24, (1, 1), pads=[1, 2, 0, 1])
    cases.convolution("padded_rows1x1", (2, 16, 5, 6), 24, (1, 1), pads=[1, 0, 1, 0], residual=True)
    for channels in (1, 3, 5):
        cases.convolution(f"channels{channels}", (1, channels, 9, 8), 24)
    cases.convolution("channels3_stride2", (2, 3, 11, 15), 40, (5, 7), pads=[2, 3, 2, 3], stride=2)


def add_single_channels(cases: Cases) -> None:
    """Convolutions to one output channel."""
    cases.convolution("single", (3, 37, 9, 21), 1, residual=True)
    cases.convolution("single1x1", (8, 64, 7, 7), 1, (1, 1), activation="Sigmoid")
    cases.convolution("single_vectors", (1, 96, 5, 70), 1, (1, 1), residual=True)
    cases.convolution("single_pixel", (1, 48, 1, 1), 1, (1, 1), bias=False, activation="Tanh")
    cases.convolution("single_stride2", (2, 16, 11, 47), 1, (3, 5), pads=[0, 2, 1, 2], stride=2)
    cases.convolution("single_stride3", (1, 5, 13, 60), 1, stride=3, dilation=2)
    cases.convolution("single_dilated", (1, 32, 9, 40), 1, stride=(2, 1), dilation=(1, 3), residual=True)
    cases.convolution("single_of_one", (8, 1, 20, 80), 1)
    cases.convolution("single_of_one_stride2", (1, 1, 21, 43), 1, (5, 3), pads=[2, 1, 2, 1], stride=2)
    cases.convolution("single_wide_padding", (1, 16, 3, 3), 1, pads=[18] * 4)
    cases.convolution("single_larger_kernel", (1, 3, 2, 2), 1, (5, 5))
    cases.convolution("single_long_kernel", (1, 2, 1, 300), 1, (1, 33), stride=(1, 2), pads=[0, 16, 0, 0])
    operands: dict[str, Shape] = {"column": (1, 1, 1, 40), "row": (1, 1, 9, 1), "image": (2, 1, 1, 1), "number": ()}
    for name, operand in operands.items():
        cases.convolution(f"single_by_{name}", (2, 16, 9, 40), 1, followers=[Follower("Mul", operand)])
    cases.convolution("single_biases", (1, 16, 9, 40), 1, followers=[Follower("Add", (1, 1, 9, 40), weight=True)])


def add_few_channels(cases: Cases) -> None:
    """Convolutions to a few output channels."""
    cases.convolution("several", (3, 37, 9, 21), 3, residual=True)
    cases.convolution("several1x1", (8, 64, 7, 7), 4, (1, 1), activation="Sigmoid")
    cases.convolution("several_vectors", (1, 96, 5, 70), 6, (1, 1), residual=True)
    cases.convolution("several_pixels", (1, 48, 1, 9), 2, (1, 1), bias=False, activation="Tanh")
    cases.convolution("several_stride2", (2, 16, 11, 47), 7, (3, 5), pads=[0, 2, 1, 2], stride=2)
    cases.convolution("several_stride3", (1, 32, 13, 60), 5, stride=3, dilation=2)
    cases.convolution("several_of_one", (8, 1, 20, 80), 8)
    cases.convolution("several_of_three", (1, 3, 21, 43), 8, (5, 3), pads=[2, 1, 2, 1], stride=2)
    cases.convolution("several_wide_padding", (1, 16, 3, 5), 2, pads=[18] * 4)
    cases.convolution("several_larger_kernel", (1, 32, 2, 2), 4, (5, 5), pads=[4] * 4)
    cases.convolution("several_long_kernel", (1, 8, 3, 66), 8, (3, 39), pads=[1, 19, 1, 19], activation="Relu")
    operands: dict[str, Shape] = {
        "channel": (1, 3, 1, 1),
        "column": (1, 1, 1, 40),
        "image": (2, 3, 1, 1),
        "all": (3, 9, 40),
    }
    for name, operand in operands.items():
        cases.convolution(f"several_by_{name}", (2, 16, 9, 40), 3, followers=[Follower("Mul", operand)])
    cases.convolution("several_biases", (1, 16, 9, 40), 4, followers=[Follower("Add", (1, 4, 9, 40), weight=True)])
    cases.convolution("several_as_before", (1, 4, 9, 40), 4, residual=True)


def add_operands(cases: Cases) -> None:
    """Convolutions followed by operands that repeat along some dimensions."""
    image = (1, 16, 7, 5)
    operands: dict[str, Shape] = {
        "by_channel": (1, 32, 1, 1),
        "by_pixel": (1, 1, 7, 5),
        "by_row": (1, 1, 7, 1),
        "by_number": (1,),
        "by_scalar": (),
        "by_channel_alone": (32, 1, 1),
    }
    for name, operand in operands.items():
        cases.convolution(name, image, 32, followers=[Follower("Mul", operand)])
    cases.convolution("by_image", (3, 16, 7, 5), 32, followers=[Follower("Mul", (3, 1, 1, 1))])
    cases.convolution("by_pixel1x1", image, 32, (1, 1), followers=[Follower("Add", (1, 1, 7, 5))])
    excitation = [Follower("Mul", (3, 32, 1, 1)), Follower("Add", (3, 32, 7, 5))]
    cases.convolution("squeeze_excite", (3, 16, 7, 5), 32, (1, 1), followers=excitation)
    cases.convolution("image_bias", image, 32, followers=[Follower("Add", (1, 32, 7, 5), weight=True)])
    cases.convolution("pixel_bias", image, 32, bias=False, followers=[Follower("Add", (1, 1, 7, 5), weight=True)])


def add_windows(cases: Cases) -> None:
    """Depthwise convolutions and poolings."""

    def depthwise(name: str, image: Shape, kernel: Shape = (3, 3), **settings: object) -> None:
        cases.convolution(name, image, image[1], kernel, groups=image[1], **settings)  # type: ignore[arg-type]

    depthwise("apart_larger_kernel", (1, 20, 2, 3), (5, 5))
    depthwise("apart_wide_padding", (1, 16, 3, 3), pads=[20] * 4)
    depthwise("apart_stride3", (3, 37, 11, 13), stride=3)
    depthwise("apart_dilation3_stride2", (1, 5, 17, 15), stride=2, dilation=3)
    depthwise("apart_one_pixel", (1, 24, 1, 1))
    depthwise("apart_long_kernel", (3, 16, 4, 20), (1, 17), pads=[0] * 4)
    depthwise("apart_longest_kernel", (1, 16, 5, 40), (3, 31))
    depthwise("apart_excited", (2, 16, 5, 5), followers=[Follower("Mul", (2, 16, 1, 1))])
    cases.pool("average32x32", "GlobalAveragePool", (1, 20, 32, 32), (1, 20, 1, 1))
    cases.pool("largest9x32", "GlobalMaxPool", (2, 20, 9, 32), (2, 20, 1, 1))
    square = {"kernel_shape": [3, 3]}
    cases.pool(
        "average_padded", "AveragePool", (1, 16, 7, 7), (1, 16, 9, 9), pads=[2] * 4, count_include_pad=1, **square
    )
    cases.pool("average_of_what_is_there", "AveragePool", (1, 16, 7, 7), (1, 16, 7, 7), pads=[1] * 4, **square)
    cases.pool("max_dilated", "MaxPool", (1, 16, 11, 11), (1, 16, 7, 7), dilations=[2, 2], **square)
    cases.pool("max_stride3", "MaxPool", (3, 21, 11, 12), (3, 21, 4, 4), strides=[3, 3], pads=[1] * 4, **square)
    cases.pool(
        "max_uneven_padding", "MaxPool", (2, 37, 8, 9), (2, 37, 4, 4), strides=[2, 2], pads=[1, 1, 0, 0], **square
    )
    cases.pool("max_rounded_up", "MaxPool", (1, 16, 8, 8), (1, 16, 4, 4), strides=[2, 2], ceil_mode=1, **square)


def add_products(cases: Cases) -> None:
    """Products of matrices of one row or column, of batches, and of matrices stored by columns."""
    cases.product("vectors", (3, 1, 16), (3, 16, 24), weight=False, bias=False)
    cases.product("vector", (64,), (64, 150))
    cases.product("depth1", (5, 1), (1, 19), weight=False)
    cases.product("column1", (5, 47), (47, 1))
    cases.product("one_number", (1, 47), (47, 1))
    cases.product("batch_by_weight", (3, 7, 16), (16, 70), gelu=True)
    cases.product("odd", (13, 33), (33, 70), followers=[Follower("Add", (13, 70)), Follower("Tanh")])
    cases.product("matrix_bias", (7, 16), (16, 150), followers=[Follower("Add", (7, 150), weight=True)])
    cases.product("column_bias", (7, 16), (16, 50), followers=[Follower("Add", (7, 1), weight=True)])
    cases.product("scaled", (7, 33), (33, 50), followers=[Follower("Mul", (1,)), Follower("Exp")])
    cases.product(
        "masked", (1, 3, 7, 16), (1, 3, 16, 9), weight=False, bias=False, followers=[Follower("Add", (1, 1, 7, 9))]
    )
    cases.product("many", (3, 13, 5), (3, 5, 70), weight=False, bias=False)
    matrices = cases.source("shared_vector.x", (3, 33, 7))
    shared = cases.builder.op("MatMul", "shared_vector", cases.builder.weight(1, 33), matrices)
    cases.finish("shared_vector", shared, (3, 1, 7))
    turned = cases.builder.op("Transpose", "turned.y.turned", cases.source("turned.y", (3, 9, 16)), perm=[0, 2, 1])
    cases.finish(
        "turned", cases.builder.op("MatMul", "turned", cases.source("turned.x", (3, 7, 16)), turned), (3, 7, 9)
    )


def add_joins(cases: Cases) -> None:
    """Concatenations of images whose channels are whole vectors, or begin and end in the middle of one."""
    cases.joined("joined", (1, 128, 5, 9), (64, 64))
    cases.joined("joined_odd", (3, 57, 4, 7), (3, 20, 1, 33))
    norm = [Follower("Mul", (1, 96, 1, 1), weight=True), Follower("Relu"), Follower("Add", (2, 96, 3, 19))]
    cases.joined("joined_normalized", (2, 96, 3, 19), (16, 32, 48), norm)
    cases.joined("joined_pixels", (1, 237, 1, 1), (200, 37), [Follower("Mul", (1, 1, 1, 1)), Follower("Sigmoid")])


def add_slices(cases: Cases) -> None:
    """Slices of images by themselves, of slices, and concatenated with other images."""
    cases.sliced("sliced_channels", (2, 70, 5, 7), [(1, 1, 70, 2)], followers=[Follower("Relu")])
    cases.sliced("sliced_to_the_end", (1, 96, 3, 5), [(1, 1, 96, 2)])
    cases.sliced("sliced_thirds", (1, 50, 3, 5), [(1, 2, 50, 3)], [20])
    cases.sliced("sliced_blocks", (1, 96, 4, 9), [(1, 32, 80, 1)], [16, 32])
    cases.sliced("sliced_middle", (3, 70, 4, 9), [(1, 5, 44, 1)], [7], [Follower("Add", (3, 46, 4, 9))])
    cases.sliced("sliced_pixels", (2, 3, 9, 14), [(2, 1, 9, 2), (3, 0, 14, 2)], [3, 4])
    cases.sliced("sliced_batch", (5, 32, 3, 4), [(0, 1, 5, 2), (3, 1, 4, 1)])
    cases.sliced("sliced_twice", (1, 96, 3, 4), [(1, 3, 95, 2), (1, 2, 46, 3)])


def add_enlarged(cases: Cases) -> None:
    """Images enlarged to the nearest pixels, by themselves, concatenated with others, and followed by other ops."""
    cases.enlarged("enlarged", (1, 64, 5, 7), (2, 2))
    halves = ("half_pixel", "round_prefer_floor")
    cases.enlarged("enlarged_unevenly", (3, 37, 5, 7), (2, 3), followers=[Follower("Relu")], positions=halves)
    cases.enlarged("enlarged_rows", (2, 21, 4, 1), (4, 1), others=[3], followers=[Follower("Add", (2, 24, 16, 1))])
    cases.enlarged("enlarged_joined", (1, 48, 3, 9), (2, 2), others=[16, 32])
    cases.enlarged("enlarged_pixel", (8, 33, 1, 1), (8, 8), others=[20])
    cases.enlarged("enlarged_one_channel", (1, 1, 3, 5), (2, 2), others=[31])


def add_rows(cases: Cases) -> None:
    """Softmax and normalization over rows within a vector, some vectors, and more than are written out."""
    cases.rows("softmax_image", "Softmax", (2, 3, 5, 33))
    cases.rows("softmax_short", "Softmax", (3, 5))
    cases.rows("softmax_row", "Softmax", (1, 1000))
    cases.rows("softmax_long", "Softmax", (2, 3, 2500))
    cases.rows("softmax_longest", "Softmax", (3, 20000))
    cases.rows("softmax_one", "Softmax", (4, 1))
    cases.rows("normalized", "LayerNormalization", (2, 5, 384), 2)
    cases.rows("normalized_short", "LayerNormalization", (7, 10), 2)
    cases.rows("normalized_long", "LayerNormalization", (1, 3, 1111), 2)


def kernel_cases() -> Cases:
    """All of them."""
    cases = Cases()
    adders = (
        add_windows_of_pixels,
        add_filters,
        add_channels,
        add_single_channels,
        add_few_channels,
        add_operands,
        add_windows,
    )
    for add in (*adders, add_products, add_joins, add_slices, add_enlarged, add_rows):
        add(cases)
    return cases


def kernel_model() -> ModelProto:
    """All of them in one model."""
    return kernel_cases().model()


def _tilings(*rows: tuple[int, int, int, int, int, int]) -> list[Parameters]:
    names = ("lines", "columns", "vectors", "row_groups", "panel_groups", "unroll")
    return [dict(zip(names, row, strict=True)) for row in rows]


# Tiles of one pixel, tiles beyond the image, tiles of several lines, workgroups of uneven numbers of rows and panels.
_EXTREME = _tilings(
    (1, 1, 1, 9, 1, 1),
    (1, 3, 8, 5, 3, 4),
    (1, 20, 1, 3, 1, 3),
    (1, 5, 2, 99, 14, 3),
    (2, 3, 2, 1, 5, 2),
    (4, 9, 1, 1, 1, 7),
)
_WINDOWS = _tilings((1, 1, 1, 9, 2, 1), (1, 3, 8, 5, 3, 1), (1, 20, 1, 99, 1, 1))
_ROWS = _EXTREME[:4]
# More workgroups than rows, of which some have none, and in planes more vectors than a row has.
_SUMS: list[Parameters] = [{"vectors": 1, "row_groups": 30}]
_PLANES: list[Parameters] = [*_SUMS, {"vectors": 9, "row_groups": 1}]
# Tiles wider than a row, which begin with a pixel's first repetition.
_REPEATED = _tilings((1, 96, 1, 1, 1, 1), (1, 6, 9, 99, 1, 1))


def extreme_winograd(*tiles: int) -> Iterator[Parameters]:
    """One tile at a time by more workgroups than there are, and blocks larger than the image."""
    for tile in tiles:
        yield from _extreme_tiles(tile, tile)


def _extreme_tiles(height: int, width: int) -> Iterator[Parameters]:
    """The same for tiles whose sides differ."""
    names = ("height", "width", "columns", "vectors", "block", "groups", "panels", "unroll")
    for sizes in ((1, 1, 1, 30, 1, 1), (3, 8, 6, 1, 99, 3), (2, 2, 64, 3, 2, 1)):
        yield dict(zip(names, (height, width, *sizes), strict=True))


def _in_turn(first: int, *tiles: tuple[int, int]) -> list[Parameters]:
    """Each tile by one of these partitions.

    What a tile's transforms compute does not depend on the partition, which 3x3 filters are tried with in all ways.
    """
    return [list(_extreme_tiles(*tile))[(first + turn) % 3] for turn, tile in enumerate(tiles)]


EXTREME: Mapping[str, Mapping[str, list[Parameters]]] = {
    "images3": {"direct": _EXTREME, "fused_winograd": [*extreme_winograd(2), *list(extreme_winograd(4, 6))[2:4]]},
    "uneven_padding": {"direct_blocked": _EXTREME, "fused_winograd_blocked": list(extreme_winograd(4))[1:]},
    "one_pixel3x3": {"direct": _ROWS[:1], "fused_winograd": list(extreme_winograd(6))[:1]},
    "filter2x2": {"fused_winograd": _in_turn(0, (2, 2), (5, 5), (7, 7))},
    "filter4x4": {"fused_winograd": _in_turn(1, (2, 2), (3, 3), (4, 4), (5, 5))},
    "filter5x5": {
        "fused_winograd": _in_turn(2, (2, 2), (4, 4)),
        "fused_winograd_blocked": _in_turn(1, (3, 3)),
    },
    "filter6x6": {"fused_winograd": _in_turn(0, (2, 2), (3, 3))},
    "filter7x7": {"fused_winograd": _in_turn(2, (2, 2)), "fused_winograd_blocked": _in_turn(1, (1, 1))},
    "filter1x7": {"fused_winograd": _in_turn(0, (1, 2), (3, 2))},
    "filter7x1": {"fused_winograd": _in_turn(1, (2, 1)), "fused_winograd_blocked": _in_turn(2, (2, 4))},
    "filter2x5": {"fused_winograd": _in_turn(1, (7, 4), (2, 3))},
    "squeeze_excite": {"direct": _ROWS},
    "apart_stride3": {"window": _WINDOWS},
    "apart_wide_padding": {"window_blocked": _WINDOWS},
    "max_uneven_padding": {"window": _WINDOWS},
    "single": {"single": _SUMS, "single_blocked": _SUMS, "single_planes": _PLANES},
    "several": {"few": _SUMS, "few_blocked": _SUMS, "few_planes": _PLANES},
    "enlarged": {"join_enlarged": _REPEATED, "join_enlarged_blocked": _REPEATED},
    "enlarged_unevenly": {"join_enlarged": _REPEATED},
    "odd": {"product": _ROWS},
    "many": {"product": _ROWS},
}
