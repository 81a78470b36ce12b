"""Convolutions over images of any height and width on a CPU, by one kernel that reads strips of the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.matmul import MatmulShape, product_shape
from sartor.codegen.ir.layer import LayerKind, OpenedTask, Stage, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, required
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.kernels.layers.kernel_layer import KernelCode
from sartor.codegen.kernels.layers.product_routine import product_layer
from sartor.codegen.kernels.loops.tiling import Tiling
from sartor.codegen.kernels.loops.tilings import Work, tilings
from sartor.codegen.kernels.open_sizes.costs import OpenStripsCost
from sartor.codegen.kernels.open_sizes.open_routine import OpenRoutine
from sartor.codegen.kernels.open_sizes.open_rows import open_rows
from sartor.codegen.kernels.open_sizes.open_strips import most_places, open_strips
from sartor.codegen.kernels.open_sizes.patches import Patches, patches_of
from sartor.codegen.kernels.windows.separable import wirings
from sartor.codegen.mlir.kernel_machine import kernel_machine
from sartor.codegen.mlir.machine import Machine
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.routines.open_sizes.transpose import matrices_of
from sartor.codegen.subgraphs.fusion import fuse

_FROM_LAST, _FROM_PLANES = 2, 3


@dataclass(frozen=True)
class OpenStripsKernel(OpenRoutine):
    """Windows over strips of an image of any size, with channels last or as ONNX has it, multiplied by filters.

    Parameters: those of ``Tiling``; ``columns`` of a register tile are places of the result.

    Attributes:
        name: the algorithm in descriptors.
    """

    name: str = "open_strips"

    @property
    def traits(self) -> Traits:
        return Traits(fuses=True, opens=True, sizes=Tiling.names(), estimate=OpenStripsCost())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = required(kernel_machine(task, target))
        if task.opened is None or len(task.stages) not in (_FROM_LAST, _FROM_PLANES):
            return Rejected("no convolution of open sizes")
        if task.stages[-1].task.kind is not LayerKind.CONTRACTION or task.stages[0].task.weights:
            return Rejected("patches are not of an activation, or not multiplied")
        shape, windows = required(product_shape(task.stages[-1].task)), _windows(task)
        listed = [tiling.parameters() for tiling in _tilings(shape, windows, machine)]
        return listed or Rejected("what the windows of a register tile read does not fit a workgroup")

    def code(
        self, task: Task, opened: OpenedTask, parameters: Parameters, machine: Machine
    ) -> tuple[Sequence[Rewrite], KernelCode]:
        gathers, multiplies = _halves(task)
        windows = _windows(task).opened(_windows(opened.twin), opened.fit)
        product = product_layer(multiplies.task, opened.twin.stages[-1].task, machine.lanes)
        with product.rewrite.module.context:
            rows = open_rows(product, opened.fit, Tiling.of(parameters), None)
        if product.memories[0] != multiplies.inputs.index(None) or product.shape.depth != windows.depth:
            raise RejectionError("the patches are not what is multiplied")
        wiring = wirings(replace(task, stages=(gathers, multiplies)))
        code = open_strips(windows, rows, wiring, in_planes=len(task.stages) == _FROM_PLANES)
        return [product.rewrite], code


def _windows(task: Task) -> Patches:
    """What windows read, of known sizes.

    Raises:
        RejectionError: if the image is neither with channels last nor turned so first.
    """
    *before, gathers, _ = task.stages
    windows = patches_of(gathers.task)
    for turns in before:
        _, *sides = matrices_of(turns.task)
        pixels = [turns.task.results[0].shape[1] * turns.task.results[0].shape[2], windows.channels]
        if sides != pixels:
            raise RejectionError("the image is not turned to channels last")
    return windows


def _halves(task: Task) -> tuple[Stage, Stage]:
    """What makes patches, as one stage, and the product."""
    first, *others, product = task.stages
    for other in others:
        first = Stage(fuse(first.task, other.task, other.inputs.index(None)), first.inputs)
    return first, product


def _tilings(shape: MatmulShape, windows: Patches, machine: Machine) -> list[Tiling]:
    """Tilings of which what a register tile reads fits a workgroup's memory."""
    work = Work(1, shape.rows or 1, shape.columns, shape.depth, positions_join=True)
    return [tiling for tiling in tilings(work, machine) if most_places(windows, tiling.columns)]
