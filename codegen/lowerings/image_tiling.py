"""Images in NHWC cut into workgroups and register tiles of a window."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, pair
from sartor.codegen.lowerings.workgroups import WorkgroupTiling
from sartor.codegen.mlir.operations import loop_sizes
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten


def tiled_images(
    task: Task, parameters: Parameters, target: Target, loops: Sequence[str], reduction: tuple[int, ...]
) -> Implementation | Rejected:
    """A layer over images whose workgroups compute whole rows of some channels.

    Args:
        task: the layer.
        parameters: ``workgroup``, rows and channels, and ``register``, columns and channels.
        target: what code is for.
        loops: names of the root's loops.
        reduction: steps along the loops that are added up.
    """
    rows, channels = pair(parameters["workgroup"])
    columns, vector = pair(parameters["register"])
    tiling = WorkgroupTiling(
        workgroup=(1, rows, task.results[0].shape[-1], channels),
        register=(1, 1, columns, vector),
        reduction=reduction,
        pipeline="ConvTileAndDecomposeExpert",
    )
    return rewritten(Rewrite.images(task, CHANNELS_LAST), lambda rewrite: _tile(rewrite, tiling, loops), target)


def _tile(rewrite: Rewrite, tiling: WorkgroupTiling, loops: Sequence[str]) -> None:
    with rewrite.module.context:
        if len(loop_sizes(rewrite.root)) != len(loops):
            raise ValueError(f"the convolution is not of the form {', '.join(loops)}")
    tiling.apply(rewrite)
