"""Interval arithmetic on a layer's integers: the bounds of a value, and the arguments that it depends on.

Moore, Kearfott, Cloud 2009, Introduction to Interval Analysis, chapter 2. A tensor's span covers all its elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class Span:
    """Integers from ``low`` to ``high``.

    Attributes:
        bounds: the smallest and the largest; None if they are not known.
        roots: positions of the layer's arguments that the value depends on.
    """

    bounds: tuple[int, int] | None
    roots: frozenset[int] = frozenset()

    def within(self, low: int, high: int) -> bool:
        """Whether every value is known to be from ``low`` to ``high``."""
        return self.bounds is not None and low <= self.bounds[0] and self.bounds[1] <= high


def unknown(spans: Iterable[Span]) -> Span:
    """A span without bounds that depends on all that ``spans`` depend on."""
    return Span(None, frozenset(root for span in spans for root in span.roots))


def union(spans: Sequence[Span]) -> Span:
    """The smallest span that covers all ``spans``."""
    span = unknown(spans)
    known = [span.bounds for span in spans if span.bounds is not None]
    if len(known) < len(spans) or not known:
        return span
    return replace(span, bounds=(min(low for low, _ in known), max(high for _, high in known)))


def constant(value: ir.Attribute) -> Span:
    """The span of a constant; of a tensor, that of its elements."""
    if isinstance(value, ir.IntegerAttr | ir.BoolAttr):
        return Span((int(value.value),) * 2)
    if isinstance(value, ir.DenseIntElementsAttr) and len(value):
        numbers = [int(value.get_splat_value().value)] if value.is_splat else [int(item) for item in value]
        return Span((min(numbers), max(numbers)))
    return Span(None)


def computed(op: ir.Operation, given: Sequence[Span]) -> Span:
    """The span of an ``arith`` op's result; without bounds for ops that have no rule."""
    if op.name == "arith.select":
        return _selected(*given)
    rule = _RULES.get(op.name)
    bounds = [span.bounds for span in given if span.bounds is not None]
    if rule is None or len(bounds) < len(given):
        return unknown(given)
    return replace(unknown(given), bounds=rule(op, *bounds))


Bounds = tuple[int, int]


def _selected(condition: Span, first: Span, second: Span) -> Span:
    """Return the selected operand's span if the condition is known, otherwise the union of both spans."""
    if condition.within(1, 1):
        return first
    if condition.within(0, 0):
        return second
    return replace(union((first, second)), roots=unknown((condition, first, second)).roots)


def _corners(function: Callable[[int, int], int]) -> Callable[..., Bounds | None]:
    """The rule of a function that is monotone in each operand."""

    def rule(_: ir.Operation, lhs: Bounds, rhs: Bounds) -> Bounds | None:
        results = [function(*pair) for pair in itertools.product(lhs, rhs)]
        return min(results), max(results)

    return rule


def _divided(_: ir.Operation, lhs: Bounds, rhs: Bounds) -> Bounds | None:
    """Return bounds of a quotient; None unless the dividend is at least 0 and the divisor at least 1.

    All rounding modes of division agree within these limits.
    """
    return (lhs[0] // rhs[1], lhs[1] // rhs[0]) if lhs[0] >= 0 and rhs[0] > 0 else None


def _remainder(_: ir.Operation, lhs: Bounds, rhs: Bounds) -> Bounds | None:
    return (0, min(lhs[1], rhs[1] - 1)) if lhs[0] >= 0 and rhs[0] > 0 else None


def _same(_: ir.Operation, given: Bounds) -> Bounds | None:
    return given


def _sign_extended(op: ir.Operation, given: Bounds) -> Bounds | None:
    return (-given[1], -given[0]) if width(op.operands[0]) == 1 else given


def _zero_extended(_: ir.Operation, given: Bounds) -> Bounds | None:
    return given if given[0] >= 0 else None


def _truncated(op: ir.Operation, given: Bounds) -> Bounds | None:
    bits = width(op.results[0])
    most = 1 if bits == 1 else 2 ** (bits - 1) - 1
    return given if given[0] >= 0 and given[1] <= most else None


def width(value: ir.Value) -> int:
    """Bits of an integer; 64 of an index."""
    return int(value.type.width) if isinstance(value.type, ir.IntegerType) else 64


def _compared(op: ir.Operation, lhs: Bounds, rhs: Bounds) -> Bounds | None:
    predicate = int(ir.IntegerAttr(op.attributes["predicate"]).value)
    if predicate >= len(_PREDICATES) and min(lhs[0], rhs[0]) < 0:
        return 0, 1
    always, never = _PREDICATES[predicate if predicate < len(_PREDICATES) else predicate - 4](lhs, rhs)
    return (1, 1) if always else (0, 0) if never else (0, 1)


def _equal(lhs: Bounds, rhs: Bounds) -> tuple[bool, bool]:
    return lhs == rhs and lhs[0] == lhs[1], lhs[1] < rhs[0] or rhs[1] < lhs[0]


def _less(lhs: Bounds, rhs: Bounds) -> tuple[bool, bool]:
    return lhs[1] < rhs[0], lhs[0] >= rhs[1]


def _at_most(lhs: Bounds, rhs: Bounds) -> tuple[bool, bool]:
    return lhs[1] <= rhs[0], lhs[0] > rhs[1]


# Whether a comparison always or never holds, in the order of MLIR's predicates; unsigned ones follow the signed.
_PREDICATES: tuple[Callable[[Bounds, Bounds], tuple[bool, bool]], ...] = (
    _equal,
    lambda lhs, rhs: _equal(lhs, rhs)[::-1],
    _less,
    _at_most,
    lambda lhs, rhs: _less(rhs, lhs),
    lambda lhs, rhs: _at_most(rhs, lhs),
)

_RULES: Mapping[str, Callable[..., Bounds | None]] = {
    "arith.addi": _corners(lambda lhs, rhs: lhs + rhs),
    "arith.subi": _corners(lambda lhs, rhs: lhs - rhs),
    "arith.muli": _corners(lambda lhs, rhs: lhs * rhs),
    "arith.maxsi": _corners(max),
    "arith.minsi": _corners(min),
    "arith.divsi": _divided,
    "arith.divui": _divided,
    "arith.floordivsi": _divided,
    "arith.remsi": _remainder,
    "arith.remui": _remainder,
    "arith.index_cast": _same,
    "arith.extsi": _sign_extended,
    "arith.extui": _zero_extended,
    "arith.trunci": _truncated,
    "arith.cmpi": _compared,
}
