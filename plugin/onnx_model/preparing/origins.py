"""Names the user's node in a refusal of a node that a rewrite made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from onnx import ModelProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, nodes

_DESCRIBED = re.compile(r"node '(?P<name>[^']*)' \((?P<operator>[\w.]+)\)")


def described_nodes(model: ModelProto) -> dict[str, str]:
    """How messages describe each node of a model, by its name."""
    return {node.name: describe_node(node) for node in nodes(model)}


def naming_origins(error: UnsupportedModelError, described: Mapping[str, str]) -> UnsupportedModelError:
    """A refusal that names the nodes of the user's model.

    Args:
        error: may name parts of them, which are called ``<node>/<part>``, or nodes that replace them.
        described: the user's nodes, as ``described_nodes`` gives them.
    """

    def original(found: re.Match[str]) -> str:
        name, text = found["name"], found[0]
        owner = name
        while owner not in described and "/" in owner:
            owner = owner.rpartition("/")[0]
        if described.get(owner, text) == text:
            return text
        part = f"'{name[len(owner) + 1 :]}' ({found['operator']})" if owner != name else found["operator"]
        return f"{described[owner]}, in its part {part},"

    text = _DESCRIBED.sub(original, str(error))
    return error if text == str(error) else UnsupportedModelError(text)
