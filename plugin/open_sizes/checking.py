"""Checks a file at several sizes: the least, the largest, and odd ones in between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.config import CompileConfig
from sartor.open_sizes.importing import OpenImport, import_at
from sartor.profiling.builder import Build, Builder
from sartor.profiling.compilation.tuned_network import Bench
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import budget_of_model, judged
from sartor.samples.checked_samples import checked_samples
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status

Sizes = Mapping[str, int]
_ADVICE = (
    "if the model computes in another way for small sizes, as with the first 100 rows of any number, begin the range "
    "above them, or give the sizes that occur, as --shape x=1|8,16"
)


def checked_sizes(symbols: Sequence[Symbol]) -> list[Sizes]:
    """Sizes at which a file is checked beside the largest: the least, small odd ones, and ones in the middle."""
    found: list[Sizes] = [
        {each.name: each.least for each in symbols},
        {each.name: _odd(each, 1 / 4) for each in symbols},
        {each.name: _odd(each, 5 / 8) for each in symbols},
    ]
    if len(symbols) > 1:
        first, *others = symbols
        found.append({first.name: first.least, **{each.name: _odd(each, 7 / 8) for each in others}})
    return [each for index, each in enumerate(found) if each not in found[:index]]


def _odd(symbol: Symbol, share: float) -> int:
    """A size at a share of the range's octaves, an odd number of multiples if there is one near."""
    steps = symbol.multiple
    middle = symbol.least * math.pow(symbol.most / symbol.least, share)
    count = max(1, math.floor(middle / steps)) | 1
    return min(max(count * steps, symbol.least), symbol.most)


@dataclass(frozen=True)
class SizedRunner:
    """Runs builds of a model of open sizes, at several sizes.

    Attributes:
        runner: at the largest sizes.
        others: at other sizes, which are named.
    """

    runner: NetRunner
    others: tuple[tuple[str, NetRunner], ...]

    @property
    def budget(self) -> ErrorBudget:
        """The bound on the error."""
        return self.runner.budget

    def judged(self, build: Build) -> NetRun:
        """The judged run at all sizes: the first failure, or the run with the largest error.

        Raises:
            RewriteError: if the rewritten model is wrong.
        """
        worst = judged(self.runner.verify(build), self.budget)
        for name, runner in self.others:
            if worst.status is not Status.OK:
                return worst
            run = judged(runner.verify(build), runner.budget)
            if run.status is not Status.OK:
                # Without its error it is not judged again, which would forget the sizes.
                return replace(run, error=None, message=f"with {name}: {run.message}; {_ADVICE}")
            worst = max(worst, run, key=lambda each: each.error or 0.0)
        return replace(worst, layers=self._layers()) if worst.status is Status.OK and self.others else worst

    def _layers(self) -> str:
        """What comparing layers says, of a model that rounds to integers: these have values at fixed sizes only."""
        if not (self.budget.asks_layers and self.budget.rounds):
            return ""
        name, runner = self.others[-1]
        return runner.rewritten_verdict(f"those of a module for any size are not compared, but with {name}").sentence


def sized_runner(runner: NetRunner, opened: OpenImport, config: CompileConfig, bench: Bench) -> SizedRunner:
    """Runs builds at the largest sizes, at those of the second import, and at further ones."""
    models = [(opened.twin_sizes, opened.twin)] if _is_allowed(opened) else []
    for sizes in checked_sizes(opened.symbols):
        models.append((sizes, import_at(opened.model.path, sizes, opened.dims, config, bench)))
    others = []
    for sizes, model in models:
        samples = checked_samples(model, None, bench.pool, narrow=config.error_budget.narrow)
        builder = Builder(model, bench.pool, bench.directory, config.header, bench.progress)
        name = ", ".join(f"{symbol}={size}" for symbol, size in sizes.items())
        others.append((name, NetRunner(builder, samples, budget_of_model(config.error_budget, model, samples))))
    return SizedRunner(runner, tuple(others))


def _is_allowed(opened: OpenImport) -> bool:
    """Whether the sizes of the second import are in their ranges."""
    return all(each.allows(opened.twin_sizes[each.name]) for each in opened.symbols)
