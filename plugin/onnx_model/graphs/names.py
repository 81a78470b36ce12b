"""Gives every node a unique name, and keeps names through rewrites."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from sartor.onnx_model.graphs.walk import nodes


def name_nodes(model: ModelProto) -> tuple[str, ...]:
    """Name nameless nodes ``OpType_index`` and append a number to repeated names; returns the new names.

    The first node with a name keeps it, so that names printed by other tools stay valid.
    """
    taken: set[str] = {node.name for node in nodes(model) if node.name}
    seen: set[str] = set()
    given: list[str] = []
    for index, node in enumerate(nodes(model)):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        node.name = fresh_name(node.name or f"{node.op_type}_{index}", taken)
        seen.add(node.name)
        given.append(node.name)
    return tuple(given)


def restore_names(model: ModelProto, names: Mapping[str, str]) -> None:
    """Undo a tool's renaming: give each node the name of the node that computed its first output before.

    Args:
        model: edited in place.
        names: value name to the name of the node that computed it.
    """
    known = set(names.values())
    taken = {node.name for node in nodes(model) if node.name in known}
    for node in nodes(model):
        old = next((names[output] for output in node.output if output in names), "")
        if node.name not in known and old and old not in taken:
            node.name = old
            taken.add(old)
    name_nodes(model)


def producer_names(model: ModelProto) -> dict[str, str]:
    """Value name to the name of the node that computes it."""
    return {output: node.name for node in nodes(model) for output in node.output if output}


def fresh_name(hint: str, taken: set[str]) -> str:
    """``hint``, or ``hint`` with the first free number; the result is added to ``taken``."""
    name, number = hint, 1
    while name in taken:
        name, number = f"{hint}_{number}", number + 1
    taken.add(name)
    return name
