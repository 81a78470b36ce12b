"""``python -m tools.fuzz.open_images --networks 40 --sizes 100``: networks for images of any size, at many sizes.

Random convolutions (grouped and depthwise ones, with strides, dilations and each ``auto_pad``), poolings, resizes and
joins, for any batch, height and width, run by random plans and are compared with ONNX Runtime: at the least and the
largest sizes, at primes, beside multiples of what tiles have, and at others.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.errors import SartorError, UnsupportedModelError
from sartor.open_sizes.importing import opened_graph
from sartor.open_sizes.same_pads import check_multiples, needed_multiples
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError
from tools.fuzz.trial import Setting, Subject

CHANNELS = 3
"""Of the images."""

_LEAST, _MOST, _MOST_BATCH = 24, 67, 8
_OPSET = 19
_ERROR = 2e-4
# Sizes that are a tile's, and so many more or fewer.
_TILES, _NEAR = (32, 48, 64), (-1, 0, 1)
_PRIMES = (29, 31, 37, 41, 43, 47, 53, 59, 61, 67)

Sizes = tuple[int, int, int]
"""Batch, height and width."""


@dataclass
class Tally:
    """What became of the networks: pairs of network and size that are right, what is wrong, and what is refused."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


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


def draw(seed: int) -> ModelProto:
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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)


def sizes_of(random: Generator, count: int) -> list[Sizes]:
    """Sizes to try: the least and the largest, primes, a tile's and beside them, and others."""
    sides = [*_PRIMES, *(tile + near for tile, near in itertools.product(_TILES, _NEAR)), _LEAST, _MOST]
    found = [(1, _LEAST, _LEAST), (_MOST_BATCH, _MOST, _MOST), (1, _MOST, _LEAST), (_MOST_BATCH, _LEAST, _MOST)]
    while len(found) < count:
        batch = int(random.choice([1, 1, 2, 3, 7, _MOST_BATCH]))
        height, width = (
            int(random.choice(sides)) if random.random() < 0.7 else int(random.integers(_LEAST, _MOST + 1))
            for _ in range(2)
        )
        found.append((batch, height, width))
    return found[:count]


class OpenImages:
    """A network for any batch, height and width, imported once.

    Raises:
        SartorError: if it cannot be imported; an ``UnsupportedModelError`` if it is not computed alike for all sizes.
    """

    def __init__(self, model: ModelProto, directory: Path) -> None:
        symbols = [Symbol("batch", 1, _MOST_BATCH), *(Symbol(each, _LEAST, _MOST) for each in ("height", "width"))]
        fits = Fit.of(symbols), Fit.of_small(symbols)
        self._directory = directory
        path = directory / "given.onnx"
        path.write_bytes(model.SerializeToString())
        needed = needed_multiples(path, frozenset({"x"}))
        if isinstance(needed, WorkerError):
            raise needed.error
        check_multiples(needed, {"x": tuple(symbols[1:])})

        def at(batch: int, height: int, width: int) -> Subject:
            folder = directory / f"{batch}x{height}x{width}"
            folder.mkdir(exist_ok=True)
            return Subject(model, "host", folder, {"x": (batch, CHANNELS, height, width)})

        imported = [at(*sizes) for sizes in ((_MOST_BATCH, _MOST, _MOST), *(fit.twin for fit in fits))]
        opened = opened_graph(
            [(each.imported.graph, each.imported.weights) for each in imported], fits, directory / "opened.bin"
        )
        if isinstance(opened, WorkerError):
            raise opened.error
        graph, self._weights, _ = opened
        whole = imported[0]
        self._whole = Subject(
            model, "host", directory, imported=replace(whole.imported, graph=graph, weights=self._weights)
        )
        self._reference = OnnxRuntimeReference(directory / "model.onnx", threads=1)

    def wrong(self, seed: int, listed: Sequence[Sizes]) -> Iterator[str]:
        """What is wrong where a random plan runs with these sizes, one after another.

        Raises:
            SartorError: if the plan does not compile, or a run fails.
        """
        setting = Setting(threads=1 + seed % 2)
        recipe = self._whole.forcer(setting).random(seed)
        files = NetFiles(self._directory / f"plan{seed}.vmfb", None)
        imported, config = self._whole.imported, setting.config
        net = SplitNetwork(recipe.graph, recipe.variants, imported.ranges)
        build_net(net, self._weights, config.target, recipe.manifest(imported, config.header), files)
        signature = net_signature((imported.graph.inputs, imported.graph.outputs))
        random = np.random.default_rng(seed)
        with Session(files.module, device=open_device("cpu", setting.threads), signature=signature) as session:
            for batch, height, width in listed:
                feeds = {"x": random.standard_normal((batch, CHANNELS, height, width)).astype(np.float32)}
                (found,), (expected,) = session.run(None, feeds), self._reference(feeds)
                if message := _difference(found, expected):
                    plan = ", ".join(sorted({each.descriptor.partition("{")[0] for each in recipe.variants.values()}))
                    yield f"{batch}x{CHANNELS}x{height}x{width}: {message} by {plan}"


def _difference(found: Array, expected: Array) -> str:
    if found.shape != expected.shape:
        return f"shape {found.shape} in place of {expected.shape}"
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    error = float(np.abs(found - expected).max(initial=0.0)) / scale
    return "" if error <= _ERROR else f"error {error:.3g}"


def check(seed: int, sizes: int, plans: int = 1) -> Tally:
    """Draw, compile and compare the network of a seed, by so many random plans at so many sizes each."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        try:
            images = OpenImages(draw(seed), Path(folder))
        except UnsupportedModelError as error:
            tally.refused.append(f"network {seed}: {error}")
            return tally
        except SartorError as error:
            tally.wrong.append(f"network {seed}: {error}")
            return tally
        for plan in range(plans):
            listed = sizes_of(np.random.default_rng([seed, plan]), sizes)
            try:
                wrong = [f"network {seed}, plan {plan}: {each}" for each in images.wrong(1000 * seed + plan, listed)]
            except SartorError as error:
                tally.wrong.append(f"network {seed}, plan {plan}: {error}")
                continue
            tally.wrong += wrong
            tally.right += len(listed) - len(wrong)
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Check networks; returns 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.open_images", description=__doc__)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sizes", type=int, default=100)
    options = parser.parse_args(arguments)
    whole = Tally()
    for seed in range(options.first, options.first + options.networks):
        found = check(seed, options.sizes)
        whole.right += found.right
        whole.wrong += found.wrong
        whole.refused += found.refused
        for line in (*found.wrong[:3], *found.refused):
            print(line, flush=True)
        print(f"{seed + 1 - options.first}/{options.networks}: {whole.right} right", flush=True)
    print(f"{whole.right} right, {len(whole.wrong)} wrong, {len(whole.refused)} networks refused")
    return 1 if whole.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
