"""Products of packed matrices: ``linalg.mmt4d``, which IREE runs on its microkernels."""

from __future__ import annotations

from sartor.codegen.analysis.matmul import MatmulShape, shape_of
from sartor.codegen.ir.packing import cut
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.machine import Machine, MatmulTile
from sartor.codegen.mlir.rewriting.initial import initial_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.mlir.snippet import inline, tensor_parts, tensor_type


def use_mmt4d(rewrite: Rewrite, machine: Machine) -> None:
    """Replace the root of a flattened layer by pack, ``mmt4d`` and unpack; its weight is packed at compile time.

    The root's initial value is added afterwards. Rows and columns that do not fill tiles are padded with zeros.

    Raises:
        RejectionError: if the RHS is no weight, there is a batch of products, or IREE has no tile for them.
    """
    with rewrite.module.context as context, ir.Location.unknown(context):
        root = rewrite.root
        shape = shape_of(root)
        tile = machine.tile if shape.rows else machine.vector_tile
        if tile is None:
            raise RejectionError("IREE has no matrix tile for this target")
        index = rewrite.weight_index(root.operands[1])
        if index is None or shape.batches:
            raise RejectionError("the RHS is not a weight, or there is a batch of products")
        packed = _pack_weight(rewrite, index, shape, tile, tensor_parts(root.operands[1])[1])
        text = _text(shape, tile, packed, *(tensor_parts(value)[1] for value in (root.operands[0], root.results[0])))
        (product,) = inline(text, list(root.operands)[:2], ir.InsertionPoint(root))
        root.results[0].replace_all_uses_with(initial_of(root).added_to(product, root))
        root.erase()


def _pack_weight(rewrite: Rewrite, index: int, shape: MatmulShape, tile: MatmulTile, element: str) -> str:
    """Pack ``[K, N]`` to ``[N1, K1, N0, K0]``; returns the packed type."""
    inner, outer = _tiles(shape.depth, tile.depth), _tiles(shape.columns, tile.columns)
    steps = cut(((inner, tile.depth), (outer, tile.columns)), (2, 0, 3, 1))
    packed = tensor_type((outer, inner, tile.columns, tile.depth), element)
    rewrite.pack(index, steps, packed)
    return packed


def _tiles(extent: int, tile: int) -> int:
    return -(-extent // tile)


def _text(shape: MatmulShape, tile: MatmulTile, right: str, element: str, sums: str) -> str:
    """MLIR of a function from the LHS, of type ``element``, and the packed RHS to their product, of type ``sums``."""
    rows, columns, depth = shape.rows or 1, shape.columns, shape.depth
    outer = _tiles(rows, tile.rows), _tiles(columns, tile.columns), _tiles(depth, tile.depth)
    whole, result = tensor_type((rows, depth), element), tensor_type((rows, columns), sums)
    given = whole if shape.rows else tensor_type((depth,), element)
    wanted = result if shape.rows else tensor_type((columns,), sums)
    left = tensor_type((outer[0], outer[2], tile.rows, tile.depth), element)
    packed = tensor_type((outer[0], outer[1], tile.rows, tile.columns), sums)
    expand = f"tensor.expand_shape %given [[0, 1]] output_shape [1, {depth}] : {given} into {whole}"
    collapse = f"tensor.collapse_shape %whole [[0, 1]] : {result} into {wanted}"
    return f"""util.func private @product(%{"left" if shape.rows else "given"}: {given}, %right: {right}) -> {wanted} {{
  {"" if shape.rows else f"%left = {expand}"}
  %filler = arith.constant 0.0 : {element}
  %zero = arith.constant 0.0 : {sums}
  %room = tensor.empty() : {left}
  %packed = linalg.pack %left padding_value(%filler : {element}) outer_dims_perm = [0, 1] inner_dims_pos = [0, 1]
      inner_tiles = [{tile.rows}, {tile.depth}] into %room : {whole} -> {left}
  %empty = tensor.empty() : {packed}
  %start = linalg.fill ins(%zero : {sums}) outs(%empty : {packed}) -> {packed}
  %sums = linalg.mmt4d ins(%packed, %right : {left}, {right}) outs(%start : {packed}) -> {packed}
  %place = tensor.empty() : {result}
  %whole = linalg.unpack %sums outer_dims_perm = [0, 1] inner_dims_pos = [0, 1]
      inner_tiles = [{tile.rows}, {tile.columns}] into %place : {packed} -> {result}
  {"" if shape.rows else f"%wanted = {collapse}"}
  util.return %{"whole" if shape.rows else "wanted"} : {wanted}
}}"""
