"""Sizes with AMX fit its tiles and cover the layer; packed weights, multiplied so, give the layer."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing, Step
from sartor.codegen.kernels.amx.contraction import filled
from sartor.codegen.kernels.amx.packing import pack_filters, pack_matrix, pack_runs
from sartor.codegen.kernels.amx.tilings import TileTiling, TileWork, tile_tilings
from sartor.codegen.kernels.isa.amx import BFLOAT, ROWS, TILES
from sartor.codegen.mlir.machine import Machine
from sartor.runtime.driver.signature import Array

AVX512 = Machine(64, 28)

machines = st.builds(lambda threads: replace(AVX512, threads=threads), st.integers(1, 16))
works = st.builds(
    TileWork,
    rows=st.integers(1, 60),
    columns=st.integers(1, 150),
    channels=st.integers(1, 700),
    depth=st.integers(1, 5000),
    taps=st.integers(1, 49),
    positions_join=st.booleans(),
    batches=st.integers(1, 40),
    is_copied=st.booleans(),
)


def _extents(work: TileWork) -> tuple[int, int]:
    return (1, work.rows * work.columns) if work.positions_join else (work.rows, work.columns)


@given(works, machines)
def test_blocks_fit_the_unit_and_the_layer(work: TileWork, machine: Machine) -> None:
    found = tile_tilings(work, machine, BFLOAT)
    rows, columns = _extents(work)
    assert found
    assert len(set(found)) == len(found)
    for tiling in found:
        tile_positions = tiling.lines * tiling.tiles
        assert tile_positions * tiling.vectors + tile_positions + 1 <= TILES
        assert 1 <= tiling.pixels <= min(ROWS, columns)
        assert 1 <= tiling.lines <= rows
        assert 1 <= tiling.vectors <= -(-work.channels // machine.lanes)
        assert tiling.depth <= BFLOAT.depth
        assert tiling.depth % BFLOAT.group == 0


@given(works, machines)
def test_no_workgroup_is_without_work(work: TileWork, machine: Machine) -> None:
    rows, columns = _extents(work)
    for tiling in tile_tilings(work, machine, BFLOAT):
        blocks = -(-columns // (tiling.tiles * tiling.pixels))
        strips = blocks if rows == 1 else -(-rows // tiling.lines)
        assert 1 <= tiling.row_groups <= strips
        assert 1 <= tiling.panel_groups <= -(-work.channels // (tiling.vectors * machine.lanes))


@given(works, machines)
def test_a_row_of_a_tile_is_used_well(work: TileWork, machine: Machine) -> None:
    """Zeros that fill up the last chunk of a run are less than a chunk's share of them, or a group."""
    for tiling in tile_tilings(work, machine, BFLOAT):
        chunks = -(-work.depth // tiling.depth)
        assert chunks * tiling.depth - work.depth < BFLOAT.group * chunks
        assert chunks <= 2 * -(-work.depth // BFLOAT.depth)


@pytest.mark.parametrize(
    ("depth", "expected"),
    [(64, 32), (32, 32), (24, 24), (48, 24), (40, 20), (1, 2), (3, 4), (19, 20), (33, 18), (144, 24)],
)
def test_the_depth_divides_the_channels_where_it_can(depth: int, expected: int) -> None:
    work = TileWork(8, 8, 64, depth, 9, positions_join=False)
    assert {tile_tiling.depth for tile_tiling in tile_tilings(work, AVX512, BFLOAT)} == {expected}


@pytest.mark.parametrize(
    ("rows", "columns", "channels", "taps", "best"),
    [
        (56, 56, 64, 9, (2, 1, 14, 2)),
        (56, 56, 64, 1, (1, 2, 14, 2)),
        (14, 14, 256, 9, (2, 1, 14, 2)),
        (1, 1, 1000, 9, (1, 1, 1, 4)),
        (7, 7, 10, 9, (2, 1, 7, 1)),
    ],
)
def test_the_best_guess_uses_each_tile_twice(
    rows: int, columns: int, channels: int, taps: int, best: tuple[int, int, int, int]
) -> None:
    first = tile_tilings(TileWork(rows, columns, channels, 64, taps, positions_join=False), AVX512, BFLOAT)[0]
    assert (first.lines, first.tiles, first.pixels, first.vectors) == best


def test_filters_that_stay_in_the_cache_are_shared_out_last() -> None:
    """Every workgroup reads all filters of its panels."""
    small = tile_tilings(TileWork(56, 56, 64, 64, 9, positions_join=False), AVX512, BFLOAT)
    large = tile_tilings(TileWork(7, 7, 512, 512, 9, positions_join=False), AVX512, BFLOAT)
    assert small[0].row_groups > 1
    assert large[0].row_groups == 1
    assert any(each.row_groups == 1 < each.panel_groups for each in large)


@pytest.mark.parametrize(("side", "channels", "groups"), [(28, 128, 4), (112, 128, 7), (224, 64, 13), (7, 512, 4)])
def test_windows_are_shared_out_in_what_the_cache_holds(side: int, channels: int, groups: int) -> None:
    """Every share copies two rows more than it computes."""
    found = tile_tilings(TileWork(side, side, channels, channels, 9, positions_join=False), AVX512, BFLOAT)
    assert {each.row_groups for each in found if each.lines == 2} == {1, groups}


@pytest.mark.parametrize(("threads", "side", "alone"), [(1, 14, True), (2, 14, False), (2, 7, True)])
def test_a_long_product_is_not_one_workgroup_while_others_fall_asleep(threads: int, side: int, alone: bool) -> None:
    work = TileWork(rows=side, columns=side, channels=32, depth=128, taps=9, positions_join=False)
    found = tile_tilings(work, replace(AVX512, threads=threads), BFLOAT)
    assert any(each.row_groups * each.panel_groups == 1 for each in found) == alone
    assert any(each.row_groups > 1 for each in found)


def test_sizes_are_parameters_and_back() -> None:
    tiling = TileTiling(1, 2, 14, 2, 32, 7, 1)
    assert TileTiling.of(tiling.parameters()) == tiling


@given(st.integers(1, 64))
def test_pixels_of_a_run_are_filled_up_to_powers_of_two(channels: int) -> None:
    found = filled(channels, BFLOAT)
    assert found >= max(channels, BFLOAT.group)
    assert found & (found - 1) == 0
    assert found < 2 * max(channels, BFLOAT.group)


@given(works, machines)
def test_panels_that_are_copied_are_shared_out_by_rows_last(work: TileWork, machine: Machine) -> None:
    for tiling in tile_tilings(replace(work, is_copied=True), machine, BFLOAT):
        panels = -(-work.channels // (tiling.vectors * machine.lanes))
        assert tiling.row_groups == 1 or tiling.panel_groups == panels


def test_many_products_are_not_cut() -> None:
    work = TileWork(1, 128, 128, 32, 1, positions_join=True, batches=40, is_copied=True)
    assert {
        (tile_tiling.row_groups, tile_tiling.panel_groups) for tile_tiling in tile_tilings(work, AVX512, BFLOAT)
    } == {(1, 1)}


LANES = 4
GROUP = BFLOAT.group


def _tiling(vectors: int, depth: int) -> TileTiling:
    return TileTiling(1, 1, 1, vectors, depth, 1, 1)


def _numbers(shape: tuple[int, ...]) -> Array:
    """Different numbers, all of which bf16 has."""
    return (np.arange(np.prod(shape)) % 251 - 100).astype(np.float32).reshape(shape)


def _packed(weights: Array, steps: tuple[Step, ...]) -> Array:
    packing = Packing(steps)
    packed = packing.apply(weights)
    assert packed.dtype == np.dtype(ml_dtypes.bfloat16)
    assert packing.type_of(TensorType(weights.shape, "f32")) == TensorType(packed.shape, "bf16")
    return packed.astype(np.float32)


def _tile_product(pixels: Array, tile: Array) -> Array:
    """``sum[m, n] += a[m, 2k] b[k, 2n] + a[m, 2k + 1] b[k, 2n + 1]`` (Intel, chapter 3, TDPBF16PS)."""
    sums: Array = np.einsum("mkg,kng->mn", pixels.reshape(len(pixels), -1, GROUP), tile)
    return sums


def _chunks(runs: Array, panel: Array) -> Array:
    """Sums of a panel ``[chunk, vector, depth / group, lanes, group]`` over runs of numbers, one for each pixel."""
    chunks, vectors, pairs, _, group = panel.shape
    padded = np.zeros((len(runs), chunks * pairs * group), np.float32)
    padded[:, : runs.shape[1]] = runs
    parts = padded.reshape(len(runs), chunks, pairs * group)
    sums = [
        sum(_tile_product(parts[:, index], panel[index, vector]) for index in range(chunks))
        for vector in range(vectors)
    ]
    return np.concatenate(sums, axis=1)


@pytest.mark.parametrize(
    ("shape", "vectors", "depth"),
    [((10, 7, 3, 2), 2, 4), ((8, 8, 1, 1), 1, 8), ((3, 5, 2, 3), 3, 6), ((13, 1, 2, 2), 2, 2), ((4, 33, 1, 3), 1, 32)],
)
def test_filters_in_tiles_multiply_the_channels_of_every_tap(
    shape: tuple[int, int, int, int], vectors: int, depth: int
) -> None:
    filters = _numbers(shape)
    packed = _packed(filters, pack_filters(TensorType(shape, "f32"), _tiling(vectors, depth), LANES, BFLOAT))
    channels, inner, height, width = shape
    panels, chunks = -(-channels // (vectors * LANES)), -(-inner // depth)
    assert packed.shape == (panels, height, width, chunks, vectors, depth // GROUP, LANES, GROUP)
    pixels = _numbers((6, inner))
    for row, column in np.ndindex(height, width):
        sums = np.concatenate([_chunks(pixels, packed[panel, row, column]) for panel in range(panels)], axis=1)
        np.testing.assert_array_equal(sums[:, :channels], pixels @ filters[:, :, row, column].T)
        assert not sums[:, channels:].any()


@pytest.mark.parametrize(
    ("shape", "pixel", "vectors", "depth"),
    [((10, 3, 2, 7), 4, 2, 28), ((5, 1, 3, 3), 2, 1, 6), ((9, 5, 1, 4), 8, 3, 20), ((4, 2, 2, 5), 2, 1, 4)],
)
def test_runs_multiply_all_taps_of_a_row(
    shape: tuple[int, int, int, int], pixel: int, vectors: int, depth: int
) -> None:
    filters = _numbers(shape)
    packed = _packed(filters, pack_runs(TensorType(shape, "f32"), pixel, _tiling(vectors, depth), LANES, BFLOAT))
    channels, inner, height, width = shape
    panels, chunks = -(-channels // (vectors * LANES)), -(-width * pixel // depth)
    assert packed.shape == (panels, height, chunks, vectors, depth // GROUP, LANES, GROUP)
    windows = _numbers((6, width, inner))
    runs = np.zeros((6, width, pixel), np.float32)
    runs[:, :, :inner] = windows
    for row in range(height):
        parts = [_chunks(runs.reshape(6, -1), packed[panel, row]) for panel in range(panels)]
        sums = np.concatenate(parts, axis=1)
        np.testing.assert_array_equal(sums[:, :channels], np.einsum("pwi,oiw->po", windows, filters[:, :, row]))
        assert not sums[:, channels:].any()


@pytest.mark.parametrize(
    ("depth", "columns", "vectors", "size"), [(7, 10, 2, 4), (32, 4, 1, 32), (1, 1, 1, 2), (65, 30, 6, 22)]
)
def test_a_matrix_in_tiles_multiplies_rows(depth: int, columns: int, vectors: int, size: int) -> None:
    matrix = _numbers((depth, columns))
    packed = _packed(matrix, pack_matrix(TensorType(matrix.shape, "f32"), _tiling(vectors, size), LANES, BFLOAT))
    panels, chunks = -(-columns // (vectors * LANES)), -(-depth // size)
    assert packed.shape == (panels, chunks, vectors, size // GROUP, LANES, GROUP)
    rows = _numbers((5, depth))
    sums = np.concatenate([_chunks(rows, packed[panel]) for panel in range(panels)], axis=1)
    np.testing.assert_array_equal(sums[:, :columns], rows @ matrix)
    assert not sums[:, columns:].any()
