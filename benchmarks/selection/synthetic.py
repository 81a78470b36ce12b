"""Seeded selection problems of any size, shaped like the nets of the papers.

Every layer computes in blocked layouts like NeoCPU's template (section 3.1.1), with a candidate for each pair of an
input and an output layout. Additions read the residual in the layout of the sum, and concatenations read all inputs in
one layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random

from sartor.codegen.ir.schema import Schema
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice, Edge, Node, Problem


@dataclass(frozen=True)
class Shape:
    """The parameters of a synthetic net.

    Attributes:
        cell: kind of its cells, a name of ``CELLS``.
        layers: least number of layers; the last cell is completed.
        candidates: number of candidates of every layer that computes.
        width: branches of a cell, or layers of a dense block.
        seed: of costs, branch lengths and random cells.
    """

    cell: str
    layers: int
    candidates: int = 16
    width: int = 4
    seed: int = 0


def synthetic(shape: Shape) -> Problem:
    """The selection problem of a synthetic net; equal shapes give equal problems.

    Raises:
        KeyError: if there is no such cell.
    """
    net = _Net(shape)
    cell = CELLS[shape.cell]
    last = net.layer([])
    while len(net.nodes) < shape.layers:
        last = cell(net, last)
    return Problem(tuple(net.nodes), tuple(net.edges), net.adapts)


class _Net:
    """A net that grows layer by layer."""

    def __init__(self, shape: Shape) -> None:
        self.width = shape.width
        self.rng = Random(f"{shape}")
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.adapts: dict[tuple[Edge, Schema, Schema], Cost] = {}
        self._conversions: dict[int, dict[tuple[Schema, Schema], Cost]] = {}
        self._layouts = [Schema("cpu", "f32", f"l{number}") for number in range(math.ceil(math.sqrt(shape.candidates)))]
        self._candidates = shape.candidates

    def layer(self, reads: Sequence[int]) -> int:
        """Add a layer that computes; all inputs except the first are residuals."""
        pairs = [(one, other) for one in self._layouts for other in self._layouts]
        kept = sorted(self.rng.sample(range(len(pairs)), self._candidates))
        base = self.rng.uniform(1.0, 4.0)
        choices = [
            Choice(
                f"c{index}",
                tuple(pairs[index][min(slot, 1)] for slot in range(len(reads))),
                pairs[index][1],
                Cost(latency=base * self.rng.uniform(1.0, 2.0)),
            )
            for index in kept
        ]
        return self._add(choices, reads)

    def concatenation(self, reads: Sequence[int]) -> int:
        """Add a layer that reads and writes one layout."""
        cost = self.rng.uniform(0.05, 0.2)
        choices = [
            Choice(layout.layout, (layout,) * len(reads), layout, Cost(latency=cost)) for layout in self._layouts
        ]
        return self._add(choices, reads)

    def _add(self, choices: Sequence[Choice], reads: Sequence[int]) -> int:
        name = f"n{len(self.nodes)}"
        self.nodes.append(Node(name, tuple(choices)))
        for slot, producer in enumerate(reads):
            edge = Edge(f"n{producer}", name, slot, 0)
            self.edges.append(edge)
            if producer not in self._conversions:
                self._conversions[producer] = self._drawn_conversions()
            self.adapts |= {(edge, *pair): cost for pair, cost in self._conversions[producer].items()}
        return len(self.nodes) - 1

    def _drawn_conversions(self) -> dict[tuple[Schema, Schema], Cost]:
        """Costs of converting one value."""
        moved = self.rng.uniform(0.2, 1.0)
        pairs = permutations(self._layouts, 2)
        return {pair: Cost(latency=moved * self.rng.uniform(0.8, 1.2)) for pair in pairs}


def _chain(net: _Net, last: int) -> int:
    return net.layer([last])


def _residual(net: _Net, last: int) -> int:
    """ResNet's bottleneck: three layers, the last adds the cell's input."""
    return net.layer([net.layer([net.layer([last])]), last])


def _inception(net: _Net, last: int) -> int:
    """Branches of one to three layers, concatenated."""
    ends = []
    for _ in range(net.width):
        end = last
        for _ in range(net.rng.randint(1, 3)):
            end = net.layer([end])
        ends.append(end)
    return net.concatenation(ends)


def _dense(net: _Net, last: int) -> int:
    """DenseNet's block as torchvision writes it: every concatenation reads all layers before it in the block."""
    block = [last]
    for _ in range(net.width):
        block.append(net.layer([net.layer([net.concatenation(block)])]))
    return net.layer([net.concatenation(block)])


def _random(net: _Net, last: int) -> int:
    """A random cell as in architecture search: every sum reads two layers before it, and the ends are concatenated."""
    nodes = [last]
    ends = {last}
    for _ in range(net.width):
        first, second = (net.rng.choice(nodes) for _ in range(2))
        nodes.append(net.layer([net.layer([first]), second]))
        ends = ends - {first, second} | {nodes[-1]}
    return net.concatenation(sorted(ends))


CELLS: dict[str, Callable[[_Net, int], int]] = {
    "chain": _chain,
    "residual": _residual,
    "inception": _inception,
    "dense": _dense,
    "random": _random,
}
"""Functions that add a cell after a layer; each returns the cell's last layer."""
