"""Analysis of a fused task as attention over batches, heads, queries and keys, whose numbers may be open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sartor.codegen.ir.layer import Stage, Task
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.attention.attention_layer import attention_stages, computes_softmax
from sartor.codegen.kernels.loops.epilogue import check_region, constant_of
from sartor.codegen.kernels.loops.view import stored_as, view_of
from sartor.codegen.kernels.rows.row_form import row_form
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, copies, defining_op, indexing_maps, is_elementwise
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

_STAGES, _RANK = 3, 4
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
_WITHOUT_CODE = frozenset({"tensor.empty", "linalg.fill", "arith.constant", *_RESHAPES})


@dataclass(frozen=True)
class Strided:
    """A buffer that is read or written along batches, heads, and two further loops.

    Attributes:
        memory: position of the buffer.
        steps: distance in elements along each of the four.
    """

    memory: int
    steps: tuple[Count, ...]


Operand: TypeAlias = Strided | ir.Attribute | ir.Value


@dataclass(frozen=True)
class ScoreStep:
    """An elementwise op on scores.

    Attributes:
        op: a ``linalg.generic``.
        operands: what it reads.
    """

    op: ir.Operation
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class AttentionForm:
    """Attention: ``softmax(queries x keys, after elementwise steps) x values``.

    Attributes:
        extents: numbers of batches, heads, queries and keys.
        depth: elements of a query.
        columns: elements of a value.
        queries: loops over batches, heads, queries, elements.
        keys: loops over batches, heads, elements, keys; keys are adjacent, or elements are, as in a cache.
        values: loops over batches, heads, keys, elements.
        product: the first product's result.
        steps: elementwise ops on it, in order.
        result: like queries, of the result.
    """

    extents: tuple[Count, ...]
    depth: int
    columns: int
    queries: Strided
    keys: Strided
    values: Strided
    product: ir.Value
    steps: tuple[ScoreStep, ...]
    result: Strided

    @property
    def has_key_rows(self) -> bool:
        """Whether elements of a key are adjacent, and not keys."""
        return self.keys.steps[-1] != 1


def attention_form(task: Task) -> tuple[AttentionForm, tuple[Rewrite, ...]]:
    """The form of a fused task, with the rewrites that hold its ops.

    Raises:
        ValueError: if it is no attention that the kernel computes.
    """
    stages = attention_stages(task)
    if len(stages) not in (_STAGES, _STAGES + 1) or task.weights:
        raise ValueError("not a product, a softmax and a product of activations")
    rewrites = tuple(Rewrite.plain(stage.task) for stage in stages)
    with rewrites[0].module.context:
        return _form(task, stages, rewrites), rewrites


def _form(task: Task, stages: Sequence[Stage], rewrites: Sequence[Rewrite]) -> AttentionForm:
    first, middle, last = stages[:_STAGES]
    if middle.inputs != (None,) or not computes_softmax(row_form(rewrites[1].function), middle.task.results[0]):
        raise ValueError("there is no softmax between the products")
    scores, context = rewrites[0].root, rewrites[2].root
    product, steps, ended = _steps(scores, first, rewrites[0])
    shape, _ = tensor_parts(ended)
    if ended != _returned(rewrites[0]) or len(shape) != _RANK or tuple(middle.task.inputs[0].shape) != shape:
        raise ValueError("the scores are not by batches, heads, queries and keys")
    heads = shape[1]
    queries, keys = (_of_batches(operand, first, rewrites[0], heads) for operand in list(scores.operands)[:2])
    share = _unfolded(context.operands[0])
    values = _of_batches(context.operands[1], last, rewrites[2], heads)
    if share != list(body_of(rewrites[2].function).arguments)[last.inputs.index(None)]:
        raise ValueError("the second product does not multiply what the softmax computes")
    found = _returned(rewrites[2])
    if _unfolded(found) != context.results[0]:
        raise ValueError("something follows the second product")
    columns, depth = (tensor_parts(each)[0][-1] for each in (context.results[0], scores.operands[0]))
    if 1 not in keys.steps[-2:] or values.steps[-1] != 1 or queries.steps[-1] != 1:
        raise ValueError("elements of a query or a value, or keys, are not adjacent")
    result = Strided(len(task.inputs), _stored(context.results[0], found, heads, rewrites[_STAGES:]))
    if result.steps[-1] != 1:
        raise ValueError("elements of a result are not adjacent")
    return AttentionForm(shape, depth, columns, queries, keys, values, product, tuple(steps), result)


def _stored(product: ir.Value, value: ir.Value, heads: int, turned: Sequence[Rewrite]) -> tuple[Count, ...]:
    """Strides along batches, heads, and both dimensions of what the second product computes.

    Args:
        product: the second product, for batches and heads together.
        value: what its stage returns, a reshape of it.
        heads: their number.
        turned: the last stage, if that transposes ``value``.
    """
    if not turned:
        return _apart(stored_as(product, value), heads)
    (rewrite,) = turned
    if len(tensor_parts(value)[0]) != _RANK:
        raise ValueError("what is transposed is not by batches and heads")
    return stored_as(body_of(rewrite.function).arguments[0], _returned(rewrite))


def _apart(steps: Sequence[int], heads: int) -> tuple[int, ...]:
    """Strides with batches and heads apart, which were one dimension."""
    if len(steps) == _RANK:
        return tuple(steps)
    if len(steps) != _RANK - 1:
        raise ValueError("a product is not by batches and heads")
    return (heads * steps[0], *steps)


def _returned(rewrite: Rewrite) -> ir.Value:
    returned = list(body_of(rewrite.function).operations)[-1].operation.operands
    if len(returned) != 1:
        raise ValueError("a stage has several results")
    return returned[0]


def _unfolded(value: ir.Value) -> ir.Value:
    """The value before reshapes."""
    op = defining_op(value)
    return value if op is None or op.name not in _RESHAPES else _unfolded(op.operands[0])


def _of_batches(value: ir.Value, stage: Stage, rewrite: Rewrite, heads: int) -> Strided:
    """An operand of a product with its batches and heads apart, which a reshape joins, or which are joined before."""
    op = defining_op(value)
    tensor = op.operands[0] if op is not None and op.name == _RESHAPES[0] else value
    view = view_of(tensor if len(tensor_parts(tensor)[0]) == _RANK else value)
    return Strided(_memory(view.origin, stage, rewrite), _apart(view.strides, heads))


def _memory(value: ir.Value, stage: Stage, rewrite: Rewrite) -> int:
    arguments = list(body_of(rewrite.function).arguments)
    position = stage.inputs[arguments.index(value)] if value in arguments else None
    if position is None:
        raise ValueError("an operand is computed in the layer")
    return position


def _steps(root: ir.Operation, stage: Stage, rewrite: Rewrite) -> tuple[ir.Value, list[ScoreStep], ir.Value]:
    """The scores, the elementwise ops on them, and what is computed last."""
    current, steps = root.results[0], list[ScoreStep]()
    aliases = {current: current}
    for view in body_of(rewrite.function).operations:
        op = view.operation
        if op.name in _RESHAPES and op.operands[0] in aliases:
            aliases[op.results[0]], current = aliases[op.operands[0]], op.results[0]
        elif op == root or op.name in _WITHOUT_CODE or copies(op) or op.name == "util.return":
            continue
        elif is_elementwise(op) and current in op.operands:
            check_region(op)
            steps.append(ScoreStep(op, tuple(_operands(op, aliases, stage, rewrite))))
            current = op.results[0]
            aliases[current] = current
        else:
            raise ValueError(f"{op.name} is no elementwise op on scores")
    return root.results[0], steps, current


def _operands(op: ir.Operation, aliases: Mapping[ir.Value, ir.Value], stage: Stage, rewrite: Rewrite) -> list[Operand]:
    found: list[Operand] = []
    for value, indexing in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
        constant = constant_of(value)
        if constant is not None:
            found.append(constant)
        elif value in aliases:
            found.append(aliases[value])
        else:
            found.append(_beside(value, indexing, stage, rewrite))
    return found


def _beside(value: ir.Value, indexing: ir.AffineMap, stage: Stage, rewrite: Rewrite) -> Strided:
    view, steps = view_of(value), [0] * _RANK
    if indexing.n_dims != _RANK:
        raise ValueError("an operand beside the scores is not by batches and heads")
    for step, size, result in zip(view.strides, tensor_parts(value)[0], indexing.results, strict=True):
        if isinstance(result, ir.AffineDimExpr) and size > 1:
            steps[result.position] = step
    if steps[-1] not in (0, 1):
        raise ValueError("an operand beside the scores is not adjacent along keys")
    return Strided(_memory(view.origin, stage, rewrite), tuple(steps))


def open_attention_form(one: AttentionForm, other: AttentionForm, fit: Fit) -> AttentionForm:
    """The form for any size, by those for the two sizes of ``fit``.

    Raises:
        ValueError: if they differ in more than numbers of batches, queries and keys.
    """
    if (one.depth, one.columns, one.extents[1]) != (other.depth, other.columns, other.extents[1]):
        raise ValueError("the number of heads or their elements are known only when it runs")

    twins = {one.product: other.product}
    steps = []
    for step, twin in zip(one.steps, other.steps, strict=True):
        operands = [_open_operand(*each, twins, fit) for each in zip(step.operands, twin.operands, strict=True)]
        steps.append(replace(step, operands=tuple(operands)))
        twins[step.op.results[0]] = twin.op.results[0]
    return replace(
        one,
        extents=_fitted(one.extents, other.extents, fit),
        queries=_open_strides(one.queries, other.queries, fit),
        keys=_open_strides(one.keys, other.keys, fit),
        values=_open_strides(one.values, other.values, fit),
        steps=tuple(steps),
        result=_open_strides(one.result, other.result, fit),
    )


def _open_strides(one: Strided, other: Strided, fit: Fit) -> Strided:
    if one.memory != other.memory:
        raise ValueError("attention does not read alike for all sizes")
    return Strided(one.memory, _fitted(one.steps, other.steps, fit))


def _open_operand(one: Operand, other: Operand, twins: Mapping[ir.Value, ir.Value], fit: Fit) -> Operand:
    if isinstance(one, Strided) and isinstance(other, Strided):
        return _open_strides(one, other, fit)
    is_same_value = isinstance(one, ir.Value) and twins.get(one) == other
    if is_same_value or (isinstance(one, ir.Attribute) and str(one) == str(other)):
        return one
    raise ValueError("scores are not computed alike for all sizes")


def _fitted(one: Sequence[Count], other: Sequence[Count], fit: Fit) -> tuple[Count, ...]:
    numbers = [[dim for dim in dims if isinstance(dim, int)] for dims in (one, other)]
    return tuple(fit.count(*pair) for pair in zip(*numbers, strict=True))
