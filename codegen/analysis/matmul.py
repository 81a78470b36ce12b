"""Layers as matrix products ``[M, K] x [K, N]``, with all other ops flattened to the shape of the result.

Products of images by 1x1 filters, products with batches of one, and contractions over several dimensions all become
the same three loops; reshapes move to the edges of the layer, where they cost nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.packing import Reshape, Transpose
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import copies, defining_op, indexing_maps, loop_sizes
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import tensor_parts, tensor_type

_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})
_FLATTEN = (
    "linalg-fold-unit-extent-dims",
    "iree-dispatch-creation-collapse-contraction-dimensions",
    "iree-dispatch-creation-sink-reshapes",
    "canonicalize",
    "cse",
)


@dataclass(frozen=True)
class MatmulShape:
    """Extents of a product's loops, in this order.

    Attributes:
        batches: extents of the loops that the RHS and the result share, and the LHS as well unless ``shares_lhs``.
        rows: extent of the loop over rows; None for the product of a vector by a matrix.
        columns: extent of the loop over the result's columns.
        depth: extent of the reduction.
        shares_lhs: whether one LHS is multiplied by every matrix of the batch.
    """

    batches: tuple[int, ...]
    rows: int | None
    columns: int
    depth: int
    shares_lhs: bool = False


def product_rewrite(task: Task) -> Rewrite | Rejected:
    """The flattened rewrite of a layer that is a matrix product; Rejected with the reason if it is none."""
    rewrite = _natural_rewrite(task)
    if isinstance(rewrite, Rejected):
        return rewrite
    try:
        flatten(rewrite)
    except RejectionError as error:
        return Rejected(error.reason)
    return rewrite


@functools.lru_cache(maxsize=1024)
def product_shape(task: Task) -> MatmulShape | Rejected:
    """Extents of a layer that is a matrix product; Rejected with the reason if it is none."""
    rewrite = product_rewrite(task)
    if isinstance(rewrite, Rejected):
        return rewrite
    with rewrite.module.context:
        return shape_of(rewrite.root)


@functools.lru_cache(maxsize=1024)
def is_by_weight(task: Task) -> bool:
    """Whether a layer is a single matrix product whose RHS is a weight."""
    rewrite = product_rewrite(task)
    if isinstance(rewrite, Rejected):
        return False
    with rewrite.module.context:
        return multiplies_weight(rewrite)


def multiplies_weight(rewrite: Rewrite) -> bool:
    """Whether a flattened layer is a single product whose RHS is a weight."""
    return not shape_of(rewrite.root).batches and rewrite.weight_index(rewrite.root.operands[1]) is not None


def _natural_rewrite(task: Task) -> Rewrite | Rejected:
    if task.kind is LayerKind.CONTRACTION:
        return Rewrite.plain(task)
    convolution = convolution_of(task) if task.kind is LayerKind.CONVOLUTION else None
    if convolution is None or not convolution.is_product:
        return Rejected("neither a matrix product nor a 1x1 convolution")
    return Rewrite.images(task, CHANNELS_LAST)


def flatten(rewrite: Rewrite) -> None:
    """Rewrite a layer, in place, as a matrix product; an RHS that is a weight is stored ``[K, N]``.

    Raises:
        RejectionError: if its root is no product of matrices.
    """
    _fold_broadcasts(rewrite)
    rewrite.run_passes(*_FLATTEN)
    with rewrite.module.context as context, ir.Location.unknown(context):
        _fold_reshapes(rewrite)
        shape_of(rewrite.root)
        if is_turned(rewrite):
            turn_weight(rewrite)


def _fold_broadcasts(rewrite: Rewrite) -> None:
    """Read operands that are only repeated, as one weight is for every batch, without copying them."""
    root = rewrite.root
    maps = indexing_maps(root)
    with rewrite.module.context as context, ir.Location.unknown(context):
        for index in range(len(root.operands) - 1):
            op = defining_op(root.operands[index])
            if op is None or not copies(op):
                continue
            source, inner = indexing_maps(op)[0], list(maps[index].results)
            read = [
                inner[result.position] if isinstance(result, ir.AffineDimExpr) else result for result in source.results
            ]
            if index and not _are_of_a_matrix(read[-2:], maps[index].n_dims):
                # A transposition that no RHS may have: its strides follow from the op instead.
                continue
            maps[index] = ir.AffineMap.get(maps[index].n_dims, 0, read)
            root.operands[index] = op.operands[0]
        root.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(map_of_operand) for map_of_operand in maps]
        )


def _are_of_a_matrix(loops: Sequence[ir.AffineExpr], count: int) -> bool:
    """Whether loops are those over columns and over the reduction, the last two of ``count``."""
    return {loop.position for loop in loops if isinstance(loop, ir.AffineDimExpr)} == {count - 2, count - 1}


def _fold_reshapes(rewrite: Rewrite) -> None:
    """Reshape weights at compile time that the layer only reshapes."""
    for index, weight in enumerate(rewrite.weights):
        users = [use.owner.operation for use in weight.uses]
        if len(users) == 1 and users[0].name in _RESHAPES:
            reshaped = users[0].results[0]
            shape, element = tensor_parts(reshaped)
            rewrite.pack(index, (Reshape(shape),), tensor_type(shape, element))
            reshaped.replace_all_uses_with(weight)
            users[0].erase()


def is_turned(rewrite: Rewrite) -> bool:
    """Whether the RHS is a weight stored ``[N, K]``."""
    rhs, result = indexing_maps(rewrite.root)[1:]
    is_weight = rewrite.weight_index(rewrite.root.operands[1]) is not None
    return is_weight and rhs.results[-2] == result.results[-1]


def turn_weight(rewrite: Rewrite) -> None:
    """Transpose the RHS, which has to be a weight.

    Raises:
        RejectionError: if it is no weight.
    """
    root = rewrite.root
    index = rewrite.weight_index(root.operands[1])
    if index is None:
        raise RejectionError("the RHS is not a weight")
    maps = indexing_maps(root)
    *outer, first, second = list(maps[1].results)
    shape, element = tensor_parts(root.operands[1])
    order = (*range(len(outer)), len(outer) + 1, len(outer))
    with rewrite.module.context as context, ir.Location.unknown(context):
        rewrite.pack(index, (Transpose(order),), tensor_type([shape[axis] for axis in order], element))
        turned = ir.AffineMap.get(maps[1].n_dims, 0, [*outer, second, first])
        root.attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(map_of_operand) for map_of_operand in (maps[0], turned, maps[2])]
        )


def shape_of(root: ir.Operation) -> MatmulShape:
    """Extents of a flattened root.

    Raises:
        RejectionError: if it is no product of matrices.
    """
    kinds = ["reduction" in str(kind) for kind in ir.ArrayAttr(root.attributes["iterator_types"])]
    sizes = loop_sizes(root)
    lhs, rhs, result = ([_loop(map_of_operand) for map_of_operand in map_.results] for map_ in indexing_maps(root))
    parallel = len(kinds) - 1
    if sum(kinds) != 1 or not kinds[-1] or result != list(range(parallel)):
        raise RejectionError("the root is not a matrix product")
    column, depth = parallel - 1, parallel
    if sorted(rhs[-2:]) != [column, depth] or depth not in lhs or column in lhs:
        raise RejectionError("the root's operands are not the LHS and the RHS of a matrix product")
    batches = sorted(loop for loop in rhs if loop not in (column, depth))
    common = [loop for loop in lhs if loop in batches]
    rows = [loop for loop in range(column) if loop not in batches]
    if len(rows) > 1 or batches != list(range(len(batches))):
        raise RejectionError("the root has more than one loop over rows")
    if sorted(lhs) != sorted([*common, *rows, depth]) or len(rhs) != len(batches) + 2:
        raise RejectionError("the root's operands are not the LHS and the RHS of a matrix product")
    if common and common != batches:
        raise RejectionError("one LHS is multiplied by some of several matrices")
    extent = sizes[rows[0]] if rows else None
    extents = tuple(sizes[loop] for loop in batches)
    return MatmulShape(extents, extent, sizes[column], sizes[depth], shares_lhs=common != batches)


def _loop(expression: ir.AffineExpr) -> int:
    if not isinstance(expression, ir.AffineDimExpr):
        raise RejectionError("the root is not a matrix product")
    return int(expression.position)
