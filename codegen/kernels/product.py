"""A matrix product as a contraction: rows of the left matrix are pixels, columns of the right one are channels."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.draft import Draft
from sartor.codegen.initial import make_elementwise
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.access import Access, ImageStrides
from sartor.codegen.kernels.contraction import Contraction, FilterStrides
from sartor.codegen.kernels.dot_packing import PackedDots, pack_dot_matrix
from sartor.codegen.kernels.epilogue import Epilogue
from sartor.codegen.kernels.factors import SINGLES, DotElement, Dots
from sartor.codegen.kernels.matrix_unit import TileElement
from sartor.codegen.kernels.nest import Nest
from sartor.codegen.kernels.tile_contraction import TileContraction
from sartor.codegen.kernels.tile_interleaving import Interleaving
from sartor.codegen.kernels.tile_packing import pack_matrix
from sartor.codegen.kernels.tile_tiling import TileTiling
from sartor.codegen.kernels.tiles import Axis
from sartor.codegen.kernels.tiling import Tiling
from sartor.codegen.kernels.tilings import chunk
from sartor.codegen.kernels.view import Strides, stored_as, view_of
from sartor.codegen.layer import TensorType
from sartor.codegen.matmul_form import MatmulShape, multiplies_weight, shape_of
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

    def contraction(self, tiling: Tiling, element: DotElement | None = None) -> Contraction:
        """The contraction; a right matrix that is a weight is packed into panels.

        Args:
            tiling: sizes.
            element: what is multiplied in groups, if the right matrix is a weight; None for single numbers, in f32.

        Raises:
            ValueError: if the layer has no such form.
        """
        rows, root = self.shape.rows or 1, self.draft.root
        nest = Nest(
            batches=self._batches,
            channels=self.shape.columns,
            rows=Axis(1, 1, 1, 1, 1, 0),
            columns=Axis(rows, rows, 1, 1, 1, 0),
            result=self._walk(len(self._arguments), self._stored(), indexing_maps(root)[2]),
            epilogue=self._epilogue(),
            lanes=self.lanes,
            tiling=tiling,
        )
        packed = None if element is None else self._dots(tiling, element)
        contraction = Contraction(
            nest=nest,
            depth=self.shape.depth,
            image=self._left(),
            filters=self._right(tiling) if packed is None else packed.strides,
            memories=(self._argument(root.operands[0]), self._argument(root.operands[1])),
            factors=SINGLES if element is None else Dots(element),
            meaning=None if packed is None else packed.meaning,
        )
        return contraction.joined(chunk(rows, tiling.columns))

    def tile_contraction(self, tiling: TileTiling, element: TileElement) -> TileContraction:
        """The same on the matrix unit; a right matrix that is a weight is packed into tiles, others are interleaved.

        Raises:
            ValueError: if the layer has no such form.
        """
        rows, root, depth = self.shape.rows or 1, self.draft.root, self.shape.depth
        if self.is_by_weight:
            filters = TensorType((depth, self.shape.columns), element.dtype)
            self.draft.extend_packing(self._weight(), pack_matrix(filters, tiling, self.lanes, element))
            interleaving = None
        else:
            interleaving = self._interleaving(tiling, element)
        left = self._argument(root.operands[0])
        # Weights that are not packed are in f32, which the unit does not read.
        is_weight = left >= len(self.draft.task.inputs)
        return TileContraction(
            batches=self._batches,
            channels=self.shape.columns,
            input_channels=depth,
            rows=Axis(1, 1, 1, 1, 1, 0),
            columns=Axis(rows, rows, 1, 1, 1, 0),
            image=self._left(),
            memories=(left, self._argument(root.operands[1])),
            result=self._walk(len(self._arguments), self._stored(), indexing_maps(root)[2]),
            epilogue=self._epilogue(),
            lanes=self.lanes,
            tiling=tiling,
            element=element,
            is_staged=is_weight or depth % tiling.depth != 0,
            interleaving=interleaving,
        )

    @property
    def _batches(self) -> int:
        return self.shape.batches[0] if self.shape.batches else 1

    @property
    def is_by_weight(self) -> bool:
        """Whether it is one product with a weight on its right."""
        return multiplies_weight(self.draft)

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
        batch, depth = self._right_steps()
        panel = tiling.vectors * self.lanes
        index = self.draft.weight_index(self.draft.root.operands[1])
        if index is None or batch:
            return FilterStrides(batch, panel, 0, 0, depth, self.lanes, padded=False)
        self._pack(index, panel)
        return FilterStrides(0, self.shape.depth * panel, 0, 0, panel, self.lanes, padded=True)

    def _dots(self, tiling: Tiling, element: DotElement) -> PackedDots:
        """The right matrix, packed for groups of numbers."""
        index = self._weight()
        matrix = TensorType((self.shape.depth, self.shape.columns), element.dtype)
        packed = pack_dot_matrix(matrix, tiling.vectors * self.lanes, self.lanes, element)
        self.draft.extend_packing(index, packed.packing)
        return packed

    def _interleaving(self, tiling: TileTiling, element: TileElement) -> Interleaving:
        """How a right matrix that is no weight comes to the matrix unit.

        Raises:
            ValueError: if its columns are not adjacent, or whole numbers are multiplied, or too few rows read the copy.
        """
        if element.is_quantised:
            raise ValueError("whole numbers are multiplied by weights only")
        if (self.shape.rows or 1) == 1:
            raise ValueError("a single row would not pay for the copy of the right matrix")
        batch, row = self._right_steps()
        return Interleaving(batch, row, self.shape.depth, element.group, self.lanes, tiling)

    def _weight(self) -> int:
        """Which weight the right matrix is.

        Raises:
            ValueError: if it is none, or one of several, or stored by columns.
        """
        index = self.draft.weight_index(self.draft.root.operands[1])
        if index is None or not self.is_by_weight:
            raise ValueError("the right matrix is no weight, or there are several products")
        self._right_steps()
        return index

    def _right_steps(self) -> tuple[int, int]:
        """Distance of batches and of rows of the right matrix.

        Raises:
            ValueError: if its columns are not adjacent.
        """
        root = self.draft.root
        steps, (depth,) = self._strides(view_of(root.operands[1]).strides, indexing_maps(root)[1])
        batch, _, column = self._split(steps)
        if column != 1 and self.shape.columns > 1:
            raise ValueError("the right matrix is stored by columns")
        return batch, depth

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
