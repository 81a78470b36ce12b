"""Convolutions and matrix products with searched tile sizes for IREE's tiling pipelines.

The root op and what follows it are put into one dispatch region, which keeps IREE from folding unit dimensions and
dropping the configuration; every op in it gets the same register tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.chain import root_of
from sartor.codegen.convert import convert_images
from sartor.codegen.layer import LayerKind, Task
from sartor.codegen.layouts import CHANNELS_LAST
from sartor.codegen.operations import loop_sizes
from sartor.codegen.region import DispatchRegion
from sartor.codegen.routine import Implementation, Parameters, Rejected
from sartor.codegen.target import Target

_CONVOLUTION_LOOPS = 7
_WIDTHS = (14, 8, 7, 6, 4, 2, 1)
_VECTOR = 16
_REGISTERS = 28
_CHANNEL_STEPS = (1, 4)


@dataclass(frozen=True)
class TiledConvolution:
    """NHWC convolution, tiled over rows, columns and output channels.

    Parameters: ``rows`` and ``channels`` of one workgroup, ``register`` (columns x channels kept in registers) and
    ``depth`` (input channels per step).
    """

    name: str = "tiled"

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        if target.device != "cpu":
            return Rejected("tile sizes are for IREE's CPU pipelines")
        if task.kind is not LayerKind.CONVOLUTION or len(task.results[0].shape) != len("nchw"):
            return Rejected("not a two-dimensional convolution")
        _, channels, height, width = task.results[0].shape
        return _choices(height, width, channels)

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        converted = convert_images(task, CHANNELS_LAST)
        if isinstance(converted, Rejected):
            return converted
        root = root_of(converted.function)
        if root is None or len(loop_sizes(root)) != _CONVOLUTION_LOOPS:
            return Rejected("the convolution is not of the form N, H, W, OC, KH, KW, IC")
        rows, channels = _pair(parameters["workgroup"])
        width, vector = _pair(parameters["register"])
        columns = converted.task.results[0].shape[-1]
        DispatchRegion(
            distribution=(0, rows, columns, channels, 0, 0, 0),
            parallel=(1, 1, width, vector),
            reduction=(0, 0, 0, 0, 1, 1, int(str(parameters["depth"]))),
            pipeline="ConvTileAndDecomposeExpert",
        ).wrap(converted.function, root)
        return converted.implementation()


def _pair(value: tuple[int, ...] | int) -> tuple[int, int]:
    assert not isinstance(value, int)
    first, second = value
    return first, second


def _choices(height: int, width: int, channels: int) -> list[Parameters]:
    """Tiles whose accumulators fit the registers and which divide the image."""
    choices: list[Parameters] = []
    for columns in (each for each in _WIDTHS if width % each == 0):
        for vectors in (4, 2, 1):
            lanes = vectors * _VECTOR
            if columns * vectors > _REGISTERS or channels % lanes or columns * vectors < _fewest(width, channels):
                continue
            rows = _rows(height, channels, lanes)
            block = _channel_block(channels, lanes)
            choices += [
                {"workgroup": (rows, block), "register": (columns, lanes), "depth": depth} for depth in _CHANNEL_STEPS
            ]
    return choices[:_MOST]


_MOST = 6
_ENOUGH_ACCUMULATORS = 8


def _fewest(width: int, channels: int) -> int:
    """Accumulators that hide the latency of a multiply-add, unless the image is smaller than that."""
    return min(_ENOUGH_ACCUMULATORS, width * (channels // _VECTOR))


def _rows(height: int, channels: int, lanes: int) -> int:
    """Rows of one workgroup: few enough that there are some workgroups, many enough to reuse weights."""
    divisors = [rows for rows in range(1, height + 1) if height % rows == 0]
    small = [rows for rows in divisors if (height // rows) * (channels // lanes) >= _WORKGROUPS and rows <= _MOST_ROWS]
    return small[-1] if small else 1


_WORKGROUPS = 8
_MOST_ROWS = 8


def _channel_block(channels: int, lanes: int) -> int:
    blocks = [block for block in range(lanes, channels + 1, lanes) if channels % block == 0 and block <= 128]
    return blocks[-1] if blocks else lanes
