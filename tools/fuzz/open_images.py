"""``python -m tools.fuzz.open_images --networks 40 --sizes 100``: networks for images of any size, at many sizes.

Random convolutions (grouped and depthwise ones, with strides, dilations and each ``auto_pad``), poolings, resizes and
joins, for any batch, height and width, run by random plans and are compared with ONNX Runtime: at the least and the
largest sizes, at primes, beside multiples of what tiles have, and at others.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.runtime.driver.signature import Array
from tools.fuzz.open_networks import OpenModel, Sizes, run

CHANNELS = 3
"""Of the images."""

_LEAST, _MOST, _MOST_BATCH = 24, 67, 8
_OPSET = 19
# Sizes that are a tile's, and so many more or fewer.
_TILES, _NEAR = (32, 48, 64), (-1, 0, 1)
_PRIMES = (29, 31, 37, 41, 43, 47, 53, 59, 61, 67)


class _Drawing:
    """Draws a network; its image has a number of channels, and sides that earlier strides have divided."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 52])
        self.nodes: list[Any] = []
        self.weights: list[TensorProto] = []
        self._names = (f"t{number}" for number in itertools.count())

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def weight(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.weight((self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        output = next(self._names)
        self.nodes.append(helper.make_node(kind, [*inputs], [output], name=output, **attributes))
        return output

    def window(self, kernel: int, dilation: int) -> dict[str, Any]:
        """Attributes of a window: strides, dilations, and borders in each way that ONNX has."""
        stride = [self.pick(1, 1, 1, 2), self.pick(1, 1, 1, 2)]
        found = {"kernel_shape": [kernel, kernel], "strides": stride}
        if dilation > 1:
            found["dilations"] = [dilation, dilation]
        # ONNX Runtime has no dilations with SAME.
        same = ("SAME_UPPER", "SAME_LOWER") if dilation == 1 else ()
        border = self.pick("pads", "pads", "VALID", *(same if stride == [1, 1] or self.random.random() < 0.1 else ()))
        if border == "pads":
            most = dilation * (kernel - 1)
            return found | {"pads": [int(self.random.integers(0, most // 2 + 1)) for _ in range(4)]}
        return found | {"auto_pad": border}

    def conv(self, x: str, channels: int) -> tuple[str, int]:
        kernel, dilation = self.pick(1, 3, 3, 5), self.pick(1, 1, 1, 2)
        kind = self.pick("full", "full", "grouped", "depthwise")
        groups = channels if kind == "depthwise" else 2 if kind == "grouped" and channels % 2 == 0 else 1
        after = channels if kind == "depthwise" else self.pick(4, 8, 16, 24)
        bias = [self.normal(after)] if self.random.random() < 0.7 else []
        given = (self.normal(after, channels // groups, kernel, kernel), *bias)
        return self.op("Conv", x, *given, group=groups, **self.window(kernel, dilation)), after

    def pool(self, x: str) -> str:
        kind, kernel = self.pick("MaxPool", "AveragePool"), self.pick(2, 3)
        found = self.window(kernel, 1)
        if "pads" in found:
            found["pads"] = [min(each, kernel // 2) for each in found["pads"]]
            found["ceil_mode"] = self.pick(0, 0, 1)
        if kind == "AveragePool":
            found["count_include_pad"] = self.pick(0, 1)
        return self.op(kind, x, **found)

    def resize(self, x: str) -> str:
        mode = self.pick("nearest", "linear")
        places = self.pick("asymmetric", "half_pixel")
        rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
        scales = self.weight(np.array([1, 1, 2, 2], np.float32))
        return self.op("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=places, **rounding)

    def step(self, x: str, channels: int) -> tuple[str, int]:
        kind = self.pick("conv", "conv", "conv", "pool", "resize", "activation", "joined", "added")
        match kind:
            case "conv":
                return self.conv(x, channels)
            case "pool":
                return self.pool(x), channels
            case "resize":
                return self.resize(x), channels
            case "joined":
                other = self.op("Conv", x, self.normal(4, channels, 1, 1), kernel_shape=[1, 1])
                return self.op("Concat", x, other, axis=1), channels + 4
            case "added":
                kernel = self.normal(channels, 1, 3, 3)
                other = self.op("Conv", x, kernel, group=channels, kernel_shape=[3, 3], pads=[1] * 4)
                return self.op("Add", x, other), channels
            case _:
                return self.op(self.pick("Relu", "Sigmoid", "HardSwish", "Tanh"), x), channels


def draw(seed: int) -> OpenModel:
    """The network of a seed, for images ``x`` of any batch, height and width."""
    drawing = _Drawing(seed)
    x, channels = drawing.conv("x", CHANNELS)
    for _ in range(int(drawing.random.integers(2, 6))):
        x, channels = drawing.step(x, channels)
    if drawing.random.random() < 0.3:
        x = drawing.op("GlobalAveragePool", x)
    drawing.nodes.append(helper.make_node("Identity", [x], ["y"], name="y"))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", CHANNELS, "height", "width"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph(drawing.nodes, f"images{seed}", [given], [result], drawing.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
    sides = (Symbol(side, _LEAST, _MOST) for side in ("height", "width"))
    return OpenModel(model, (Symbol("batch", 1, _MOST_BATCH), *sides))


def sizes_of(_: Sequence[Symbol], random: Generator, count: int) -> list[Sizes]:
    """Sizes to try: the least and the largest, primes, a tile's and beside them, and others."""
    sides = [*_PRIMES, *(tile + near for tile, near in itertools.product(_TILES, _NEAR)), _LEAST, _MOST]
    found: list[Sizes] = [(1, _LEAST, _LEAST), (_MOST_BATCH, _MOST, _MOST)]
    found += [(1, _MOST, _LEAST), (_MOST_BATCH, _LEAST, _MOST)]
    while len(found) < count:
        batch = int(random.choice([1, 1, 2, 3, 7, _MOST_BATCH]))
        height, width = (
            int(random.choice(sides)) if random.random() < 0.7 else int(random.integers(_LEAST, _MOST + 1))
            for _ in range(2)
        )
        found.append((batch, height, width))
    return found[:count]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check networks; returns 1 if one is wrong."""
    return run(draw, sizes_of, "tools.fuzz.open_images", str(__doc__), arguments)


if __name__ == "__main__":
    sys.exit(main())
