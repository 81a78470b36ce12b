"""A matrix product as a contraction: rows of the left matrix are pixels, columns of the right one are channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.draft import Draft
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.access import Access, ImageStrides, row_major
from sartor.codegen.kernels.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.epilogue import Epilogue
from sartor.codegen.kernels.nest import Nest
from sartor.codegen.kernels.tiles import Axis
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.tilings import chunk
from sartor.codegen.matmul_form import MatmulShape, shape_of
from sartor.codegen.operations import body_of, defining_op, indexing_maps
from sartor.codegen.packing import PadTo, Reshape, Transpose
from sartor.codegen.snippet import tensor_parts

_RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape"})


@dataclass
class ProductLayer:
    """A layer in the form of a matrix product while it becomes a kernel.

    Attributes:
        draft: flattened; packings are extended.
        shape: extents of its loops.
        lanes: elements of a vector.
    """

    draft: Draft
    shape: MatmulShape
    lanes: int

    @staticmethod
    def of(draft: Draft, lanes: int) -> ProductLayer:
        """The layer of a flattened draft.

        Raises:
            ValueError: if it is more than one batch of products.
        """
        shape = shape_of(draft.root)
        if len(shape.batches) > 1:
            raise ValueError("its batches have more than one dimension")
        return ProductLayer(draft, shape, lanes)

    def contraction(self, tiling: Tiling) -> Contraction:
        """The contraction; a right matrix that is a weight is packed into panels.

        Raises:
            ValueError: if the layer has no such form.
        """
        rows, root = self.shape.rows or 1, self.draft.root
        nest = Nest(
            batches=self.shape.batches[0] if self.shape.batches else 1,
            channels=self.shape.columns,
            rows=Axis(1, 1, 1, 1, 1, 0),
            columns=Axis(rows, rows, 1, 1, 1, 0),
            result=self._walk(len(self._arguments), root.results[0], indexing_maps(root)[2]),
            epilogue=self._epilogue(),
            lanes=self.lanes,
            tiling=tiling,
        )
        contraction = Contraction(
            nest=nest,
            depth=self.shape.depth,
            image=self._left(),
            filters=self._right(tiling),
            memories=(self._argument(root.operands[0]), self._argument(root.operands[1])),
        )
        return contraction.joined(chunk(rows, tiling.columns))

    @property
    def _arguments(self) -> list[ir.Value]:
        return list(body_of(self.draft.function).arguments)

    def _argument(self, value: ir.Value) -> int:
        """Position of the argument that a value is, seen through reshapes."""
        while (op := defining_op(value)) is not None and op.name in _RESHAPES:
            value = op.operands[0]
        if value not in self._arguments:
            raise ValueError("an operand is computed in the layer, and not by its chain")
        return self._arguments.index(value)

    def _strides(self, value: ir.Value, indexing: ir.AffineMap) -> tuple[list[int], list[int]]:
        """Steps of the root's parallel loops through a tensor, then of its reduction."""
        loops = len(self.shape.batches) + (self.shape.rows is not None) + 1
        steps = [0] * (loops + 1)
        for step, expression in zip(row_major(tensor_parts(value)[0]), indexing.results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                steps[expression.position] = step
        return steps[:loops], steps[loops:]

    def _split(self, steps: list[int]) -> tuple[int, int, int]:
        """Steps of batch, row and column of the product; 0 for a loop that it does not have."""
        batch = steps[0] if self.shape.batches else 0
        row = steps[len(self.shape.batches)] if self.shape.rows is not None else 0
        return batch, row, steps[-1]

    def _walk(self, memory: int, value: ir.Value, indexing: ir.AffineMap) -> Access:
        batch, row, column = self._split(self._strides(value, indexing)[0])
        if column not in (0, 1):
            raise ValueError("columns of an operand are not adjacent")
        rows = self.shape.rows or 1
        return Access(memory, batch, rows * row, row, self.lanes if column else None)

    def _left(self) -> ImageStrides:
        root = self.draft.root
        steps, (depth,) = self._strides(root.operands[0], indexing_maps(root)[0])
        batch, row, _ = self._split(steps)
        if depth != 1 and self.shape.depth > 1:
            raise ValueError("the left matrix is stored by columns")
        block = self.shape.depth
        return ImageStrides(batch, (self.shape.rows or 1) * row, row, block, block)

    def _right(self, tiling: Tiling) -> FilterStrides:
        root = self.draft.root
        steps, (depth,) = self._strides(root.operands[1], indexing_maps(root)[1])
        batch, _, column = self._split(steps)
        panel = tiling.vectors * self.lanes
        index = self.draft.weight_index(root.operands[1])
        if column != 1 and self.shape.columns > 1:
            raise ValueError("the right matrix is stored by columns")
        if index is None or batch:
            return FilterStrides(batch, panel, 0, 0, depth, self.lanes, padded=False)
        self._pack(index, panel)
        return FilterStrides(0, self.shape.depth * panel, 0, 0, panel, self.lanes, padded=True)

    def _pack(self, index: int, panel: int) -> None:
        """``[K, N]`` to ``[N / panel, K, panel]``, the last panel filled up with zeros."""
        depth, columns = self.shape.depth, self.shape.columns
        panels = -(-columns // panel)
        steps = (PadTo((depth, panels * panel)), Reshape((depth, panels, panel)), Transpose((1, 0, 2)))
        self.draft.extend_packing(index, steps)

    def _epilogue(self) -> Epilogue:
        chain = self.draft.chain
        returned = list(body_of(self.draft.function).operations)[-1].operation.operands
        if len(returned) != 1 or self._shown(returned[0]) != chain.result:
            raise ValueError("the layer does more than its root and what follows it elementwise")
        return Epilogue.of(chain, lambda value, indexing: self._walk(self._argument(value), value, indexing))

    def _shown(self, value: ir.Value) -> ir.Value:
        """What is returned, seen through reshapes."""
        while (op := defining_op(value)) is not None and op.name in _RESHAPES:
            value = op.operands[0]
        return value
