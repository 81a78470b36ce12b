"""The workspace of Winograd's method in integers: its parts hold what is written and read there."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest

from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS, DotProduct
from sartor.codegen.kernels.loops.access import ImageStrides
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.winograd.geometry import SHORT_BYTES, WinogradConvolution, WinogradTiling

LANES, REGISTER, WORD = 16, 64, 4
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
        lanes=LANES,
        tiling=TILING,
        multiplier=DotProduct(INTEGER_DOTS, has_sign=False),
    )


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("depth", [16, 17, 31, 32, 33, 63, 64, 65, 130, 512])
def test_every_part_holds_whole_vectors(depth: int, kernel: int) -> None:
    form = _form(depth, kernel)
    shorts = -(-depth // (2 * LANES)) * 2 * LANES
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
    assert parts[-1][0] + -(-form.points // LANES) * LANES * SHORT_BYTES <= form.workspace
    assert form.points * WORD <= form.scale_row
    assert all(start % REGISTER == 0 for start, _ in parts)
    assert form.workspace % REGISTER == 0
