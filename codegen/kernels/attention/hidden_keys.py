"""Keys that a mask hides from all queries of a tile: their exponentials are zero, so that they need no products.

What follows the products, such as a factor and a mask, mostly never decreases with them. A score is then at most what
follows from the largest product that a query can have with any key, and at least what follows from its opposite. Where
the first lies so far below the second of another key, or below a score seen before, that its exponential is zero, the
key has no share. Nothing is assumed of the mask, and results have the same bits as with all keys, unless values that
are left out are no finite numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.kernels.attention.attention_form import AttentionForm, ScoreStep
from sartor.codegen.kernels.attention.attention_loops import Strided
from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.loops.epilogue import constant_of
from sartor.codegen.mlir.iree_compiler import arith, ir, math, vector
from sartor.codegen.mlir.operations import body_of

# Exponentials of this and less are zero.
_ZERO_FROM = -88.0
# Sums of products are rounded, and may exceed what is computed as their bound.
_ROUNDING = 1.001
# Ops that never decrease with any operand.
_GROWING = {"arith.addf", "arith.extf", "arith.truncf", "math.tanh"}
_YIELD = "linalg.yield"
_WORD_BITS = 32


def may_hide_keys(form: AttentionForm) -> bool:
    """Whether scores depend on something that differs from query to query and from key to key, such as a causal mask,
    and never decrease with their products."""
    read = [operand for step in form.steps for operand in step.operands if isinstance(operand, Strided)]
    masks = [mask for mask in read if mask.steps[-1] != 0 and mask.steps[-2] != 0]
    return bool(masks) and all(map(_grows, form.steps))


def _grows(step: ScoreStep) -> bool:
    """Whether what a step computes never decreases with the scores that it is given."""
    block = body_of(step.op)
    arguments = dict(zip(block.arguments, step.operands, strict=False))
    grown = {argument for argument, operand in arguments.items() if isinstance(operand, ir.Value)}

    def is_positive(value: ir.Value) -> bool:
        constant = arguments[value] if value in arguments else constant_of(value)
        return isinstance(constant, ir.FloatAttr) and constant.value > 0

    for view in block.operations:
        op = view.operation
        which = [operand in grown for operand in op.operands]
        if op.name == _YIELD or not any(which):
            continue
        is_first = which == [True, False]
        scales = op.name == "arith.mulf" and sum(which) == 1 and is_positive(op.operands[which.index(False)])
        divides = op.name == "arith.divf" and is_first and is_positive(op.operands[1])
        chooses = op.name == "arith.select" and not which[0]
        if not (op.name in _GROWING or scales or divides or chooses or (op.name == "arith.subf" and is_first)):
            return False
        grown.add(op.results[0])
    return True


@dataclass(frozen=True)
class HiddenKeys:
    """Emits the search.

    Attributes:
        head: emits.
        bounds: memory of a number for each query: the largest product that it can have.
        most: the largest number of all keys, but for signs, in all elements of a vector.
    """

    head: HeadCode
    bounds: ir.Value
    most: ir.Value

    @staticmethod
    def of(head: HeadCode, bounds: ir.Value) -> HiddenKeys:
        """Those of a head, whose keys are read once for this."""
        asm, form = head.asm, head.form
        keys, memory = form.keys, head.memories[form.keys.memory]
        # By their bits, numbers that are none are larger than infinity, so nothing is left out because of them.
        word = asm.vector_type(ir.IntegerType.get_signless(_WORD_BITS))
        zero = asm.splat(ir.IntegerAttr.get(word.element_type, 0))

        def larger(loaded: ir.Value, most: ir.Value) -> ir.Value:
            return arith.maxsi(arith.bitcast(word, math.absf(loaded)), most)

        def row(key: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(head.offset(keys, 0), asm.times(key, asm.size(keys.steps[-1])))
            loaded = [asm.load(memory, asm.add(start, element), size) for element, size in head.parts(form.depth)]
            for part in loaded:
                carried = [larger(part, carried[0])]
            return carried

        def column(element: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = asm.add(head.offset(keys, 0), asm.times(element, asm.size(keys.steps[-2])))

            def some(key: Index, seen: list[ir.Value]) -> list[ir.Value]:
                return [larger(head.load(memory, asm.add(start, key), head.mask(asm.sub(head.keys, key))), seen[0])]

            return asm.loop(0, head.keys, asm.lanes, carried, some)

        extent, body = (head.keys, row) if form.has_key_rows else (form.depth, column)
        (most,) = asm.loop(0, extent, 1, [zero], body)
        return HiddenKeys(
            head, bounds, arith.bitcast(asm.vector_type(ir.F32Type.get()), head.reduced(most, arith.maxsi))
        )

    def bound(self, place: Index, row: Index) -> None:
        """Store, at ``place``, the largest product that a query can have."""
        asm, head = self.head.asm, self.head
        queries, total = head.form.queries, head.splat(0.0)
        for element, size in head.parts(head.form.depth):
            loaded = asm.load(head.memories[queries.memory], asm.add(head.offset(queries, row), element), size)
            total = arith.addf(total, math.absf(loaded))
        total = arith.mulf(head.reduced(total, arith.addf), arith.mulf(self.most, head.splat(_ROUNDING)))
        asm.store(total, self.bounds, place, 1)

    def seen(
        self, queries: Sequence[tuple[Index, Index]], before: Sequence[ir.Value], first: Index, count: Index
    ) -> Index:
        """How many keys are taken: all of a block up to the last vector of them that is not hidden from all queries.

        Args:
            queries: for each of a tile the place of its bound, and its number.
            before: its largest score of keys before the block, in all elements of a vector.
            first: the block's first key.
            count: its keys.
        """
        asm, head = self.head.asm, self.head
        most = [asm.broadcast(self.bounds, place) for place, _ in queries]
        least = [arith.negf(largest) for largest in most]

        def scores(products: Sequence[ir.Value], key: Index) -> list[ir.Value]:
            at, is_whole = asm.add(first, key), isinstance(count, int) and count % asm.lanes == 0
            mask = None if is_whole else head.mask(asm.sub(count, key))
            pairs = zip(products, queries, strict=True)
            return [head.finished(product, row, at, mask) for product, (_, row) in pairs]

        def larger(key: Index, carried: list[ir.Value]) -> list[ir.Value]:
            return [*map(arith.maximumf, carried, scores(least, key))]

        reached = asm.loop(0, count, asm.lanes, before, larger)
        bases = [head.reduced(maximum, arith.maximumf) for maximum in reached]
        word = asm.vector_type(ir.IntegerType.get_signless(_WORD_BITS))

        def last(key: Index, carried: list[ir.Value]) -> list[ir.Value]:
            differences = map(arith.subf, scores(most, key), bases)
            nearest = functools.reduce(arith.maximumf, differences)
            # True of what is no number, too.
            is_taken = arith.cmpf(arith.CmpFPredicate.UGE, nearest, head.splat(_ZERO_FROM))
            end = arith.index_cast(word.element_type, asm.value(asm.add(key, asm.lanes)))
            return [arith.select(is_taken, vector.broadcast(word, end), carried[0])]

        (ends,) = asm.loop(0, count, asm.lanes, [asm.splat(ir.IntegerAttr.get(word.element_type, 0))], last)
        end = vector.extract(head.reduced(ends, arith.maxsi), [], [0])
        return asm.minimum(arith.index_cast(ir.IndexType.get(), end), count)
