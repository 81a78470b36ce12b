"""Networks for any sizes, each imported once and compared with ONNX Runtime at many sizes by random plans."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.random import Generator
from onnx import ModelProto, TensorProto

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.errors import SartorError, UnsupportedModelError
from sartor.open_sizes.importing import opened_graph
from sartor.open_sizes.rounded_windows import rounded_file
from sartor.open_sizes.same_pads import check_multiples, needed_multiples
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError
from tools.fuzz.trial import Setting, Subject

Sizes = tuple[int, ...]
"""A size for each symbol, in their order."""

_ERROR = 2e-4
_SHIFTED = re.compile(r"(?P<name>.+) \+ (?P<number>[0-9]+)")


@dataclass(frozen=True)
class OpenModel:
    """A model whose inputs have dimensions of any size.

    Attributes:
        model: the model; dimensions of its inputs have the names of symbols, or are one with a number, as ``past + 1``.
        symbols: the sizes that are open.
        below: what is above the integers of an input, by its name; 2 for others, as of masks.
    """

    model: ModelProto
    symbols: tuple[Symbol, ...]
    below: Mapping[str, int] = field(default_factory=dict)

    def shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs."""
        known = {symbol.name: size for symbol, size in zip(self.symbols, sizes, strict=True)}
        return {
            value.name: tuple(
                _size(dim.dim_param, known) if dim.dim_param else dim.dim_value
                for dim in value.type.tensor_type.shape.dim
            )
            for value in self.model.graph.input
        }

    def feeds(self, sizes: Sizes, random: Generator) -> dict[str, Array]:
        """Random inputs of these sizes."""
        shapes = self.shapes(sizes)
        drawn = dict[str, Array]()
        for value in self.model.graph.input:
            shape = shapes[value.name]
            if value.type.tensor_type.elem_type == TensorProto.INT64:
                drawn[value.name] = random.integers(0, self.below.get(value.name, 2), shape)
            else:
                drawn[value.name] = random.standard_normal(shape).astype(np.float32)
        return drawn


def _size(dim: str, known: Mapping[str, int]) -> int:
    shifted = _SHIFTED.fullmatch(dim)
    return known[dim] if shifted is None else known[shifted["name"]] + int(shifted["number"])


@dataclass
class Tally:
    """What became of the networks: pairs of network and size that are right, what is wrong, and what is refused."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.right} right, {len(self.wrong)} wrong, {len(self.refused)} networks refused"


class OpenNetwork:
    """A network for any sizes, imported once.

    Raises:
        SartorError: if it cannot be imported; an ``UnsupportedModelError`` if it is not computed alike for all sizes.
    """

    def __init__(self, opened: OpenModel, directory: Path) -> None:
        self._opened, self._directory = opened, directory
        fits = Fit.of(opened.symbols), Fit.of_small(opened.symbols)
        model = self._rounded(opened.model)

        def at(sizes: Sizes) -> Subject:
            folder = directory / "x".join(map(str, sizes))
            folder.mkdir(exist_ok=True)
            return Subject(model, "host", folder, opened.shapes(sizes))

        most = tuple(symbol.most for symbol in opened.symbols)
        imported = [at(sizes) for sizes in (most, *(fit.twin for fit in fits))]
        networks = [(subject.imported.graph, subject.imported.weights) for subject in imported]
        made = opened_graph(networks, fits, directory / "opened.bin")
        if isinstance(made, WorkerError):
            raise made.error
        graph, self._weights, _ = made
        whole = replace(imported[0].imported, graph=graph, weights=self._weights)
        self._whole = Subject(opened.model, "host", directory, imported=whole)
        self._reference = OnnxRuntimeReference(directory / "model.onnx", threads=1)

    def _rounded(self, model: ModelProto) -> ModelProto:
        """The model as it is imported, whose windows are rounded alike for all sizes."""
        path = self._directory / "given.onnx"
        path.write_bytes(model.SerializeToString())
        rounded = rounded_file(path, self._directory / "rounded")
        if isinstance(rounded, WorkerError):
            raise rounded.error
        path = rounded.path or path
        sides = self._sides(model)
        needed = needed_multiples(path, frozenset(sides))
        if isinstance(needed, WorkerError):
            raise needed.error
        check_multiples(needed, sides)
        return ModelProto.FromString(path.read_bytes())

    def _sides(self, model: ModelProto) -> dict[str, tuple[Symbol, ...]]:
        """The symbols of each input's dimensions after the first."""
        known = {symbol.name: symbol for symbol in self._opened.symbols}
        names = {
            value.name: [dim.dim_param for dim in value.type.tensor_type.shape.dim][1:] for value in model.graph.input
        }
        return {name: tuple(known[dim] for dim in dims if dim in known) for name, dims in names.items()}

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
            for sizes in listed:
                feeds = self._opened.feeds(sizes, random)
                outputs, expected = session.run(None, feeds), self._reference(feeds)
                if message := "; ".join(filter(None, map(_difference, outputs, expected))):
                    routines = {variant.descriptor.partition("{")[0] for variant in recipe.variants.values()}
                    yield f"{'x'.join(map(str, sizes))}: {message} by {', '.join(sorted(routines))}"


def _difference(output: Array, expected: Array) -> str:
    if output.shape != expected.shape:
        return f"shape {output.shape} in place of {expected.shape}"
    if expected.dtype.kind != "f":
        return "" if np.array_equal(output, expected) else "another integer"
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    error = float(np.abs(output - expected).max(initial=0.0)) / scale
    return "" if error <= _ERROR else f"error {error:.3g}"


Draw = Callable[[int], OpenModel]
DrawSizes = Callable[[Sequence[Symbol], Generator, int], list[Sizes]]


def check(draw: Draw, draw_sizes: DrawSizes, seed: int, sizes: int, plans: int = 1) -> Tally:
    """Draw, compile and compare the network of a seed, by so many random plans at so many sizes each."""
    tally, opened = Tally(), draw(seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            network = OpenNetwork(opened, Path(folder))
        except UnsupportedModelError as error:
            tally.refused.append(f"network {seed}: {error}")
            return tally
        except SartorError as error:
            tally.wrong.append(f"network {seed}: {error}")
            return tally
        for plan in range(plans):
            listed = draw_sizes(opened.symbols, np.random.default_rng([seed, plan]), sizes)
            try:
                wrong = [f"network {seed}, plan {plan}: {what}" for what in network.wrong(1000 * seed + plan, listed)]
            except SartorError as error:
                tally.wrong.append(f"network {seed}, plan {plan}: {error}")
                continue
            tally.wrong += wrong
            tally.right += len(listed) - len(wrong)
    return tally


def run(draw: Draw, draw_sizes: DrawSizes, program: str, description: str, arguments: Sequence[str] | None) -> int:
    """Check the networks that the arguments ask for; returns 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sizes", type=int, default=100)
    options = parser.parse_args(arguments)
    whole = Tally()
    for seed in range(options.first, options.first + options.networks):
        tally = check(draw, draw_sizes, seed, options.sizes)
        whole.right += tally.right
        whole.wrong += tally.wrong
        whole.refused += tally.refused
        for line in (*tally.wrong[:3], *tally.refused):
            print(line, flush=True)
        print(f"{seed + 1 - options.first}/{options.networks}: {whole.right} right", flush=True)
    print(whole)
    return 1 if whole.wrong else 0
