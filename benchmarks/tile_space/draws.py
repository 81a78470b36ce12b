"""Random parameter sets of a routine: any numbers that its registers can hold, and changes of one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random

from sartor.codegen.ir.variants.routine import Parameters

_REGISTERS = 32
# Products of parameters that count vector registers: a kernel with more sums than registers spills all of them.
_IN_REGISTERS = (("lines", "columns", "vectors"), ("window_columns", "window_vectors"))
# Numbers of steps that are written out: more make code that no cache of instructions holds.
_LIMITS = {"unroll": 16, "height": 7, "width": 7}
_LARGEST = 64


def drawn(rng: Random, listed: Sequence[Parameters]) -> dict[str, int]:
    """A parameter set for the names of those that are listed: numbers of any size, small ones as likely as large ones.

    Sums of a register tile fit the registers.
    """
    most = {name: _most(name, listed) for name in listed[0]}
    found = {name: round(2 ** rng.uniform(0, math.log2(each))) for name, each in most.items()}
    return _fitting(found, rng)


def changed(rng: Random, given: Mapping[str, int], listed: Sequence[Parameters]) -> dict[str, int]:
    """A parameter set of which one number is another, often a near one."""
    name = rng.choice(sorted(given))
    near = [given[name] - 1, given[name] + 1, given[name] * 2, given[name] // 2]
    value = rng.choice([*near, rng.randint(1, _most(name, listed))])
    return _fitting({**given, name: min(max(value, 1), _most(name, listed))}, rng)


def _most(name: str, listed: Sequence[Parameters]) -> int:
    largest = max(value for each in listed if isinstance(value := each.get(name, 1), int))
    return _LIMITS.get(name) or (_REGISTERS if name in _names_in_registers() else max(_LARGEST, 2 * largest))


def _names_in_registers() -> set[str]:
    return {name for group in _IN_REGISTERS for name in group}


def _fitting(given: dict[str, int], rng: Random) -> dict[str, int]:
    """The numbers with tiles made smaller, in a random dimension, until their sums fit the registers."""
    for group in _IN_REGISTERS:
        names = [name for name in group if name in given]
        while math.prod(given[name] for name in names) > _REGISTERS:
            name = rng.choice([each for each in names if given[each] > 1])
            given[name] -= max(1, given[name] // 4)
    return given
