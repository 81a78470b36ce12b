"""Gives every node a unique name, keeps names through rewrites, and tells whose part a node is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, graphs, nodes

SUPPRESSION_BODY = "sartor.suppression"
"""Name of the body of a loop that selects boxes. Its condition ends the loop early if nothing is left to select, which
changes no result: other passes leave such a loop alone."""

_DESCRIBED = re.compile(r"node '(?P<name>[^']*)' \((?P<operator>[\w.]+)\)")


def name_nodes(model: ModelProto) -> tuple[str, ...]:
    """Name nameless nodes ``OpType_index`` and append a number to repeated names; returns the new names.

    The first node with a name keeps it, so that names printed by other tools stay valid.
    """
    taken = TakenNames(node.name for node in nodes(model) if node.name)
    seen: set[str] = set()
    given: list[str] = []
    for index, node in enumerate(nodes(model)):
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        node.name = taken.fresh(node.name or f"{node.op_type}_{index}")
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


def name_inlined(model: ModelProto, callers: Mapping[str, str]) -> None:
    """Name nameless nodes that were put in the place of a function's call ``<call>/<OpType>``, in place.

    Args:
        model: after inlining; the nodes of a call follow each other, and compute its outputs.
        callers: name of each of the calls' outputs to the name of the call.
    """
    taken = TakenNames(node.name for node in nodes(model) if node.name)
    for graph in graphs(model):
        caller = ""
        for node in reversed(graph.node):
            caller = next((callers[output] for output in node.output if output in callers), caller)
            if node.name:
                # Only what is inlined is nameless.
                continue
            if caller:
                node.name = taken.fresh(f"{caller}/{node.op_type}")


def producer_names(model: ModelProto) -> dict[str, str]:
    """Value name to the name of the node that computes it."""
    return {output: node.name for node in nodes(model) for output in node.output if output}


def described_nodes(model: ModelProto) -> dict[str, str]:
    """How messages describe each node of a model, by its name."""
    return {node.name: describe_node(node) for node in nodes(model)}


def naming_origins(error: UnsupportedModelError, described: Mapping[str, str]) -> UnsupportedModelError:
    """A refusal that names the nodes of the user's model.

    Args:
        error: may name parts of them, which are called ``<node>/<part>``, or nodes that replace them.
        described: the user's nodes, as ``described_nodes`` gives them.
    """

    def original(match: re.Match[str]) -> str:
        name, text = match["name"], match[0]
        owner = name
        while owner not in described and "/" in owner:
            owner = owner.rpartition("/")[0]
        if described.get(owner, text) == text:
            return text
        part = f"'{name[len(owner) + 1 :]}' ({match['operator']})" if owner != name else match["operator"]
        return f"{described[owner]}, in its part {part},"

    text = _DESCRIBED.sub(original, str(error)).replace(",,", ",")
    return error if text == str(error) else UnsupportedModelError(text)


class TakenNames(set[str]):
    """Names that are in use, none of which becomes free again."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__(names)
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """``hint``, or ``hint`` with the first free number; the result is taken from now on."""
        name, number = hint, self._next.get(hint, 1)
        while name in self:
            name, number = f"{hint}_{number}", number + 1
        # A thousand nodes may have one name: numbers that were taken once are not tried again.
        self._next[hint] = number
        self.add(name)
        return name
