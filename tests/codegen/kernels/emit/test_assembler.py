"""Index arithmetic, loops and masks do on vectors what they say, and so do vectors that become bytes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.byte_stores import ByteAssembler, Part, stores_to
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.kernels.emit.rounded_numbers import clip, note, rounded
from sartor.codegen.mlir.iree_compiler import arith, ir
from sartor.runtime.driver.signature import Array
from tests.codegen.kernels.small_kernels import LANES, SmallKernel, floats, number, run_kernels

Memories = Sequence[ir.Value]
Group = tuple[Index, Index, Index]

GROUPS = 12
# Each is computed once from numbers known when the kernel is written, once from numbers that are not.
ARITHMETIC: dict[str, Callable[[Assembler, Index], Index]] = {
    "add": lambda asm, index: asm.add(3, index, -5, index),
    "mul": lambda asm, index: asm.add(asm.mul(index, 7), asm.mul(index, 1), asm.mul(index, 0)),
    "sub": lambda asm, index: asm.sub(asm.sub(2, index), -4),
    "divide_up": lambda asm, index: asm.divide_up(asm.add(index, -7), 3),
    "divide": lambda asm, index: asm.add(*asm.divide(asm.mul(index, 5), 4)),
    "divide_by_one": lambda asm, index: asm.add(*asm.divide(index, 1)),
    "minimum": lambda asm, index: asm.minimum(asm.sub(5, index), -2),
    "maximum": lambda asm, index: asm.maximum(-3, asm.sub(2, index)),
}
CONDITIONS: dict[str, Callable[[Assembler, Index], Condition]] = {
    "equal": lambda asm, index: asm.equal(index, 4),
    "within": lambda asm, index: asm.within(asm.add(index, -3), 5),
    "never_within": lambda asm, index: asm.within(index, 0),
    "all_of": lambda asm, index: asm.all_of(True, asm.within(index, 9), asm.within(asm.add(index, -1), 20)),
    "not_all_of": lambda asm, index: asm.all_of(asm.within(index, 9), False),
}


def _per_group(write: Callable[[Assembler, Memories, Index], ir.Value], inputs: Sequence[np.ndarray]) -> SmallKernel:
    """Each workgroup writes a vector."""

    def every(asm: Assembler, memories: Memories, group: Group) -> None:
        asm.store(write(asm, memories, group[0]), memories[-1], asm.mul(group[0], LANES), LANES)

    return SmallKernel(every, inputs, GROUPS * LANES, (GROUPS, 1, 1))


def _computed(function: Callable[[Assembler, Index], Index]) -> SmallKernel:
    """What a function makes of the number of each workgroup."""
    return _per_group(lambda asm, _, index: number(asm, function(asm, index)), [ONES])


def _chosen(condition: Callable[[Assembler, Index], Condition]) -> SmallKernel:
    """The first vector of memory where a condition on the workgroup's number holds, else zeros."""
    return _per_group(lambda asm, memories, index: asm.load(memories[0], 0, LANES, condition(asm, index)), [ONES])


def _triangle(asm: Assembler, memories: Memories, end: Index) -> ir.Value:
    """The sum of 0, 2, 4, … below ``end``."""
    zero = asm.load(memories[0], 0, LANES, present=False)
    (total,) = asm.loop(0, end, 2, [zero], lambda index, carried: [asm.sum_of(carried[0], number(asm, index))])
    return total


def _branched(asm: Assembler, memories: Memories, group: Group) -> None:
    """Even workgroups write their own vector, odd ones leave it to ``otherwise``."""
    _, rest = asm.divide(group[0], 2)
    place = asm.mul(group[0], LANES)

    def store(value: ir.Value) -> None:
        asm.store(value, memories[-1], place, LANES)

    ones, twos = asm.load(memories[0], 0, LANES), asm.load(memories[0], LANES, LANES)
    asm.branch(asm.equal(rest, 0), lambda: store(ones), lambda: store(twos))
    asm.when(asm.equal(group[0], 3), lambda: store(number(asm, 7)))


def _partial(asm: Assembler, memories: Memories, group: Group) -> None:
    """Nines everywhere, then three elements from the second on, of which the last is not read but zero."""
    for index in range(2):
        asm.store(asm.broadcast(memories[0], 4), memories[-1], index * LANES, LANES)
    asm.store(asm.load(memories[0], 0, 2), memories[-1], 1, 3)
    asm.prefetch(memories[0], 1000)


