"""A layer as a matrix product: strides of both matrices and of the result in memory."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.matmul import MatmulShape, multiplies_weight, shape_of
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.kernels.loops.access import Access, ImageStrides
from sartor.codegen.kernels.loops.epilogue import Epilogue
from sartor.codegen.kernels.loops.tiles import Axis
from sartor.codegen.kernels.loops.view import Strides, stored_as, view_of
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import body_of, indexing_maps
from sartor.codegen.mlir.rewriting.initial import make_elementwise
from sartor.codegen.mlir.rewriting.rewrite import Rewrite


@dataclass
class ProductLayer:
    """A layer that is a matrix product, while it becomes a kernel.

    Attributes:
        rewrite: the flattened layer; its packings are extended.
        shape: extents of its loops.
        lanes: elements of a vector.
        twin: the same layer with other sizes, if the number of rows is known only when it runs.
    """

    rewrite: Rewrite
    shape: MatmulShape
    lanes: int
    twin: ProductLayer | None = None

    @staticmethod
    def of(rewrite: Rewrite, lanes: int) -> ProductLayer:
        """The layer of a flattened rewrite.

        Raises:
            RejectionError: if its batches have more than one dimension.
        """
        shape = shape_of(rewrite.root)
        if len(shape.batches) > 1:
            raise RejectionError("its batches have more than one dimension")
        make_elementwise(rewrite.root)
        return ProductLayer(rewrite, shape, lanes)

    @property
    def batches(self) -> int:
        """How many products there are."""
        return self.shape.batches[0] if self.shape.batches else 1

    @property
    def is_by_weight(self) -> bool:
        """Whether it is a single product whose RHS is a weight."""
        return multiplies_weight(self.rewrite)

    @property
    def _arguments(self) -> list[ir.Value]:
        return list(body_of(self.rewrite.function).arguments)

    def _argument(self, value: ir.Value) -> int:
        """Position of the argument that a value is a view of."""
        origin = view_of(value).origin
        if origin not in self._arguments:
            raise RejectionError("an operand is computed in the layer, but not by its chain")
        return self._arguments.index(origin)

    def _strides(self, strides: Strides, indexing: ir.AffineMap) -> tuple[list[int], list[int]]:
        """Strides of a tensor along the root's parallel loops, then along its reduction."""
        loops = len(self.shape.batches) + (self.shape.rows is not None) + 1
        steps = [0] * (loops + 1)
        for step, expression in zip(strides, indexing.results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                steps[expression.position] = step
        return steps[:loops], steps[loops:]

    def _split(self, steps: list[int]) -> tuple[int, int, int]:
        """Strides of batch, row and column of the product; 0 for a loop that it does not have."""
        batch = steps[0] if self.shape.batches else 0
        row = steps[len(self.shape.batches)] if self.shape.rows is not None else 0
        return batch, row, steps[-1]

    def _walk(self, memory: int, strides: Strides, indexing: ir.AffineMap) -> Access:
        batch, row, column = self._split(self._strides(strides, indexing)[0])
        if column not in (0, 1):
            raise RejectionError("columns of an operand are not adjacent")
        return Access(memory, batch, self.rows * row, row, self.lanes if column else None)

    @property
    def lhs(self) -> ImageStrides:
        """Strides of the LHS, whose rows are the pixels of an image of one row.

        Raises:
            RejectionError: if it is stored by columns.
        """
        root = self.rewrite.root
        steps, (depth,) = self._strides(view_of(root.operands[0]).strides, indexing_maps(root)[0])
        batch, row, _ = self._split(steps)
        if depth != 1 and self.shape.depth > 1:
            raise RejectionError("the LHS is stored by columns")
        block = self.shape.depth
        return ImageStrides(batch, self.rows * row, row, block, block)

    @property
    def weight(self) -> int:
        """Position of the RHS among the weights.

        Raises:
            RejectionError: if it is no weight, or there are several products, or it is stored by columns.
        """
        index = self.rewrite.weight_index(self.rewrite.root.operands[1])
        if index is None or not self.is_by_weight:
            raise RejectionError("the RHS is not a weight, or there are several products")
        self.rhs_strides()
        return index

    def rhs_strides(self) -> tuple[int, int]:
        """Distances in elements between batches and between rows of the RHS.

        Raises:
            RejectionError: if its columns are not adjacent.
        """
        root = self.rewrite.root
        steps, (depth,) = self._strides(view_of(root.operands[1]).strides, indexing_maps(root)[1])
        batch, _, column = self._split(steps)
        if column != 1 and self.shape.columns > 1:
            raise RejectionError("the RHS is stored by columns")
        return batch, depth

    @property
    def turned_rhs(self) -> ImageStrides | None:
        """Strides of an RHS that is stored by columns, which are the pixels of an image of one row; None for another.

        Raises:
            RejectionError: if its elements have no constant strides.
        """
        root = self.rewrite.root
        steps, (depth,) = self._strides(view_of(root.operands[1]).strides, indexing_maps(root)[1])
        batch, _, column = self._split(steps)
        if depth != 1 or column in (0, 1):
            return None
        return ImageStrides(batch, self.shape.columns * column, column, self.shape.depth, self.shape.depth)

    @property
    def rows(self) -> int:
        """Rows of the LHS and of the result."""
        return self.shape.rows or 1

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Windows along H and W, each row being a pixel of an image of one row."""
        return Axis(1, 1, 1, 1, 1, 0), Axis(self.rows, self.rows, 1, 1, 1, 0)

    @property
    def memories(self) -> tuple[int, int]:
        """Positions of both matrices among the arguments."""
        lhs, rhs, *_ = self.rewrite.root.operands
        return self._argument(lhs), self._argument(rhs)

    @property
    def result(self) -> Access:
        """The access by which the result is stored; its buffer follows the arguments."""
        return self._walk(len(self._arguments), self._stored(), indexing_maps(self.rewrite.root)[2])

    def _stored(self) -> Strides:
        """Strides of the chain's result in the memory of the layer's result."""
        returned = list(body_of(self.rewrite.function).operations)[-1].operation.operands
        if len(returned) != 1:
            raise RejectionError("the layer has several results")
        return stored_as(self.rewrite.chain.result, returned[0])

    @property
    def epilogue(self) -> Epilogue:
        """The ops around the root."""
        return Epilogue.of(self.rewrite.chain, self._locate)

    def _locate(self, value: ir.Value, indexing: ir.AffineMap) -> Access:
        return self._walk(self._argument(value), view_of(value).strides, indexing)
