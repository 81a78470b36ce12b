"""Convolutions by 3x3 filters over images of any height and width on a CPU, by Winograd's method as one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape
from sartor.codegen.ir.layer import F32, OpenedTask, Task, TensorType
from sartor.codegen.ir.packing import Reshape, Step, Transpose, WinogradFilter, cut
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import most_of
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode, KernelLayer
from sartor.codegen.kernels.layers.product_layer import ProductLayer
from sartor.codegen.kernels.layers.product_routine import product_layer
from sartor.codegen.kernels.loops.partition import long_workgroups
from sartor.codegen.kernels.loops.tilings import register_shapes
from sartor.codegen.kernels.open_sizes.costs import WINOGRAD_SIDE, OpenWinogradCost
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_winograd import OpenWinograd
from sartor.codegen.kernels.open_sizes.patches import Patches, gathered_product, patches_of
from sartor.codegen.kernels.windows.separable import wirings
from sartor.codegen.kernels.winograd.geometry import WinogradTiling
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Pixels of a side of a tile of the result. Sides differ where an image of few rows fills no tile of many; tiles whose
# products are so many times the fewest are not tried.
_SIDES = (2, 4, 6)
ALL_SIDES = tuple((height, width) for height in _SIDES for width in _SIDES)
"""Both sides of the tiles that are tried."""
SMALL_SIDES = ((2, 2),)
"""Those by whose filters, which are the smallest, few tiles are computed."""
_MOST_PRODUCTS = 1.5
# Register tiles of each shape of tiles, and tilings in all, that are tried.
_REGISTERS, _TRIED = 2, 4
_FEWEST_CHANNELS = 16
# Of a workgroup: it shares the second-level cache with the filters, or takes more of it, as filters that are
# beyond it are read for each block.
_WORKSPACES, _FLOAT_BYTES = (320 << 10, 640 << 10), 4
_COMPILE_COST = 3.0


@dataclass(frozen=True)
class OpenWinogradKernel(OpenRoutine):
    """Winograd's method over images of any size.

    Parameters: those of ``WinogradTiling``.

    Attributes:
        name: the algorithm in descriptors.
        sides: pixels of both sides of the tiles that are tried.
    """

    name: str = "open_winograd"
    sides: tuple[tuple[int, int], ...] = ALL_SIDES

    @property
    def traits(self) -> Traits:
        return Traits(
            fuses=True,
            transforms=True,
            sizes=WinogradTiling.names(),
            estimate=OpenWinogradCost(),
            compile_cost=_COMPILE_COST,
            opens=True,
        )

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        shape = required(gathered_product(task))
        machine = required(kernel_machine(task, target))
        patches = _patches(task, shape)
        return [tiling.parameters() for tiling in _tilings(shape, patches, self.sides, machine)]

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        layer = super().layer(task, parameters, target)
        if not isinstance(layer.code, OpenWinograd):
            raise RejectionError("no kernel by Winograd's method")
        elements = layer.code.tiling.groups * layer.code.workspace
        return replace(layer, workspace=TensorType((elements,), F32))

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        shape = required(gathered_product(task))
        (gathers, multiplies), (twin, other) = task.stages, opened.twin.stages
        patches = _patches(task, shape).opened(patches_of(twin.task), opened.fit)
        product = product_layer(multiplies.task, other.task, machine.lanes)
        tiling = WinogradTiling.of(parameters)
        (image, *_), wiring = wirings(task)
        with product.rewrite.module.context:
            if product.memories[0] != multiplies.inputs.index(None):
                raise RejectionError("the patches are not what is multiplied")
            _check_alike(product)
            _pack(product, patches, tiling, machine.lanes)
            batch = opened.fit.dim(gathers.task.results[0].shape[0], twin.task.results[0].shape[0])
            code = OpenWinograd(
                patches=patches,
                batch=batch,
                channels=shape.columns,
                buffers=(image, wiring[product.memories[1]]),
                wiring=wiring,
                epilogue=product.epilogue.map_accesses(lambda access: replace(access, batch=0, row=0)),
                result=replace(product.result, batch=0, row=0),
                lanes=machine.lanes,
                tiling=tiling,
                sharers=min(machine.threads, tiling.panels, tiling.groups),
            )
        return [product.rewrite], code


def _patches(task: Task, shape: MatmulShape) -> Patches:
    """The windows, for the largest sizes.

    Raises:
        RejectionError: if Winograd's method does not compute their convolution.
    """
    patches = patches_of(task.stages[0].task)
    sides = patches.rows, patches.columns
    if any((side.kernel, side.stride, side.dilation) != (WINOGRAD_SIDE, 1, 1) for side in sides):
        raise RejectionError("not filters of 3x3 of stride 1 without dilation")
    if min(patches.channels, shape.columns) < _FEWEST_CHANNELS:
        raise RejectionError("too few channels for matrix products")
    if patches.depth != shape.depth:
        raise RejectionError("the patches are not what is multiplied")
    if not all(tensor.is_f32 for tensor in task.tensors):
        raise RejectionError("its element types are not all f32")
    return patches


def _check_alike(product: ProductLayer) -> None:
    """Make sure that the ops around the product are the same for both sizes of the task.

    Raises:
        RejectionError: if they are not, or the RHS is not a weight.
    """
    twin = product.twin
    if twin is None or not (product.is_by_weight and twin.is_by_weight):
        raise RejectionError("the RHS is not a weight")
    one, other = map(_described, (product, twin))
    if one != other:
        raise RejectionError("more than the number of places is known only when it runs")


def _described(product: ProductLayer) -> tuple[object, ...]:
    """All that code depends on around a product, but for the number of rows."""
    epilogue = product.epilogue.map_accesses(lambda access: replace(access, batch=0, row=0))
    return product.memories, product.shape.columns, replace(product.result, batch=0, row=0), epilogue.reads


def _pack(product: ProductLayer, patches: Patches, tiling: WinogradTiling, lanes: int) -> None:
    """Pack filters ``[KH * KW * C, OC]`` to ``[panel, n * n, C, panel size]``, the last panel filled up with zeros."""
    kernel, depth, columns = patches.rows.kernel, patches.channels, product.shape.columns
    points = (tiling.height + kernel - 1) * (tiling.width + kernel - 1)
    panel = tiling.vectors * lanes
    steps: tuple[Step, ...] = (
        Reshape((kernel, kernel, depth, columns)),
        Transpose((3, 2, 0, 1)),
        WinogradFilter((tiling.height, tiling.width)),
        Reshape((points, depth, columns)),
        *cut(((points,), (depth,), (-(-columns // panel), panel)), (2, 0, 1, 3)),
    )
    product.rewrite.extend_packing(product.weight, steps)


def _tilings(
    shape: MatmulShape, patches: Patches, sides: Sequence[tuple[int, int]], machine: Machine
) -> list[WinogradTiling]:
    """Tilings for the largest image, best guess first; their blocks share the second-level cache with filters."""
    across, down = most_of(patches.columns.output), most_of(patches.rows.output)
    places = shape.rows or 1
    images = max(1, places // (across * down))

    def products(side: tuple[int, int]) -> int:
        """Of tiles with a channel of the image."""
        height, width = side
        tiles = images * -(-down // height) * -(-across // width)
        return tiles * (height + WINOGRAD_SIDE - 1) * (width + WINOGRAD_SIDE - 1)

    least = min(map(products, sides))
    listed = [
        (products(side) / least, tiling)
        for side in sides
        if products(side) <= _MOST_PRODUCTS * least
        for tiling in _tilings_of(side, shape, patches, machine)
    ]
    facts = {"batch": 1, "rows": 1, "columns": places, "channels": shape.columns, "depth": shape.depth}

    def cost(tried: tuple[float, WinogradTiling]) -> float:
        waste, tiling = tried
        return waste * OpenWinogradCost().cycles(facts, asdict(tiling), machine.core)

    return [*dict.fromkeys(tiling for _, tiling in sorted(listed, key=cost))][:_TRIED]


def _tilings_of(
    side: tuple[int, int], shape: MatmulShape, patches: Patches, machine: Machine
) -> Iterator[WinogradTiling]:
    """Tilings with tiles of these sides."""
    (height, width), lanes = side, machine.lanes
    vectors = -(-shape.columns // lanes)
    points = (height + WINOGRAD_SIDE - 1) * (width + WINOGRAD_SIDE - 1)
    is_far = points * patches.channels * shape.columns * _FLOAT_BYTES > machine.core.resident_bytes
    groups = _workgroups(shape.rows or 1, machine.threads)
    tiles = max(1, (shape.rows or 1) // (height * width))
    for register in register_shapes(1, tiles, vectors, patches.channels, machine)[:_REGISTERS]:
        row = (-(-patches.channels // lanes) + 1 + register.vectors) * lanes * points * _FLOAT_BYTES
        panels = -(-vectors // register.vectors)
        for space in _WORKSPACES[: 1 + is_far]:
            block = max(1, space // (row * register.columns)) * register.columns
            yield WinogradTiling(
                height, width, register.columns, register.vectors, block, groups, panels, register.unroll
            )


def _workgroups(places: int, threads: int) -> int:
    """How many workgroups share the blocks. Each has a workspace, which every call fills with zeros, so one thread gets
    as few as can keep two busy if the code runs with more."""
    return min(places, 2) if threads == 1 else long_workgroups(places, threads)
