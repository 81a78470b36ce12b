"""Depthwise convolutions or poolings of images of any size with the product that follows, by one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from sartor.codegen.analysis.matmul import MatmulShape, product_shape
from sartor.codegen.ir.layer import LayerKind, OpenedTask, Stage, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.layers.product_routine import product_layer
from sartor.codegen.kernels.loops.partition import many_workgroups
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.open_sizes.costs import OpenSeparableCost
from sartor.codegen.kernels.open_sizes.open_convolution import OpenConvolution
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_rows import open_rows
from sartor.codegen.kernels.windows.separable import wirings
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.routines.open_sizes.convolution import fitting_tilings
from sartor.codegen.routines.open_sizes.window import check_windows, open_window, window_tiles
from sartor.codegen.subgraphs.fusion import fuse

_STAGES = 3
# Tiles of each kind that are tried.
_TRIED = 2


@dataclass(frozen=True)
class SeparableTiling(Tiling):
    """Sizes of the tiles of both: those of the product, and of the windows that are its rows.

    Attributes:
        window_columns: places of a register tile of windows.
        window_vectors: vectors of channels in such a tile.
    """

    window_columns: int
    window_vectors: int

    @property
    def product(self) -> Tiling:
        """The tiles of the product."""
        return Tiling(*(getattr(self, field.name) for field in fields(Tiling)))


@dataclass(frozen=True)
class OpenSeparableKernel(OpenRoutine):
    """Windows over each channel, for a few register tiles at a time, and the product of these rows by a weight.

    Parameters: those of ``SeparableTiling``.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_separable"

    @property
    def traits(self) -> Traits:
        return Traits(fuses=True, opens=True, sizes=SeparableTiling.names(), estimate=OpenSeparableCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = required(kernel_machine(task, target))
        if task.opened is None or len(task.stages) != _STAGES or task.stages[-1].task.kind is not LayerKind.CONTRACTION:
            return Rejected("no windows of open sizes before a product")
        windows, product = _halves(task)
        shape = required(product_shape(product.task))
        check_windows(windows.task, machine.lanes)
        listed = [tiling.parameters() for tiling in _tilings(shape, windows.task, machine)]
        return listed or Rejected(f"rows of {shape.depth} elements do not fit a workgroup")

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        (windows, multiplies), (twin, other) = _halves(task), _halves(opened.twin)
        tiling = SeparableTiling.of(parameters)
        sizes = {"columns": tiling.window_columns, "vectors": tiling.window_vectors, "groups": 1}
        rewrite, rows = open_window(windows.task, replace(opened, twin=twin.task), sizes, machine)
        product = product_layer(multiplies.task, other.task, machine.lanes)
        with product.rewrite.module.context:
            multiplied = open_rows(product, opened.fit, tiling.product, None)
        if product.memories[0] != multiplies.inputs.index(None) or product.shape.depth != rows.depth:
            raise RejectionError("the windows are not what is multiplied")
        code = OpenConvolution(rows, multiplied, wirings(replace(task, stages=(windows, multiplies))))
        code.check()
        return [rewrite, product.rewrite], code


def _halves(task: Task) -> tuple[Stage, Stage]:
    """The windows behind their patches or their padding, as one stage, and the product."""
    before, windows, product = task.stages
    joined = fuse(before.task, windows.task, windows.inputs.index(None))
    inputs = (*before.inputs, *(input_ for input_ in windows.inputs if input_ is not None))
    return Stage(joined, inputs), product


def _tilings(shape: MatmulShape, windows: Task, machine: Machine) -> list[SeparableTiling]:
    """Tilings worth trying, best guess first; workgroups partition the rows alone, or all would compute the windows."""
    groups = many_workgroups(shape.rows or 1, machine.threads)
    products = [replace(tiling, row_groups=groups, panel_groups=1) for tiling in fitting_tilings(shape, machine)]
    tiles = window_tiles(windows, machine)[:_TRIED]
    listed = [
        SeparableTiling(**vars(product), window_columns=columns, window_vectors=wide)
        for columns, wide in tiles
        for product in products[:_TRIED]
    ]
    return [*dict.fromkeys(listed)]
