"""Analysis of a fused task as attention over batches, heads, queries and keys, whose numbers may be open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sartor.codegen.ir.layer import Stage, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Count
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.kernels.attention.attention_layer import attention_stages, computes_softmax
from sartor.codegen.kernels.attention.attention_loops import Loops, Strided
from sartor.codegen.kernels.loops.epilogue import check_region, constant_of
from sartor.codegen.kernels.loops.view import Parts, layout_of, stored_as
from sartor.codegen.kernels.rows.row_form import row_form
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, copies, defining_op, indexing_maps, is_elementwise, keeps_order
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts

_STAGES, _RANK = 3, 4
_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")
# Dimensions of the operands and the result of products of a matrix for each batch, by loops.
_PRODUCT = (0, 1, 3), (0, 3, 2), (0, 1, 2)
_WITHOUT_CODE = frozenset({"tensor.empty", "linalg.fill", "arith.constant", *_RESHAPES})


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
        members: successive heads that share keys and values.
        depth: elements of a query.
        columns: elements of a value.
        queries: the last loops are over queries and elements.
        keys: over elements and keys; keys are adjacent, or elements are, as in a cache.
        values: over keys and elements.
        product: the first product's result.
        steps: elementwise ops on it, in order.
        result: like queries, of the result.
    """

    extents: tuple[Count, ...]
    members: int
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
    """The form of a fused task, for any size if those are known only when it runs, with the rewrites that hold its ops.

    Raises:
        RejectionError: if it is no attention that the kernels compute.
    """
    one, rewrites = _known_form(task)
    if task.opened is None:
        return one, rewrites
    if task.weights:
        raise RejectionError("a weight beside its scores may be a table of which a call reads a part")
    other, others = _known_form(task.opened.twin)
    with rewrites[0].module.context:
        return _open_form(one, other, task.opened.fit), (*rewrites, *others)


def _known_form(task: Task) -> tuple[AttentionForm, tuple[Rewrite, ...]]:
    """The form of a fused task for the sizes of its code."""
    stages = attention_stages(task)
    if len(stages) not in (_STAGES, _STAGES + 1):
        raise RejectionError("not a product, a softmax and a product")
    rewrites = tuple(Rewrite.plain(stage.task) for stage in stages)
    with rewrites[0].module.context:
        return _form(task, stages, rewrites), rewrites


@dataclass(frozen=True)
class _Code:
    """A stage's code.

    Attributes:
        task: the layer that it is a stage of.
        rewrite: holds its ops.
        memories: position of the buffer of each argument of its function; None for what the stage before computes.
    """

    task: Task
    rewrite: Rewrite
    memories: tuple[int | None, ...]

    def memory(self, value: ir.Value) -> int:
        """Position of the buffer of an argument.

        Raises:
            RejectionError: if the value is none.
        """
        arguments = list(body_of(self.rewrite.function).arguments)
        position = self.memories[arguments.index(value)] if value in arguments else None
        if position is None:
            raise RejectionError("an operand is computed in the layer")
        return position


def _codes(task: Task, stages: Sequence[Stage], rewrites: Sequence[Rewrite]) -> list[_Code]:
    """The code of each stage; buffers are activations, then the weights of all stages, then the result."""
    codes, first = [], len(task.inputs)
    for stage, rewrite in zip(stages, rewrites, strict=True):
        end = first + len(stage.task.weights)
        codes.append(_Code(task, rewrite, (*stage.inputs, *range(first, end))))
        first = end
    return codes


def _form(task: Task, stages: Sequence[Stage], rewrites: Sequence[Rewrite]) -> AttentionForm:
    _, middle, last = stages[:_STAGES]
    if middle.inputs != (None,) or not computes_softmax(row_form(rewrites[1].function), middle.task.results[0]):
        raise RejectionError("there is no softmax between the products")
    scores, context = rewrites[0].root, rewrites[2].root
    if not all(map(_is_product, (scores, context))):
        raise RejectionError("the products are not of a matrix for each head")
    shape = middle.task.inputs[0].shape
    if len(shape) not in (_RANK - 1, _RANK):
        raise RejectionError("the scores are not by batches, heads, queries and keys")
    # Without a dimension of their own, heads are taken for batches.
    by_rows = shape if len(shape) == _RANK else (shape[0], 1, *shape[1:])
    columns, depth = (tensor_parts(operand)[0][-1] for operand in (context.results[0], scores.operands[0]))
    if _joined(by_rows) != tensor_parts(scores.results[0])[0]:
        raise RejectionError("the softmax is over other batches, heads or queries than the first product's")
    if (*_joined(by_rows)[:-1], columns) != tensor_parts(context.results[0])[0]:
        raise RejectionError("the softmax is over other batches, heads or queries than the second product's")
    if _unfolded(context.operands[0]) != list(body_of(rewrites[2].function).arguments)[last.inputs.index(None)]:
        raise RejectionError("the second product does not multiply what the softmax computes")
    codes = _codes(task, stages, rewrites)
    try:
        return _strided(codes, Loops.of(by_rows, 1), shape, (depth, columns))
    except RejectionError:
        members = _members(context.results[0], _returned(rewrites[2]), by_rows)
        if members == 1:
            raise
        return _strided(codes, Loops.of(by_rows, members), shape, (depth, columns))


