"""Times layers within a network by running its beginnings, on devices that count no dispatches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sartor.errors import CompileError, DeviceError, DisturbedError
from sartor.planning.recipe import Recipe
from sartor.profiling.builder import Builder
from sartor.runtime.dispatch_statistics import Dispatch
from sartor.tuning.measuring.case_compiler import CaseCompiler
from sartor.tuning.networks.build_job import SplitNetwork
from sartor.tuning.networks.prefixes.build_job import build_prefixes
from sartor.tuning.networks.prefixes.piece_times import PrefixEntry
from sartor.tuning.networks.prefixes.timing_job import time_prefixes
from sartor.tuning.workers.calls import TIMEOUT, call

_STEP = "timing layers in place"
_SECONDS = 2.0


@dataclass
class PrefixTimer:
    """Compiles the beginnings of each network once, and times them.

    Attributes:
        builder: of the networks.
    """

    builder: Builder
    _done: dict[str, tuple[Path, Sequence[PrefixEntry]]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def pieces(self, recipe: Recipe) -> tuple[Dispatch, ...]:
        """The layers and conversions of a network on one device, as if each were a dispatch.

        Pieces whose time cannot be told from noise, and some of very many, are left out.

        Raises:
            DeviceError: if the beginnings do not compile or run.
            DisturbedError: if the worker was disturbed.
        """
        builder, target = self.builder, self.builder.header.target
        try:
            path, entries = self._built(recipe)
            arguments = {
                "module": path,
                "entries": entries,
                "inputs": [builder.imported.samples[tensor.name] for tensor in builder.imported.graph.inputs],
                "target": target,
                "probe": self._probe(),
                "seconds": _SECONDS,
            }
            times = call(builder.pool, time_prefixes, arguments, _STEP, quiet=True)
        except DisturbedError:
            raise
        except CompileError as error:
            raise DeviceError(f"beginnings of the network do not compile or run: {error}") from None
        if not times:
            raise DeviceError("no layer's time can be told from noise")
        return times

    def _built(self, recipe: Recipe) -> tuple[Path, Sequence[PrefixEntry]]:
        if recipe.digest not in self._done:
            imported = self.builder.imported
            path = self.builder.directory / f"prefixes{next(self._numbers)}.vmfb"
            arguments = {
                "net": SplitNetwork(recipe.graph, recipe.variants, imported.ranges),
                "weights": imported.weights,
                "target": self.builder.header.target,
                "path": path,
            }
            self._done[recipe.digest] = path, call(self.builder.pool, build_prefixes, arguments, _STEP)
        return self._done[recipe.digest]

    def _probe(self) -> Path:
        compiler = CaseCompiler(self.builder.pool, self.builder.header.target, TIMEOUT, None)
        return compiler.probe(self.builder.directory)