ONES = floats(1, 1, 1, 1, 2, 2, 2, 2)
KERNELS = {
    **{name: _computed(function) for name, function in ARITHMETIC.items()},
    **{name: _chosen(condition) for name, condition in CONDITIONS.items()},
    "loop": _per_group(_triangle, [ONES]),
    "branch": SmallKernel(_branched, [ONES], GROUPS * LANES, (GROUPS, 1, 1)),
    "partial": SmallKernel(_partial, [floats(1, 2, 3, 4, 9)], 2 * LANES),
}


@pytest.fixture(scope="module")
def results() -> dict[str, np.ndarray]:
    return run_kernels(KERNELS)


def _constant_assembler() -> Assembler:
    """One that never gets to emit anything."""
    with ir.Context() as context, ir.Location.unknown(context):
        return Assembler(ir.Module.create().body, LANES)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_the_same_on_numbers_known_and_unknown(name: str, results: dict[str, np.ndarray]) -> None:
    asm = _constant_assembler()
    expected = [ARITHMETIC[name](asm, index) for index in range(GROUPS)]
    assert results[name].reshape(GROUPS, LANES)[:, 0].tolist() == expected


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_are_the_same_on_numbers_known_and_unknown(name: str, results: dict[str, np.ndarray]) -> None:
    asm = _constant_assembler()
    expected = [CONDITIONS[name](asm, index) for index in range(GROUPS)]
    assert results[name].reshape(GROUPS, LANES).astype(bool).all(axis=1).tolist() == expected


def test_loops_carry_values(results: dict[str, np.ndarray]) -> None:
    expected = [sum(range(0, end, 2)) for end in range(GROUPS)]
    assert results["loop"].reshape(GROUPS, LANES)[:, 0].tolist() == expected


def test_branches_run_one_body(results: dict[str, np.ndarray]) -> None:
    expected = [7.0 if group == 3 else 1.0 + group % 2 for group in range(GROUPS)]
    assert results["branch"].reshape(GROUPS, LANES)[:, 0].tolist() == expected


def test_elements_beyond_the_count_are_neither_read_nor_written(results: dict[str, np.ndarray]) -> None:
    assert results["partial"].tolist() == [9, 1, 2, 0, 9, 9, 9, 9]


def test_a_loop_of_one_turn_is_written_out() -> None:
    asm, seen = _constant_assembler(), list[Index]()
    for lower, upper, step in ((0, 3, 3), (2, 5, 4), (4, 4, 1), (5, 2, 1)):
        asm.repeat(lower, upper, step, seen.append)
    assert seen == [0, 2]


BYTE_STORES_LANES = 8
STEP, EMPTY = 0.75, 99
# Distances of vectors from where a tile begins, in vectors: side by side, in no order, and with gaps.
SHAPES = {"one": (0,), "three": (0, 1, 2), "five": (0, 1, 2, 3, 4), "mixed": (5, 0, 1, 3, 4, 2), "gaps": (0, 2, 4, 6)}
ZEROS = (-128, 0, 5, 127)
CASES = [
    (shape, ZEROS[index % len(ZEROS)], count)
    for index, (shape, count) in enumerate(product(SHAPES, (BYTE_STORES_LANES, 3)))
]
CASES += [("mixed", zero, BYTE_STORES_LANES) for zero in ZEROS]
TILES = 32
_ENDS = [0.0, -0.0, -128.5, 127.5, -129.0, 128.0, 254.5, 255.5, -255.5, 32767.5, -32769.0, 40000.0, -3e9, -np.inf]
_RANDOM = np.random.default_rng(0)
TIES = np.arange(-260, 260, dtype=np.float32) + np.float32(0.5)
SIZE = TILES * BYTE_STORES_LANES * 7
STEPS = np.resize(np.concatenate([np.array(_ENDS, np.float32), TIES]), SIZE)
REALS = (_RANDOM.standard_normal(SIZE) * 90).astype(np.float32)
# Some are too large for integers of 32 bits.
REALS[::31] = np.resize(np.array([3e12, -3e12, np.inf, -np.inf, 2.0**31], np.float32), REALS[::31].shape)

Compute = Callable[[Assembler, ir.Value], ir.Value]


def _times_step(asm: Assembler, value: ir.Value) -> ir.Value:
    """What a layer rounds: a multiple of the step."""
    operands = [rounded(asm, value), asm.splat(ir.FloatAttr.get(ir.F32Type.get(), STEP))]
    found = arith.mulf(*operands)
    note(asm, "arith.mulf", found, operands)
    return found


def _clipped_times_step(low: float, high: float, *, least_first: bool) -> Compute:
    """Computes what a layer rounds that bounds the quotient first."""

    def compute(asm: Assembler, value: ir.Value) -> ir.Value:
        for is_least in (least_first, not least_first):
            bound = asm.splat(ir.FloatAttr.get(ir.F32Type.get(), low if is_least else high))
            value = clip(asm, value, bound, is_least=is_least)
        return _times_step(asm, value)

    return compute


