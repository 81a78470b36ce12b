"""Partition of images in NHWC into workgroups and register tiles, for layers with a sliding window."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.layouts import CHANNELS_LAST
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, pair
from sartor.codegen.lowerings.workgroups import WorkgroupTiling
from sartor.codegen.mlir.operations import loop_sizes
from sartor.codegen.mlir.rewriting.rewrite import Rewrite, rewritten


def tiled_images(
    task: Task, parameters: Parameters, target: Target, loops: Sequence[str], reduction: tuple[int, ...]
) -> Implementation | Rejected:
    """The code of a layer over images, whose workgroups compute full rows of some channels.

    Args:
        task: the layer.
        parameters: ``workgroup``, rows and channels, and ``register``, columns and channels.
        target: what the code is compiled for.
        loops: names of the root's loops.
        reduction: steps of the reduction loops.
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
            raise RejectionError(f"the convolution is not of the form {', '.join(loops)}")
    tiling.apply(rewrite)
