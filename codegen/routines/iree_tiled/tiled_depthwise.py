"""Depthwise convolutions in our own workgroups and register tiles, with images in NHWC."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.analysis.register_tiles import balanced, row_block
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.layouts import IMAGE_RANK
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, integer
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, Traits
from sartor.codegen.lowerings.image_tiling import tiled_images
from sartor.codegen.mlir.machine import float_machine

_LOOPS = ("N", "H", "W", "C", "KH", "KW")
_FILTER_RANK = 3
_COLUMNS = 7
_MOST_CHANNELS = 128


@dataclass(frozen=True)
class TiledDepthwise:
    """NHWC depthwise convolution.

    Parameters: ``workgroup`` (rows and channels), ``register`` (columns and channels) and ``depth`` (columns of the
    kernel per step).
    """

    name: str = "tiled"

    @property
    def traits(self) -> Traits:
        return Traits("tiled", slowdown=TILED_SLOWDOWN, beside_kernels=frozenset())

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        machine = float_machine(task, target)
        if isinstance(machine, Rejected):
            return machine
        filters = [weight for weight in task.weights if len(weight.shape) == _FILTER_RANK]
        if task.kind is not LayerKind.DEPTHWISE or len(task.results[0].shape) != IMAGE_RANK or not filters:
            return Rejected("not a two-dimensional depthwise convolution")
        _, channels, height, width = task.results[0].shape
        lanes = machine.lanes
        vector = 2 * lanes if channels % (2 * lanes) == 0 else lanes
        group = _channels_of_group(channels, vector)
        tile = balanced(width, _COLUMNS), vector
        rows = row_block(height, channels // group)
        return [{"workgroup": (rows, group), "register": tile, "depth": filters[0].shape[-1]}]

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        return tiled_images(task, parameters, target, _LOOPS, (1, integer(parameters["depth"])))


def _channels_of_group(channels: int, vector: int) -> int:
    """The most channels that a workgroup can process with what it reads in the cache."""
    sizes = range(vector, min(channels, _MOST_CHANNELS) + 1, vector)
    return max((size for size in sizes if channels % size == 0), default=channels)