# Zero points, and bounds: the ends of 8 bits as quotients give them, and others.
BOUNDS = [(-128, 0.0, 255.00002), (0, -128.0, 127.0), (127, -255.0, 0.0), (-128, 3.0, 255.0), (5, -40.0, 60.0)]
CLIPPED = [(*bounds, least_first) for bounds in BOUNDS for least_first in (True, False)]


def _kernel(compute: Compute, given: Array, zero: int, places: Sequence[int], count: int) -> SmallKernel:
    size = BYTE_STORES_LANES * (1 + max(places))

    def write(asm: Assembler, memories: Sequence[ir.Value], _: tuple[Index, Index, Index]) -> None:
        assert isinstance(asm, ByteAssembler)
        asm.fill(asm.integer(EMPTY, 8), memories[2], 0, TILES * size)
        asm.quantise(memories[2], memories[1], STEP)

        def tile(start: Index) -> None:
            stores = stores_to(asm, memories[2])
            for place in places:
                value = compute(
                    asm, asm.load(memories[0], asm.add(start, place * BYTE_STORES_LANES), BYTE_STORES_LANES)
                )
                stores.add(Part(value, start, place * BYTE_STORES_LANES, count))
            stores.finish()

        asm.repeat(0, TILES * size, size, tile)

    numbers = floats(STEP, zero, 1 / STEP)
    return SmallKernel(
        write,
        [given, numbers],
        TILES * size,
        dtype="i8",
        lanes=BYTE_STORES_LANES,
        target=Target.create("cpu", "x86-64-v3"),
    )


def _expected(numbers: Array, places: Sequence[int], count: int) -> Array:
    """Rounded numbers, zero point added, where a tile stores them."""
    size = BYTE_STORES_LANES * (1 + max(places))
    tiles = np.full((TILES, size // BYTE_STORES_LANES, BYTE_STORES_LANES), EMPTY, np.int8)
    saturated = np.clip(np.rint(numbers[: TILES * size]), -128, 127).reshape(tiles.shape)
    tiles[:, places, :count] = saturated[:, places, :count]
    return tiles.reshape(-1)


@pytest.fixture(scope="module")
def byte_stores_results() -> dict[str, Array]:
    kernels = {
        f"known{index}": _kernel(_times_step, STEPS, zero, SHAPES[shape], count)
        for index, (shape, zero, count) in enumerate(CASES)
    }
    others = {
        shape: _kernel(lambda _, value: value, REALS, 5, SHAPES[shape], BYTE_STORES_LANES) for shape in ("one", "mixed")
    }
    clipped = {
        f"clipped{index}": _kernel(
            _clipped_times_step(low, high, least_first=least_first), REALS, zero, SHAPES["mixed"], BYTE_STORES_LANES
        )
        for index, (zero, low, high, least_first) in enumerate(CLIPPED)
    }
    return run_kernels({**kernels, **others, **clipped})


@pytest.mark.parametrize("index", range(len(CASES)))
def test_known_integers_are_stored_with_their_zero_point(index: int, byte_stores_results: dict[str, Array]) -> None:
    shape, zero, count = CASES[index]
    expected = _expected(np.rint(STEPS.astype(np.float64)) + zero, SHAPES[shape], count)
    np.testing.assert_array_equal(byte_stores_results[f"known{index}"], expected)


@pytest.mark.parametrize("shape", ["one", "mixed"])
def test_other_numbers_are_quantised(shape: str, byte_stores_results: dict[str, Array]) -> None:
    """With the zero point and rounded once, as an operation that rounds once computes it."""
    steps = REALS.astype(np.float64) * np.float64(np.float32(1 / STEP)) + 5
    np.testing.assert_array_equal(
        byte_stores_results[shape], _expected(steps.astype(np.float32), SHAPES[shape], BYTE_STORES_LANES)
    )


@pytest.mark.parametrize("index", range(len(CLIPPED)))
def test_clipped_numbers_do_not_leave_their_bounds(index: int, byte_stores_results: dict[str, Array]) -> None:
    """Whether the bounds are the ends of 8 bits, so that one of them is left to saturation, or not."""
    zero, low, high, _ = CLIPPED[index]
    steps = np.rint(np.clip(REALS, low, high)) + zero
    np.testing.assert_array_equal(
        byte_stores_results[f"clipped{index}"], _expected(steps, SHAPES["mixed"], BYTE_STORES_LANES)
    )
