"""Look up routines, and the traits of a variant by its descriptor, which is all that databases and plans store.

Routines are imported when they are first looked up.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import re
from collections.abc import Iterable, Mapping

from sartor.codegen.ir.layer import ELEMENT_TYPES
from sartor.codegen.ir.variants.descriptor import CHILDNET, Descriptor
from sartor.codegen.ir.variants.routine import OPERATIONS, Rounding, Routine, Storing
from sartor.codegen.ir.variants.traits import LOWERED, DescribedVariant, Traits
from sartor.devices import KINDS
from sartor.errors import UsageError

_HEAD_SIGNS = frozenset(":/.")


def all_routines() -> tuple[Routine, ...]:
    """All routines, candidate 0 first.

    Their modules are imported when this is first called: for a fifth of a second, in which a compilation has already
    begun to import its model.
    """
    from sartor.codegen.routines import ROUTINES

    return ROUTINES


def fused_routines() -> tuple[Routine, ...]:
    """Routines for fused tasks, after candidate 0."""
    from sartor.codegen.routines import FUSED_ROUTINES

    return FUSED_ROUTINES


def low_precision() -> Mapping[str, tuple[Routine, ...]]:
    """Routines that round to a narrower type what they store or multiply, by that type."""
    from sartor.codegen.routines import LOW_PRECISION

    return LOW_PRECISION


def routines_for(types: Iterable[str]) -> tuple[Routine, ...]:
    """Routines for tasks that are not fused: those in the model's own types, then those that store in ``types``."""
    from sartor.codegen import routines

    return routines.routines_for(types)


def described(descriptor: str) -> DescribedVariant:
    """The traits and parameters of a variant.

    A routine that no longer exists is treated as one whose code IREE generates.
    """
    parsed = Descriptor.parse(descriptor)
    if parsed is None:
        return DescribedVariant(descriptor, "", "", LOWERED)
    known = _traits()
    own = known.get((parsed.routine, parsed.dtype)) or known.get((parsed.routine, None)) or LOWERED
    return DescribedVariant(descriptor, parsed.routine, parsed.dtype, own, parsed.parameters)


@functools.cache
def routine_names() -> frozenset[str]:
    """Names of all routines, without the operations they compute."""
    return frozenset(routine.name for routine in all_routines())


@functools.cache
def families() -> tuple[str, ...]:
    """Families of all routines, in the order of the list of routines."""
    families_of_all = (routine.traits.family for routine in all_routines())
    return tuple(dict.fromkeys(family for family in families_of_all if family is not None))


def may_name(glob: str) -> bool:
    """Whether a glob may fit the descriptor of a variant, whatever its parameters; unusual globs always may."""
    if "[" in glob or CHILDNET in glob:
        return True
    # What follows one of these may be parameters, which only a task has, unless it looks like no parameters.
    ends = (index for index, sign in enumerate(glob) if sign in "*?{" and not _HEAD_SIGNS & {*glob[index:]})
    cuts = [glob[: index + (glob[index] == "*")] for index in ends]
    fits = re.compile("|".join(fnmatch.translate(cut) for cut in (*cuts, glob)))
    return any(fits.match(head) for head in _heads())


def check_glob(glob: str, asked: str) -> None:
    """Make sure that a glob may fit some routine.

    Args:
        glob: as of ``may_name``.
        asked: what has it, with which the message begins.

    Raises:
        UsageError: if it fits none.
    """
    if not may_name(glob):
        raise UsageError(
            f"{asked} fits no routine; a routine is named like cpu:f32/conv2d.direct{{tile=4}}, '*direct*' fits that, "
            "and 'sartor routines MODEL.onnx' lists all"
        )


@functools.cache
def _heads() -> tuple[str, ...]:
    """Descriptors that there can be, without parameters."""
    names = dict.fromkeys(routine.name for routine in all_routines())
    types = dict.fromkeys((*ELEMENT_TYPES, *low_precision()))
    parts = itertools.product(KINDS, types, OPERATIONS, names)
    return tuple(f"{device}:{dtype}/{operation}.{name}" for device, dtype, operation, name in parts)


@functools.cache
def size_names() -> tuple[str, ...]:
    """Names of the sizes of all routines, in the order of the list of routines."""
    return tuple(dict.fromkeys(name for routine in all_routines() for name in routine.traits.sizes))


@functools.cache
def _traits() -> dict[tuple[str, str | None], Traits]:
    """Traits by routine name and the type it computes in, None for the model's.

    Routines for different layers may share both; then their traits agree.
    """
    traits: dict[tuple[str, str | None], Traits] = {}
    for routine in all_routines():
        traits.setdefault((routine.name, _computes_in(routine)), routine.traits)
    return traits


def _computes_in(routine: Routine) -> str | None:
    arithmetic = routine.arithmetic if isinstance(routine, Rounding) else None
    return arithmetic or (routine.storage if isinstance(routine, Storing) else None)
