"""Predicted cycles of attention over any number of queries and keys, by its loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.ir.machines.core import WIDE, Core
from sartor.codegen.ir.variants.traits import Sizes

# Elements of a query, a key and a value in most networks; the facts of a task, whose result may have all heads in a
# row, do not tell them.
_USUAL_WIDTH = 64
# A query meets each key in two products of a multiply-add, which is two operations, for each element.
_OPERATIONS = 4 * _USUAL_WIDTH
# Instructions of a vector of scores: elementwise steps, the largest of a row, an exponential, and their sum.
_INSTRUCTIONS = 32
# Sums that registers hold beside what is multiplied; others are loaded and stored in each step.
_HELD_SUMS = 24


@dataclass(frozen=True)
class OpenAttentionCost:
    """The cost of scores, exponentials and sums of values of tiles of ``rows`` queries, by ``vectors`` of keys.

    A tile reads the keys and values of its head once, mostly from the second-level cache.
    """

    def cycles(self, sizes: Sizes, parameters: Mapping[str, int], core: Core = WIDE) -> float:
        rows, vectors = parameters["rows"], parameters["vectors"]
        # A vector of keys for a tile of queries is computed so many times.
        tiles = sizes["operations"] / _OPERATIONS / (rows * core.lanes)
        scores = _step(rows, vectors, core) * _USUAL_WIDTH / vectors
        exponentials = rows * _INSTRUCTIONS / min(core.issue, 2 * core.loads)
        mixed = _step(rows, -(-_USUAL_WIDTH // core.lanes), core) * core.lanes
        return tiles * (scores + exponentials + mixed)


def _step(rows: int, vectors: int, core: Core) -> float:
    """Cycles in which vectors are loaded and multiplied by a number of each row."""
    sums = rows * vectors
    spilled = 2 * max(0, sums - _HELD_SUMS) / core.loads
    loads = (rows + vectors) / core.loads
    return spilled + max(sums / core.multiplies, loads, core.latency, vectors * core.lines * core.line_cycles)