def _members(product: ir.Value, returned: ir.Value, shape: Sequence[int]) -> int:
    """How many heads share one of keys, by the shape that the second product's result is given later."""
    batches, groups, rows, _ = shape
    for value in _sources(returned):
        sizes = tensor_parts(value)[0]
        if len(sizes) == _RANK and sizes[0] == batches and _unfolded(value) == product and groups and rows:
            members, rest = divmod(sizes[1], groups)
            if members > 1 and not rest and members * sizes[2] == rows:
                return members
    return 1


def _strided(codes: Sequence[_Code], loops: Loops, shape: Sequence[int], sizes: tuple[int, int]) -> AttentionForm:
    """The form by these loops.

    Args:
        codes: of the stages.
        loops: what the rows of scores are.
        shape: of the scores that the softmax reads.
        sizes: elements of a query, and of a value.
    """
    first, _, second, *_ = codes
    scores, context = first.rewrite.root, second.rewrite.root
    product, steps, ended = _steps(scores, first, loops)
    if ended != _returned(first.rewrite) or tensor_parts(ended)[0] != tuple(shape):
        raise RejectionError("other code follows the scores")
    queries = _read(scores.operands[0], first, loops.by_queries)
    keys = _read(scores.operands[1], first, loops.by_elements)
    values = _read(context.operands[1], second, loops.by_elements)
    if 1 not in keys.steps[-2:] or values.steps[-1] != 1 or queries.steps[-1] != 1:
        raise RejectionError("elements of a query or a value, or keys, are not adjacent")
    position = len(first.task.inputs) + len(first.task.weights)
    result = Strided(position, _stored(context.results[0], [code.rewrite for code in codes[2:]], loops))
    if result.steps[-1] != 1:
        raise RejectionError("elements of a result are not adjacent")
    return AttentionForm(loops.extents, loops.members, *sizes, queries, keys, values, product, tuple(steps), result)


def _joined(extents: Sequence[int]) -> tuple[int, ...]:
    """A shape by batches and heads with both as one dimension."""
    batches, heads, *others = extents
    return (batches * heads, *others)


def _is_product(op: ir.Operation) -> bool:
    """Whether an op multiplies a matrix by another for each batch."""
    maps = [[getattr(result, "position", None) for result in indexing.results] for indexing in indexing_maps(op)]
    return maps == [list(dimensions) for dimensions in _PRODUCT]


def _stored(product: ir.Value, rewrites: Sequence[Rewrite], loops: Loops) -> tuple[Count, ...]:
    """Strides along the loops, and along elements, of what the second product computes.

    Args:
        product: the second product, for batches and heads together.
        rewrites: of its stage, and of one that transposes its result, if there is one.
        loops: of the attention.
    """
    value = _returned(rewrites[0])
    shape = (*loops.extents[:-1], tensor_parts(product)[0][-1])
    if len(rewrites) == 1:
        apart = _expanded(product, value, shape)
        if apart is None and loops.members > 1:
            raise RejectionError("the result is not by heads")
        return loops.by_heads(stored_as(product if apart is None else apart, value))
    if tensor_parts(value)[0] != shape or _unfolded(value) != product:
        raise RejectionError("what is transposed is not by batches and heads")
    return loops.by_heads(stored_as(body_of(rewrites[1].function).arguments[0], _returned(rewrites[1])))


def _expanded(product: ir.Value, value: ir.Value, shape: Sequence[int]) -> ir.Value | None:
    """The product in this shape, with batches and heads apart, of which ``value`` is made; None if it has another."""
    for source in _sources(value):
        if source != product and tensor_parts(source)[0] == tuple(shape) and _unfolded(source) == product:
            return source
    return None


def _sources(value: ir.Value) -> Iterator[ir.Value]:
    """A value, what it is made of first, what that is, and so on."""
    yield value
    op = defining_op(value)
    if op is not None and op.operands:
        yield from _sources(op.operands[0])


