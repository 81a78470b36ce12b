"""onnxslim in time that grows with the model, not with its square.

It compares each constant with every other one of its shape, and each node with every other one that reads the same
values. Here only those are compared that have the same key, as all that are equal do: the result is the same.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

_TYING = "onnxslim.core.optimization.weight_tying"
_ELIMINATION = "onnxslim.core.optimization.subexpression_elimination"
_NUMBERS = "biuf"


def compare_by_key() -> None:
    """Change onnxslim, in this process."""
    tying: Any = importlib.import_module(_TYING)
    elimination: Any = importlib.import_module(_ELIMINATION)
    tie, eliminate = tying.find_and_remove_replaceable_constants, elimination.find_and_remove_replaceable_nodes

    def tie_alike(constants: Sequence[Any]) -> None:
        for alike in _buckets(constants, _constant_key):
            tie(alike)

    def eliminate_alike(nodes: Sequence[Any], *outputs: Any) -> None:
        for alike in _buckets(nodes, _node_key):
            eliminate(alike, *outputs)

    tying.find_and_remove_replaceable_constants = tie_alike
    elimination.find_and_remove_replaceable_nodes = eliminate_alike


def _buckets(items: Iterable[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """Those of the same key, in their order, where there are several."""
    found: dict[Hashable, list[Any]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return [alike for alike in found.values() if len(alike) > 1]


def _constant_key(constant: Any) -> Hashable:
    stored = constant._values
    # Not through ``constant.values``, which would also change how the constant is written.
    values = stored.load() if hasattr(stored, "load") else stored
    # Zeros of both signs are equal.
    content = (values + 0).tobytes() if values.dtype.kind in _NUMBERS else b""
    return tuple(stored.shape), str(stored.dtype), content


def _node_key(node: Any) -> Hashable:
    """Return a key that is equal for nodes that may replace each other; omitted inputs are ignored."""
    read = tuple(
        _constant_key(each) if hasattr(each, "_values") else each.name for each in node.inputs if not each.is_empty()
    )
    plain = ((name, _plain(value)) for name, value in node.attrs.items())
    return node.op, node.domain, frozenset(plain), read


def _plain(value: Any) -> Hashable:
    """An attribute; tensors and graphs are left to be compared."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    return value if isinstance(value, (int, float, str, bytes)) else None
