"""Index arithmetic, loops and masks do on vectors what they say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Condition, Index
from sartor.codegen.mlir.iree_compiler import ir
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
