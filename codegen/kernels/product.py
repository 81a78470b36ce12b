"""A matrix product as a contraction: rows of the left matrix are pixels, columns of the right one are channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.draft import Draft
from sartor.codegen.initial import make_elementwise
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.access import Access, ImageStrides
from sartor.codegen.kernels.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.epilogue import Epilogue
from sartor.codegen.kernels.nest import Nest
from sartor.codegen.kernels.tiles import Axis
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.tilings import chunk
from sartor.codegen.kernels.view import Strides, stored_as, view_of
from sartor.codegen.matmul_form import MatmulShape, shape_of
from sartor.codegen.operations import body_of, indexing_maps
from sartor.codegen.packing import PadTo, Reshape, Transpose


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
        make_elementwise(draft.root)
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
            result=self._walk(len(self._arguments), self._stored(), indexing_maps(root)[2]),
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
        """Position of the argument that a value shows."""
        origin = view_of(value).origin
        if origin not in self._arguments:
            raise ValueError("an operand is computed in the layer, and not by its chain")
        return self._arguments.index(origin)

    def _strides(self, strides: Strides, indexing: ir.AffineMap) -> tuple[list[int], list[int]]:
        """Steps of the root's parallel loops through a tensor, then of its reduction."""
        loops = len(self.shape.batches) + (self.shape.rows is not None) + 1
        steps = [0] * (loops + 1)
        for step, expression in zip(strides, indexing.results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                steps[expression.position] = step
        return steps[:loops], steps[loops:]

    def _split(self, steps: list[int]) -> tuple[int, int, int]:
        """Steps of batch, row and column of the product; 0 for a loop that it does not have."""
        batch = steps[0] if self.shape.batches else 0
        row = steps[len(self.shape.batches)] if self.shape.rows is not None else 0
        return batch, row, steps[-1]

    def _walk(self, memory: int, strides: Strides, indexing: ir.AffineMap) -> Access:
        batch, row, column = self._split(self._strides(strides, indexing)[0])
        if column not in (0, 1):
            raise ValueError("columns of an operand are not adjacent")
        rows = self.shape.rows or 1
        return Access(memory, batch, rows * row, row, self.lanes if column else None)

    def _left(self) -> ImageStrides:
        root = self.draft.root
        steps, (depth,) = self._strides(view_of(root.operands[0]).strides, indexing_maps(root)[0])
        batch, row, _ = self._split(steps)
        if depth != 1 and self.shape.depth > 1:
            raise ValueError("the left matrix is stored by columns")
        block = self.shape.depth
        return ImageStrides(batch, (self.shape.rows or 1) * row, row, block, block)

    def _right(self, tiling: Tiling) -> FilterStrides:
        root = self.draft.root
        steps, (depth,) = self._strides(view_of(root.operands[1]).strides, indexing_maps(root)[1])
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

    def _stored(self) -> Strides:
        """Strides of the root's result as the layer returns it."""
        returned = list(body_of(self.draft.function).operations)[-1].operation.operands
        if len(returned) != 1:
            raise ValueError("the layer has several results")
        return stored_as(self.draft.chain.result, returned[0])

    def _epilogue(self) -> Epilogue:
        return Epilogue.of(self.draft.chain, self._locate)

    def _locate(self, value: ir.Value, indexing: ir.AffineMap) -> Access:
        return self._walk(self._argument(value), view_of(value).strides, indexing)
