"""Winograd's transforms as they are written out, and the workspace of those in integers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

from sartor.codegen.ir.winograd import exact_transforms, transforms
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotProduct
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.winograd.geometry import SHORT_BYTES, WinogradConvolution, WinogradTiling
from sartor.codegen.kernels.winograd.matrix import Row, transform
from sartor.codegen.mlir.iree_compiler import arith, ir
from tests.codegen.kernels.small_kernels import LANES, SmallKernel, run_kernels

# Rows that are mirrored, negated, of one number, with and without a one.
ODD: tuple[Row, ...] = tuple(
    tuple(map(Fraction, row.split())) for row in ("1 2 3", "1 -2 3", "0 -1/2 0", "-1 -2 -3", "0 0 -1", "5 0 1")
)
MATRICES = {
    **{f"image{tile}": transforms(tile).image for tile in (2, 4, 6)},
    **{f"result{tile}": transforms(tile).result for tile in (2, 4, 6)},
    **{f"image3x{kernel}": transforms(3, kernel).image for kernel in (4, 5, 6)},
    **{f"result3x{kernel}": transforms(3, kernel).result for kernel in (4, 5, 6)},
    "odd": ODD,
}
WHOLE = {
    **{f"image{tile}": exact_transforms(tile)[0].image for tile in (2, 3, 4)},
    **{f"result{tile}": exact_transforms(tile)[0].result for tile in (2, 3, 4)},
    "common": (tuple(map(Fraction, (0, -6, 9, 0))), tuple(map(Fraction, (-1, 0, -2, -5)))),
}
# Twice the roundings of the longest sum, relative to its terms.
MAX_ERROR = 2 * 8 * 2.0**-24


def _writer(matrix: Sequence[Row]) -> SmallKernel:
    columns = len(matrix[0])
    given = np.random.default_rng(len(matrix)).standard_normal(columns * LANES).astype(np.float32)

    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        source, target = memories
        vectors = [asm.load(source, index * LANES, LANES) for index in range(columns)]
        for index, value in enumerate(transform(asm, matrix, vectors)):
            asm.store(value, target, index * LANES, LANES)

    return SmallKernel(write, [given], len(matrix) * LANES)


@pytest.fixture(scope="module")
def kernels() -> dict[str, SmallKernel]:
    return {name: _writer(matrix) for name, matrix in MATRICES.items()}


def test_transforms_are_products_by_their_matrices(kernels: dict[str, SmallKernel]) -> None:
    for name, result in run_kernels(kernels).items():
        matrix = np.array([[float(each) for each in row] for row in MATRICES[name]])
        given = kernels[name].inputs[0].astype(np.float64).reshape(-1, LANES)
        errors = np.abs(result.reshape(-1, LANES) - matrix @ given)
        assert (errors <= MAX_ERROR * (np.abs(matrix) @ np.abs(given))).all(), name


def test_integers_are_transformed_modulo_their_type() -> None:
    kernels = {name: _whole_writer(matrix) for name, matrix in WHOLE.items()}
    for name, result in run_kernels(kernels).items():
        matrix = np.array([[int(each) for each in row] for row in WHOLE[name]], np.int64)
        given = kernels[name].inputs[0].view(np.int32).astype(np.int64).reshape(-1, LANES)
        expected = (matrix @ given).astype(np.int32)
        np.testing.assert_array_equal(result.view(np.int32).reshape(-1, LANES), expected, name)


def _whole_writer(matrix: Sequence[Row]) -> SmallKernel:
    columns = len(matrix[0])
    given = np.random.default_rng(len(matrix)).integers(-(2**31), 2**31, columns * LANES, np.int32)

    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        source, target = memories
        words = ir.VectorType.get([LANES], ir.IntegerType.get_signless(32))
        vectors = [arith.bitcast(words, asm.load(source, index * LANES, LANES)) for index in range(columns)]
        for index, value in enumerate(transform(asm, matrix, vectors)):
            real = arith.bitcast(ir.VectorType.get([LANES], ir.F32Type.get()), value)
            asm.store(real, target, index * LANES, LANES)

    return SmallKernel(write, [given.view(np.float32)], len(matrix) * LANES)


@pytest.mark.parametrize("name", ["image4", "image6"])
def test_mirrored_rows_share_their_sums(name: str) -> None:
    assert _operations(MATRICES[name]) < sum(_operations([row]) for row in MATRICES[name])


def _operations(matrix: Sequence[Row]) -> int:
    """Ops on vectors that a transform emits."""
    arguments = ", ".join(f"%a{index}: vector<{LANES}xf32>" for index in range(len(matrix[0])))
    with ir.Context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(f"func.func @f({arguments}) {{ return }}")
        block = module.body.operations[0].regions[0].blocks[0]
        with ir.InsertionPoint(block.operations[0]):
            transform(Assembler(block, LANES), matrix, list(block.arguments))
        names = [view.operation.name for view in block.operations]
        return len(names) - names.count("arith.constant") - 1


WORKSPACE_LANES, REGISTER, WORD = 16, 64, 4
TILING = WinogradTiling(height=2, width=2, columns=3, vectors=2, block=6, groups=2, panels=1, unroll=2)


def _form(depth: int, kernel: int) -> WinogradConvolution:
    axis = Axis(14, 14, kernel, 1, 1, 1)
    return WinogradConvolution(
        batches=1,
        depth=depth,
        channels=64,
        rows=axis,
        columns=axis,
        image=ImageStrides(14 * 14 * depth, 14 * depth, depth, depth, depth),
        memories=(0, 1),
        result=cast(Any, None),
        epilogue=cast(Any, None),
        lanes=WORKSPACE_LANES,
        tiling=TILING,
        multiplier=DotProduct(INTEGER_DOTS, has_sign=False),
    )


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("depth", [16, 17, 31, 32, 33, 63, 64, 65, 130, 512])
def test_every_part_holds_whole_vectors(depth: int, kernel: int) -> None:
    form = _form(depth, kernel)
    shorts = -(-depth // (2 * WORKSPACE_LANES)) * 2 * WORKSPACE_LANES
    assert form.points == (kernel + 1) ** 2
    assert shorts * SHORT_BYTES <= form.short_row
    assert shorts <= form.row
    assert form.steps * WORD <= form.row
    sizes = {
        "encoded": (0, form.points * TILING.block * form.row),
        "products": (form.encoded, form.points * TILING.block * form.panel * WORD),
        "scales": (form.scales, TILING.block * form.scale_row),
        "shorts": (form.shorts, form.points * form.short_row),
        "multipliers": (form.multipliers, form.points * SHORT_BYTES),
    }
    parts = sorted(sizes.values())
    assert all(start + size <= following for (start, size), (following, _) in itertools.pairwise(parts))
    assert parts[-1][0] + -(-form.points // WORKSPACE_LANES) * WORKSPACE_LANES * SHORT_BYTES <= form.workspace
    assert form.points * WORD <= form.scale_row
    assert all(start % REGISTER == 0 for start, _ in parts)
    assert form.workspace % REGISTER == 0