def _returned(rewrite: Rewrite) -> ir.Value:
    returned = list(body_of(rewrite.function).operations)[-1].operation.operands
    if len(returned) != 1:
        raise RejectionError("a stage has several results")
    return returned[0]


def _unfolded(value: ir.Value) -> ir.Value:
    """The value before reshapes."""
    op = defining_op(value)
    return value if op is None or op.name not in _RESHAPES else _unfolded(op.operands[0])


def _read(value: ir.Value, code: _Code, strides: Callable[[Sequence[Parts]], tuple[int, ...]]) -> Strided:
    """An operand of a product, whose batches and heads are joined."""
    layout = layout_of(value)
    return Strided(code.memory(layout.origin), strides(layout.dims))


def _steps(root: ir.Operation, code: _Code, loops: Loops) -> tuple[ir.Value, list[ScoreStep], ir.Value]:
    """The scores, the elementwise ops on them, and what is computed last."""
    current, steps = root.results[0], list[ScoreStep]()
    aliases = {current: current}
    for view in body_of(code.rewrite.function).operations:
        op = view.operation
        if op.name in _RESHAPES and op.operands[0] in aliases:
            aliases[op.results[0]], current = aliases[op.operands[0]], op.results[0]
        elif op == root or op.name in _WITHOUT_CODE or copies(op) or op.name == "util.return":
            continue
        elif is_elementwise(op) and current in op.operands:
            check_region(op)
            steps.append(ScoreStep(op, tuple(_operands(op, aliases, code, loops))))
            current = op.results[0]
            aliases[current] = current
        else:
            raise RejectionError(f"{op.name} is no elementwise op on scores")
    return root.results[0], steps, current


def _operands(op: ir.Operation, aliases: Mapping[ir.Value, ir.Value], code: _Code, loops: Loops) -> list[Operand]:
    shape, operands = tensor_parts(op.results[0])[0], list[Operand]()
    if shape not in (loops.rows, _joined(loops.rows)):
        raise RejectionError("an op on the scores is not by their batches, heads and queries")
    for value, indexing in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
        constant = constant_of(value)
        if constant is not None:
            operands.append(constant)
        elif value in aliases:
            if not keeps_order(indexing, shape):
                raise RejectionError("an op reads the scores in another order")
            operands.append(aliases[value])
        else:
            operands.append(_beside(value, indexing, code, loops))
    return operands


def _beside(value: ir.Value, indexing: ir.AffineMap, code: _Code, loops: Loops) -> Strided:
    """An operand beside the scores, which are by batches and heads, or by both joined."""
    layout, outer = layout_of(value), (loops.rows if indexing.n_dims == _RANK else _joined(loops.rows))
    dims: list[Parts] = [((size, 0),) for size in outer]
    for parts, size, dimension in zip(layout.dims, tensor_parts(value)[0], indexing.results, strict=True):
        if isinstance(dimension, ir.AffineDimExpr) and size > 1:
            dims[dimension.position] = parts
    steps = loops.by_queries(dims)
    if steps[-1] not in (0, 1):
        raise RejectionError("an operand beside the scores is not adjacent along keys")
    return Strided(code.memory(layout.origin), steps)


def _open_form(one: AttentionForm, other: AttentionForm, fit: Fit) -> AttentionForm:
    """The form for any size, by those for the two sizes of ``fit``.

    Raises:
        RejectionError: if they differ in more than numbers of batches, queries and keys.
    """
    known, others = ((form.depth, form.columns, form.extents[1], form.members) for form in (one, other))
    if known != others:
        raise RejectionError("the number of heads or their elements are known only when it runs")

    twins = {one.product: other.product}
    steps = []
    for step, twin in zip(one.steps, other.steps, strict=True):
        operands = [_open_operand(*pair, twins, fit) for pair in zip(step.operands, twin.operands, strict=True)]
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
        raise RejectionError("attention does not read alike for all sizes")
    return Strided(one.memory, _fitted(one.steps, other.steps, fit))


def _open_operand(one: Operand, other: Operand, twins: Mapping[ir.Value, ir.Value], fit: Fit) -> Operand:
    if isinstance(one, Strided) and isinstance(other, Strided):
        return _open_strides(one, other, fit)
    is_same_value = isinstance(one, ir.Value) and twins.get(one) == other
    if is_same_value or (isinstance(one, ir.Attribute) and str(one) == str(other)):
        return one
    raise RejectionError("scores are not computed alike for all sizes")


def _fitted(one: Sequence[Count], other: Sequence[Count], fit: Fit) -> tuple[Count, ...]:
    numbers = [[dim for dim in dims if isinstance(dim, int)] for dims in (one, other)]
    return tuple(fit.count(*pair) for pair in zip(*numbers, strict=True))
