"""A fused task as an attention: the product of queries and keys, softmax, and the product with values."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape, product_rewrite, product_shape
from sartor.codegen.ir.layer import LayerKind, Stage, Task, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import schemas_of
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.attention.fused_attention import FusedAttention
from sartor.codegen.kernels.layers.kernel_layer import KernelLayer
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.loops.access import Access
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.rows.row_form import Given, RowForm, row_form
from sartor.codegen.kernels.tensor_cores.instructions import ROWS, MatrixInstruction
from sartor.codegen.kernels.tensor_cores.matrix_rhs import MatrixRows
from sartor.codegen.kernels.tensor_cores.results import FinishedResult, WarpSums
from sartor.codegen.kernels.tensor_cores.staging import PixelRows
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.subgraphs.fusion import fuse

_STAGES = 3
_ONE = Axis(1, 1, 1, 1, 1, 0)
_PAIR = 2
_LEAST_COLUMNS = 32
# A softmax by its ops: the largest of a row, its distance to each, exponentials, their sum, and quotients.
_SOFTMAX = ({"arith.maximumf", "arith.maxnumf"}, {"arith.subf"}, {"math.exp"}, {"arith.addf"}, {"arith.divf"})


@dataclass(frozen=True)
class Attention:
    """Extents of an attention.

    Attributes:
        scores: of the first product.
        context: of the second.
    """

    scores: MatmulShape
    context: MatmulShape

    @property
    def value_columns(self) -> int:
        """Columns of the second product that a workgroup computes, a power of two."""
        return int(max(_LEAST_COLUMNS, 1 << (self.context.columns - 1).bit_length()))


def attention_of(task: Task) -> Attention | Rejected:
    """A fused task as an attention, or why it is none."""
    stages = attention_stages(task)
    if len(stages) != _STAGES:
        return Rejected("not a product, a softmax and a product")
    first, middle, last = stages
    scores, context = product_shape(first.task), product_shape(last.task)
    if isinstance(scores, Rejected) or isinstance(context, Rejected):
        return Rejected("not a product, a softmax and a product")
    if scores.shares_lhs or context.shares_lhs:
        return Rejected("one LHS is multiplied by several matrices")
    if not _is_softmax(middle, scores):
        return Rejected("there is no softmax over the rows of scores between the products")
    if context.columns % _PAIR:
        return Rejected("the values' columns are an odd number")
    if scores.batches != context.batches or scores.rows != context.rows or scores.columns != context.depth:
        return Rejected("the second product does not multiply what the softmax computes")
    return Attention(scores, context)


@functools.lru_cache(maxsize=256)
def attention_stages(task: Task) -> tuple[Stage, ...]:
    """The stages of a fused task, the first two as one if they are a layer that turns the keys, and their product."""
    if len(task.stages) <= _STAGES or task.stages[0].task.kind is LayerKind.CONTRACTION:
        return task.stages
    turn, scores, *rest = task.stages
    if scores.inputs.count(None) != 1 or None in turn.inputs:
        return task.stages
    slot = scores.inputs.index(None)
    joined = replace(fuse(turn.task, scores.task, slot), kind=scores.task.kind, stages=())
    others = tuple(input_ for index, input_ in enumerate(scores.inputs) if index != slot)
    return (Stage(joined, (*turn.inputs, *others)), *rest)


def _is_softmax(stage: Stage, scores: MatmulShape) -> bool:
    """Whether a stage is a softmax over rows of scores, which reshapes around it may have made longer or shorter."""
    if stage.inputs != (None,) or stage.task.weights:
        return False
    rewrite = Rewrite.plain(stage.task)
    with rewrite.module.context:
        try:
            form = row_form(rewrite.function)
        except RejectionError:
            return False
        return form.length == scores.columns and computes_softmax(form, stage.task.results[0])


def computes_softmax(form: RowForm, result: TensorType) -> bool:
    """Whether steps are exactly those of a softmax over the last dimension."""
    steps = list(form.steps.values())
    if len(steps) != len(_SOFTMAX) or form.length != result.shape[-1]:
        return False
    names = [
        {step.fold.combine.name} if step.fold else {view.operation.name for view in body_of(step.op).operations}
        for step in steps
    ]
    if not all(name - {"linalg.yield"} <= known for name, known in zip(names, _SOFTMAX, strict=True)):
        return False
    largest, distance, power, total, _ = (step.result for step in steps)
    given, *others = (step.operands for step in steps)
    argument = given[0]
    if not isinstance(argument, Given) or argument.is_repeated:
        return False
    return others == [(argument, largest), (distance,), (power,), (power, total)] and form.result == steps[-1].result


def attention_layer(
    task: Task,
    warps: int,
    block: int,
    instruction: MatrixInstruction,
    device: str,
    storage: str | None,
) -> KernelLayer:
    """The kernel of an attention.

    Raises:
        RejectionError: if there is none.
    """
    attention = attention_of(task)
    if isinstance(attention, Rejected):
        raise RejectionError(attention.reason)
    first, _, last = attention_stages(task)
    one, other = (product_rewrite(stage.task) for stage in (first, last))
    if isinstance(one, Rejected) or isinstance(other, Rejected):
        raise RejectionError("its products cannot be flattened")
    with one.module.context:
        scores, context = ProductLayer.of(one, _PAIR), ProductLayer.of(other, _PAIR)
        code = _code(task, attention, scores, context, (warps, block), instruction)
    inputs = schemas_of(task.inputs, _layouts(task, one, other), device, storage)
    (output,) = schemas_of(task.results, other.outputs, device, storage)
    return KernelLayer(task, (one, other), inputs, output, code)


def _code(
    task: Task,
    attention: Attention,
    scores: ProductLayer,
    context: ProductLayer,
    sizes: tuple[int, int],
    instruction: MatrixInstruction,
) -> FusedAttention:
    given, taken = _wirings(task)
    queries, keys = (given[memory] for memory in scores.memories)
    probabilities, place = context.memories
    values = taken[place]
    if max(queries, keys, values) >= len(task.inputs) or attention_stages(task)[-1].inputs[probabilities] is not None:
        raise RejectionError("it does not multiply activations, the last by what the softmax computes")
    _check_between(attention, scores, context, probabilities)
    if scores.shape.columns % _PAIR and any(access.vector is not None for access in _read(scores.epilogue)):
        raise RejectionError("its keys are an odd number, and an operand beside the scores has a number for each")
    shape = context.shape
    tile = ROWS, attention.value_columns
    sums = WarpSums(context.rows, shape.columns, tile, (sizes[0] * ROWS, attention.value_columns), _PAIR)
    code = FusedAttention(
        queries=PixelRows((_ONE, scores.axes[1]), scores.lhs, scores.shape.depth, scores.batches),
        keys=_keys(scores),
        values=_matrix(context),
        memories=(queries, keys, values),
        scores=scores.epilogue,
        given=given,
        result=FinishedResult(sums, context.result, context.epilogue),
        taken=taken,
        warps=sizes[0],
        block=sizes[1],
        instruction=instruction,
    )
    code.check()
    return code


def _read(epilogue: Epilogue) -> Iterator[Access]:
    return (operand for operands in epilogue.operands.values() for operand in operands if isinstance(operand, Access))


def _keys(product: ProductLayer) -> MatrixRows | PixelRows:
    turned = product.turned_rhs
    if turned is None:
        return _matrix(product)
    columns = product.shape.columns
    return PixelRows((_ONE, Axis(columns, columns, 1, 1, 1, 0)), turned, product.shape.depth, product.batches)


def _matrix(product: ProductLayer) -> MatrixRows:
    batch, row = product.rhs_strides()
    return MatrixRows(batch, row, product.shape.depth, product.shape.columns)


def _check_between(attention: Attention, scores: ProductLayer, context: ProductLayer, argument: int) -> None:
    """Check that both products see the scores in one order, and that nothing else reads them.

    Raises:
        RejectionError: if not.
    """
    columns = attention.scores.columns
    written, read = scores.result, context.lhs
    in_rows = written.row == read.row == scores.rows * columns
    in_order = scores.rows == 1 or written.column == read.column == columns
    in_batches = scores.batches == 1 or written.batch == read.batch == scores.rows * columns
    if not (in_rows or scores.rows == 1) or not in_order or not in_batches:
        raise RejectionError("the products see the scores in different orders")
    if len(list(list(body_of(context.rewrite.function).arguments)[argument].uses)) != 1:
        raise RejectionError("what the softmax computes is read twice")


def _wirings(task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For the buffers of both products their positions among the kernel's: activations, weights, the result.

    What the softmax computes has no buffer; the position of the result stands for it.
    """
    first, _, last = attention_stages(task)
    weights = len(task.inputs) + len(first.task.weights)
    result = len(task.inputs) + len(task.weights)
    given = tuple(result if input_ is None else input_ for input_ in first.inputs)
    taken = tuple(result if input_ is None else input_ for input_ in last.inputs)
    return (
        (*given, *range(len(task.inputs), weights), result),
        (*taken, *range(weights, result), result),
    )


def _layouts(task: Task, first: Rewrite, last: Rewrite) -> tuple[str, ...]:
    """The layout of each activation.

    Raises:
        RejectionError: if the products read an activation in different layouts.
    """
    layouts: dict[int, str] = {}
    of_scores, _, of_context = attention_stages(task)
    for stage, rewrite in ((of_scores, first), (of_context, last)):
        for position, layout in zip(stage.inputs, rewrite.inputs, strict=True):
            if position is not None and layouts.setdefault(position, layout) != layout:
                raise RejectionError("the products read an activation in different layouts")
    return tuple(layouts[position] for position in range(len(task.inputs)))
