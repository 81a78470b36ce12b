"""Node names: present, unique, and kept through every rewrite."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from sartor.onnx_model.graphs.walk import nodes


def name_nodes(model: ModelProto) -> tuple[str, ...]:
    """Give nameless nodes ``OpType_index`` and repeated names a number; returns the names given.

    The first node of a name keeps it, so names that other tools print stay valid.
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
    """Call nodes again by the name of the node that computed their first output before a tool renamed them.

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
    """For each value the name of the node that computes it."""
    return {output: node.name for node in nodes(model) for output in node.output if output}


def fresh_name(hint: str, taken: set[str]) -> str:
    """``hint``, or ``hint`` with the first free number; the result is added to ``taken``."""
    name, number = hint, 1
    while name in taken:
        name, number = f"{hint}_{number}", number + 1
    taken.add(name)
    return name
