"""Copies of rows hold what windows read: padding, phases of pixels, whole rows, planes of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.access import ImageStrides, image_strides, plane_strides
from sartor.codegen.kernels.loops.staging import Staging, most_rows
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.mlir.iree_compiler import ir
from sartor.runtime.driver.signature import Array
from tests.codegen.kernels.small_kernels import SmallKernel, run_kernels

BEYOND = 64
# What is not written keeps this.
UNTOUCHED = 7.0
ROOM = 50


@dataclass(frozen=True)
class Case:
    """An image ``[N, C, H, W]`` of which the second one is copied, and how.

    Attributes:
        image: its shape.
        columns: kernel, stride, dilation, padding left and right.
        depth: channels of a copied pixel.
        first: row of the image that the copy begins with.
        is_whole: whether rows stay whole.
        in_planes: whether channels lie in planes.
        dtype: of the image.
    """

    image: tuple[int, int, int, int]
    columns: tuple[int, int, int, int, int]
    depth: int
    first: int = -1
    is_whole: bool = False
    in_planes: bool = False
    dtype: str = "f32"

    @property
    def strides(self) -> ImageStrides:
        tensor = TensorType(self.image, self.dtype)
        return plane_strides(tensor) if self.in_planes else image_strides(tensor, "nhwc")

    @property
    def axis(self) -> Axis:
        kernel, stride, dilation, left, right = self.columns
        output = (self.image[3] + left + right - dilation * (kernel - 1) - 1) // stride + 1
        return Axis(self.image[3], output, kernel, stride, dilation, left)

    @property
    def staging(self) -> Staging:
        rows = Axis(self.image[2], 1, 3, 1, 1, 1)
        return Staging(rows, self.axis, self.strides, self.image[1], self.depth, ROWS, self.is_whole)

    @property
    def values(self) -> Array:
        return np.random.default_rng(3).standard_normal(self.image).astype(np.float32)


ROWS = 4
CASES = {
    "padded": Case((2, 5, 3, 6), (3, 1, 1, 1, 1), 8),
    "bf16": Case((2, 5, 3, 6), (3, 1, 1, 1, 1), 8, dtype="bf16"),
    "whole_pixels": Case((2, 8, 3, 6), (3, 1, 1, 2, 0), 8, dtype="bf16"),
    "uneven": Case((2, 6, 4, 5), (4, 1, 1, 3, 0), 6, first=0),
    "stride2": Case((2, 5, 3, 7), (3, 2, 1, 1, 1), 6),
    "stride3_small_kernel": Case((2, 6, 3, 11), (2, 3, 1, 0, 1), 8),
    "one_tap_stride3": Case((2, 4, 3, 10), (1, 3, 1, 0, 0), 4),
    "dilated_stride2": Case((2, 3, 3, 12), (3, 2, 3, 2, 4), 4, first=2),
    "wide_padding": Case((2, 3, 1, 2), (3, 1, 1, 9, 8), 4, first=-3),
    "whole_rows": Case((2, 3, 3, 7), (3, 2, 1, 1, 2), 4, is_whole=True),
    "one_channel": Case((2, 1, 3, 9), (5, 1, 1, 2, 2), 2, is_whole=True),
    "planes": Case((2, 3, 3, 13), (3, 2, 1, 1, 1), 4, is_whole=True, in_planes=True),
    "two_planes": Case((2, 2, 3, 4), (3, 1, 1, 1, 1), 2, is_whole=True, in_planes=True),
    "planes_apart": Case((2, 3, 3, 9), (3, 1, 2, 2, 2), 8, in_planes=True),
}


def _kernel(case: Case, lanes: int) -> SmallKernel:
    staging = case.staging

    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        filling = asm.load(memories[1], 0, asm.lanes)
        size = 2 * ROOM + staging.elements
        for start in range(0, size, asm.lanes):
            asm.store(filling, memories[-1], start, min(asm.lanes, size - start))
        staging.write(asm, memories[0], 1, memories[-1], ROOM, (case.first, ROWS))

    order = (0, 1, 2, 3) if case.in_planes else (0, 2, 3, 1)
    image = np.ascontiguousarray(case.values.transpose(order)).ravel()
    image = image.astype(TensorType((), case.dtype).numpy_dtype)
    inputs = [image, np.full(lanes, UNTOUCHED, np.float32)]
    return SmallKernel(write, inputs, 2 * ROOM + staging.elements, dtype="bf16", lanes=lanes)


def _pixel(case: Case, row: int, column: int) -> list[float]:
    """The channels of a pixel of the second image, filled up with zeros; zeros outside."""
    _, channels, height, width = case.image
    inside = 0 <= row < height and 0 <= column < width
    found = case.values[1, :, row, column] if inside else np.zeros(channels, np.float32)
    rounded = found.astype(ml_dtypes.bfloat16).astype(np.float32)
    return [*rounded.tolist(), *[0.0] * (case.depth - channels)]


@pytest.fixture(scope="module", params=[4, 16])
def results(request: pytest.FixtureRequest) -> dict[str, Array]:
    found = run_kernels({name: _kernel(case, request.param) for name, case in CASES.items()})
    return {name: each.astype(np.float32) for name, each in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_tap_of_every_window_is_where_it_is_looked_for(name: str, results: dict[str, Array]) -> None:
    case, copy = CASES[name], results[name][ROOM:]
    staging, axis = case.staging, case.axis
    for row in range(ROWS):
        for window in range(axis.output):
            for tap in range(axis.kernel):
                column = window * axis.stride + tap * axis.dilation - axis.padding
                begin = row * staging.row + window * staging.pixel + staging.tap(tap)
                found = copy[begin : begin + case.depth].tolist()
                assert found == _pixel(case, case.first + row, column), (row, window, tap)


@pytest.mark.parametrize("name", CASES)
def test_a_copy_is_complete_and_followed_by_zeros(name: str, results: dict[str, Array]) -> None:
    staging, found = CASES[name].staging, results[name]
    assert staging.elements == ROWS * staging.row + BEYOND
    assert (found[:ROOM] == UNTOUCHED).all()
    assert (found[ROOM + staging.elements :] == UNTOUCHED).all()
    assert not (found[ROOM : ROOM + staging.elements] == UNTOUCHED).any()
    assert not found[ROOM + ROWS * staging.row : ROOM + staging.elements].any()


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_no_longer_than_its_windows(name: str) -> None:
    case = CASES[name]
    staging, axis = case.staging, case.axis
    last = (axis.output - 1) * staging.pixel + max(map(staging.tap, range(axis.kernel)))
    assert last + case.depth <= staging.row
    assert staging.phases <= (1 if case.is_whole else axis.stride)
    assert staging.row == staging.phases * staging.pixels * case.depth


def test_windows_that_do_not_reach_the_next_phase_have_none() -> None:
    case = CASES["one_tap_stride3"]
    assert case.staging.phases == 1
    assert replace(case, columns=(2, 3, 1, 0, 0)).staging.phases == 2
    assert replace(case, columns=(7, 3, 1, 3, 3)).staging.phases == 3


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "lines", "expected"),
    [(3, 1, 1, 1, 3), (3, 2, 1, 4, 9), (1, 3, 1, 2, 4), (3, 1, 2, 2, 6)],
)
def test_rows_that_are_copied_are_those_that_are_read(
    kernel: int, stride: int, dilation: int, lines: int, expected: int
) -> None:
    assert most_rows(Axis(50, 20, kernel, stride, dilation, 0), lines) == expected
