"""Tilings fit the registers of the machine, and shares of work add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.codegen.analysis.convolution import Convolution, Window
from sartor.codegen.analysis.winograd_tiles import OutputTile
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.kernels.loops.tilings import (
    Shape,
    Work,
    chunk,
    register_shapes,
    shared_by_rows,
    tilings,
    with_panels_of_many,
)
from sartor.codegen.kernels.windows.window import window_tilings
from sartor.codegen.kernels.winograd.convolution import winograd_tilings
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.routines.vector.neon_dots import SMMLA

AVX512, AVX2, NEON = Machine(64, 28), Machine(32, 12), Machine(16, 28)
MACHINES = (AVX512, AVX2, NEON)
SUBGROUPS = Machine(32, 41, in_subgroups=True)

machines = st.sampled_from(MACHINES)
extents = st.integers(1, 60)
channels = st.integers(1, 300)


def registers(machine: Machine, pixels: int, vectors: int) -> int:
    """Vector registers of a step: its sums, its vectors, and the number that they are multiplied by, which
    instructions of AVX-512 take from memory."""
    return pixels * vectors + vectors + (0 if machine is AVX512 else 1)


@given(extents, extents, channels, st.integers(1, 5000), st.booleans(), machines)
def test_register_tiles_fit(rows: int, columns: int, count: int, depth: int, joined: bool, machine: Machine) -> None:
    found = tilings(Work(rows, columns, count, depth, joined), machine)
    assert found
    assert len(set(found)) == len(found)
    for tiling in found:
        pixels = tiling.lines * tiling.columns
        assert pixels * tiling.vectors <= machine.accumulators
        assert registers(machine, pixels, tiling.vectors) <= machine.registers
        assert tiling.vectors <= -(-count // machine.lanes)
        assert tiling.lines <= rows
        assert tiling.columns <= (rows * columns if joined else columns)
        assert tiling.row_groups >= 1
        assert tiling.panel_groups >= 1


def test_one_tile_has_half_of_the_sums() -> None:
    """7 columns of 2 vectors, where the model prefers 11 of 2 and 7 of 3."""
    found = [(tiling.columns, tiling.vectors, tiling.unroll) for tiling in tilings(Work(56, 56, 256, 64, True), AVX512)]
    assert found[:2] == [(11, 2, 2), (7, 3, 2)]
    assert (7, 2, 2) in found
    single = [tiling.columns * tiling.vectors for tiling in tilings(Work(1, 1, 1000, 2048, True), AVX512)]
    assert 14 not in single


@pytest.mark.parametrize("machine", MACHINES)
@given(st.integers(1, 9000), st.integers(1, 5000), st.integers(1, 200))
def test_a_row_is_offered_the_panels_of_many_rows(machine: Machine, count: int, depth: int, rows: int) -> None:
    work = Work(1, 1, count, depth, positions_join=True)
    own = tilings(work, machine)
    found = with_panels_of_many(own, work, machine)
    assert found[: len(own)] == own
    assert len(set(found)) == len(found)
    if work.filter_bytes <= machine.core.resident_bytes:
        assert found == own
    else:
        many = tilings(replace(work, columns=128), machine)
        assert {tiling.vectors for tiling in many} <= {tiling.vectors for tiling in found}
    further = replace(work, columns=1 + rows)
    assert with_panels_of_many(tilings(further, machine), further, machine) == tilings(further, machine)


def test_few_panels_of_any_number_of_rows_are_not_shared() -> None:
    """Three panels keep two threads busy for the time of two, and one does one thread alone."""
    for count in (5, 144, 1536):
        work = Work(1, 3000, count, 144, positions_join=True)
        usual = tilings(work, AVX512)
        found = shared_by_rows(usual, work, AVX512)
        assert {tiling.columns for tiling in found} == {tiling.columns for tiling in usual}
        assert all(tiling.row_groups * tiling.panel_groups >= 4 for tiling in found)
        assert all(tiling in found for tiling in usual if tiling.panel_groups >= 4)


def test_invocations_of_a_gpu_are_offered_no_further_panels() -> None:
    work = Work(1, 1, 8192, 768, positions_join=True)
    assert with_panels_of_many(tilings(work, SUBGROUPS), work, SUBGROUPS) == tilings(work, SUBGROUPS)


@given(extents, extents, channels, st.integers(1, 5000))
def test_an_instruction_gets_the_registers_that_it_needs(rows: int, columns: int, count: int, depth: int) -> None:
    for tiling in tilings(Work(rows, columns, count, depth, False).by(SMMLA), NEON):
        assert tiling.lines * tiling.columns * tiling.vectors <= NEON.accumulators - SMMLA.operands


@given(extents, extents, channels, st.integers(1, 5000), machines)
def test_tiles_of_several_lines_have_all_rows_to_themselves(
    rows: int, columns: int, count: int, depth: int, machine: Machine
) -> None:
    for tiling in tilings(Work(rows, columns, count, depth, False), machine):
        assert tiling.lines == 1 or tiling.row_groups == 1


@pytest.mark.parametrize("machine", MACHINES)
def test_the_best_guess_uses_most_registers(machine: Machine) -> None:
    best = register_shapes(56, 56, 64 // machine.lanes, 576, machine)[0]
    assert best.lines * best.columns * best.vectors >= 2 / 3 * machine.accumulators


@given(st.integers(1, 4000), st.integers(1, 28))
def test_a_chunk_divides_the_positions_and_wastes_little(positions: int, columns: int) -> None:
    size = chunk(positions, columns)
    assert positions % size == 0
    assert size == positions or (columns <= size and -(-size // columns) * columns <= 1.04 * size)


@given(
    extents, extents, st.integers(1, 40), st.integers(1, 10), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9)
)
def test_cycles_count_every_result(
    rows: int, columns: int, vectors: int, lines: int, width: int, wide: int, unroll: int
) -> None:
    """Two multiply-adds start in a cycle at most."""
    cycles = Shape(lines, width, wide, unroll).cycles(rows, columns, vectors, WIDE, 0.0)
    assert cycles >= rows * columns * vectors / 2


def _window(kernel: tuple[int, int], count: int, size: int, weighted: bool) -> Window:
    image, result = TensorType((1, count, size + kernel[0], size), "f32"), TensorType((1, count, size, size), "f32")
    return Window(image, kernel, result, (1, 1), (1, 1), weighted)


def test_windows_are_tried_panel_by_panel_too() -> None:
    found = window_tilings(_window((3, 3), 960, 7, True), AVX512)
    shapes = {(each.columns, each.vectors) for each in found}
    by_panels = {(each.columns, each.vectors) for each in found if each.row_groups == 1 and each.panel_groups > 1}
    assert by_panels == shapes
    assert any(each.row_groups == 7 for each in found)
    assert all(
        window_tiling.row_groups > 1 for window_tiling in window_tilings(_window((3, 3), 960, 7, True), SUBGROUPS)
    )


@given(st.integers(1, 40), channels, extents, st.booleans(), machines)
def test_windows_fit(taps: int, count: int, size: int, weighted: bool, machine: Machine) -> None:
    found = window_tilings(_window((3, taps), count, size, weighted), machine)
    assert found
    for tiling in found:
        held = tiling.columns + (taps if weighted and taps < machine.accumulators else 0)
        assert held * tiling.vectors <= machine.accumulators
        assert tiling.lines == 1
        assert tiling.columns <= size
        assert 1 <= tiling.row_groups <= size


def _convolution(depth: int, count: int, height: int, width: int) -> Convolution:
    image, result = TensorType((1, depth, height + 2, width + 2), "f32"), TensorType((1, count, height, width), "f32")
    return Convolution(image, TensorType((count, depth, 3, 3), "f32"), result, (1, 1), (1, 1))


@pytest.mark.parametrize("tile", [2, 3, 6])
@given(st.integers(16, 600), st.integers(16, 600), extents, extents, st.booleans(), machines)
def test_blocks_of_tiles_divide_into_register_tiles(
    tile: int, depth: int, count: int, height: int, width: int, is_best: bool, machine: Machine
) -> None:
    tiles = -(-height // tile) * -(-width // tile)
    square = OutputTile(tile, tile)
    for tiling in winograd_tilings(_convolution(depth, count, height, width), square, machine, is_best=is_best):
        assert (tiling.height, tiling.width) == (tile, tile)
        assert tiling.block % tiling.columns == 0
        assert tiling.groups <= -(-tiles // tiling.block)
        assert registers(machine, tiling.columns, tiling.vectors) <= machine.registers


def test_the_best_tile_has_blocks_for_caches_of_two_sizes() -> None:
    """Filters of 200 KB fit a cache of 1 MiB beside encoded tiles only if blocks are small."""
    machine = next(each for each in MACHINES if each.lanes == 16)
    layer, tile = _convolution(16, 64, 55, 55), OutputTile(5, 5)
    blocks = {
        winograd_tiling.block
        for winograd_tiling in winograd_tilings(layer, tile, machine, is_best=True)
        if winograd_tiling.columns == 11
    }
    assert blocks == {22, 66}
    others = winograd_tilings(layer, tile, machine, is_best=False)
    assert {other.block for other in others} == {22}
