"""Problems in which only one primitive, or one library of primitives, is used.

A primitive is a routine. QS-DNN (section IV-A) runs the whole network once per primitive: in it wherever it applies, in
the base implementation elsewhere, which is candidate 0 here. Its best single library is the best of the networks that
use the primitives of one library in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from sartor.codegen.ir.variants.descriptor import Descriptor
from sartor.codegen.routines import ROUTINES
from sartor.errors import InfeasibleError
from sartor.tuning.selection import auto
from sartor.tuning.selection.problem.problem import Choice, Node, Problem

BASE = "stock"
_BLOCKED = "_blocked"
_ROOMS = {type(routine).__name__: type(routine).__module__.split(".")[-2] for routine in ROUTINES}
_LIBRARIES = {each.name: _ROOMS[type(each).__name__] for each in ROUTINES}


def primitive_of(choice: Choice) -> str | None:
    """The routine of a choice, also if it stands for a fused kernel; None for network ends and childnets."""
    found = Descriptor.parse(choice.name.rpartition(": ")[2])
    return None if found is None else found.routine


def library_of(primitive: str) -> str:
    """The library of a primitive: the compiler's own code, kernels on images with channels last, or in blocks."""
    room = _LIBRARIES.get(primitive, primitive)
    if room.startswith("iree"):
        return "IREE"
    return f"{room}, blocks" if primitive.endswith(_BLOCKED) else room


def primitives(problem: Problem) -> list[str]:
    """The primitives of a problem, sorted."""
    return sorted({name for node in problem.nodes for choice in node.choices if (name := primitive_of(choice))})


def whole_net(problem: Problem, allowed: Collection[str]) -> float:
    """Seconds of the network in which each layer is computed by some primitives wherever they apply, else by the base.

    Conversions are added. Of several parameters and schemas of a primitive the best together are taken.

    Raises:
        InfeasibleError: if no plan exists.
    """
    strict = replace(problem, nodes=tuple(_only(node, allowed) for node in problem.nodes))
    try:
        return auto.select(strict).cost
    except InfeasibleError:
        # A fused kernel may be open to a layer whose neighbour is computed with the layer behind it.
        loose = replace(problem, nodes=tuple(_only(node, {*allowed, BASE}) for node in problem.nodes))
        return auto.select(loose).cost


def _only(node: Node, allowed: Collection[str]) -> Node:
    kept = tuple(choice for choice in node.choices if primitive_of(choice) in allowed)
    return replace(node, choices=kept or node.choices[:1])


def libraries(problem: Problem) -> Iterator[tuple[str, list[str]]]:
    """Each library with its primitives in a problem."""
    names = primitives(problem)
    for library in sorted({library_of(name) for name in names}):
        yield library, [name for name in names if library_of(name) == library]
