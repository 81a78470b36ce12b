"""Prepares the runs of a file at several sizes: the largest, the least, those that were measured, and neighbours."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import small_sizes, twin_sizes
from sartor.codegen.ir.thresholds import Threshold, crossing_sizes
from sartor.config import CompileConfig
from sartor.dialect_passes.opening.transposes_apart import transposes_apart
from sartor.frontend.imported_model import ImportedModel
from sartor.open_sizes.calls import odd_size
from sartor.open_sizes.importing import OpenImport, import_sizes
from sartor.open_sizes.sized_nets import SizedNets, SizedRuns
from sartor.profiling.builder import Builder
from sartor.profiling.cache_check import CachingModel
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import budget_of_model
from sartor.samples.checked_samples import checked_samples
from sartor.samples.sample_sets import SampleSet
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.kept.values import KeptValues

_LOG = logging.getLogger(__name__)
# Ranges of so many sizes are checked at all of them, larger ones at so many in the middle.
_WHOLE = 8
_NEIGHBOURS = 3
# Each size that is checked is an import, and models compare sizes with few numbers.
_MOST_APART = 4


def checked_sizes(symbols: Sequence[Symbol], apart: Sequence[int] = ()) -> list[dict[str, int]]:
    """Sizes at which a file is checked beside those of the imports: the least, neighbours in the middle of ranges, and
    what is next to numbers by which a model may tell sizes ``apart``, the first few of them.

    Three neighbours, not all of them odd, tell apart what rounds halves and thirds. Small ranges are checked whole.
    """
    imported = zip(symbols, twin_sizes(symbols), small_sizes(symbols), strict=True)
    listed = {symbol.name: _checked(symbol, {symbol.most, *others}, apart) for symbol, *others in imported}
    count = max(map(len, listed.values()), default=0)
    drawn = [{name: sizes[index % len(sizes)] for name, sizes in listed.items()} for index in range(count)]
    if len(symbols) > 1:
        first, *others = symbols
        drawn.append({first.name: first.least, **{other.name: odd_size(other, 7 / 8) for other in others}})
    return [sizes_drawn for index, sizes_drawn in enumerate(drawn) if sizes_drawn not in drawn[:index]]


def with_least(opened: OpenImport, config: CompileConfig, bench: Bench) -> tuple[OpenImport, ImportedModel]:
    """The import with the least sizes among its others, and the model with these, whose layers have the names of those
    for any size. Rounding does most there: a position that sees few others is what it adds itself."""
    least = {symbol.name: symbol.steps[0] for symbol in opened.symbols}
    model = opened.at(least)
    if model is None:
        simplifies = opened.model.is_simplified
        (model,) = import_sizes(opened.model.path, [least], opened.dims, config, bench, simplifies=simplifies)
        model = replace(model, open_inputs=opened.model.open_inputs)
        opened = replace(opened, others=((least, model), *opened.others))
    return opened, replace(model, graph=transposes_apart(model.graph))


def _checked(symbol: Symbol, imported: Collection[int], apart: Sequence[int]) -> list[int]:
    """The sizes of a symbol, the least first; beside that those of the imports are checked anyway."""
    sizes = symbol.steps
    middle = sizes.index(odd_size(symbol, 1 / 2))
    further = list(sizes if len(sizes) <= _WHOLE else sizes[middle : middle + _NEIGHBOURS])
    told = [number for number in apart if symbol.least <= number <= symbol.most]
    if further_told := told[_MOST_APART:]:
        _LOG.warning(
            "the model compares sizes with %d numbers: with %s of '%s' and beside them the file is not run",
            *(len(told), ", ".join(map(str, further_told)), symbol.name),
        )
    told = told[:_MOST_APART]
    beside = (size for number in told for size in range(number - symbol.multiple, number + symbol.multiple + 1))
    further += [size for size in dict.fromkeys(beside) if symbol.allows(size) and size not in further]
    return [sizes[0], *(size for size in further if size != sizes[0] and size not in imported)]


def sized_nets(
    samples: SampleSet, opened: OpenImport, config: CompileConfig, bench: Bench, caching: CachingModel | None = None
) -> SizedNets:
    """Runs builds with the sizes of the network's calls, and checks them with those of all imports and further ones.

    Args:
        samples: of the largest sizes.
        opened: the model.
        config: settings.
        bench: what plans are made with.
        caching: the model whose caches builds keep; None if they keep none.
    """
    largest, *timed = opened.model.graph.calls
    calls = [*timed]
    known = [call.by_name for call in (largest, *timed)]
    further = [sizes for sizes, _ in opened.others if _is_allowed(opened, sizes)]
    further += checked_sizes(opened.symbols, opened.apart)
    for index, sizes in enumerate(further):
        if sizes not in known and sizes not in further[:index]:
            calls.append(SizedCall(tuple(sizes.items()), 0.0))
    others = sized_runs(calls, samples.permitted_error, opened, config, bench)
    builder = _builder(opened.model, config, bench)
    budget = budget_of_model(config.error_budget, opened.model, samples)
    return SizedNets(builder, samples, budget, largest.share, others, caching=caching)


def sized_runs(
    calls: Sequence[SizedCall], permitted: float, opened: OpenImport, config: CompileConfig, bench: Bench
) -> list[SizedRuns]:
    """Runs builds with the sizes of these calls, of which ``permitted`` is the error by all the rounding that the model
    permits; the other arguments are those of ``sized_nets``."""
    models = _models([call.by_name for call in calls], opened, config, bench)
    return [
        SizedRuns(call, _runner(model, permitted, config, bench)) for call, model in zip(calls, models, strict=True)
    ]


def checking_thresholds(
    thresholds: Sequence[Threshold],
    nets: SizedNets,
    opened: OpenImport,
    config: CompileConfig,
    bench: Bench,
) -> SizedNets:
    """The same runs that check a build at both sides of thresholds as well.

    Args:
        thresholds: of the plan that is built.
        nets: runs builds.
        opened, config, bench: as for ``sized_nets``.
    """
    largest, *_ = opened.model.graph.calls
    known = [largest.by_name, *(runs.call.by_name for runs in nets.others)]
    calls = [SizedCall(tuple(sizes.items()), 0.0) for sizes in crossing_sizes(thresholds, known)]
    return nets.checking(sized_runs(calls, nets.permitted_error, opened, config, bench)) if calls else nets


def _models(
    sizes: Sequence[Mapping[str, int]], opened: OpenImport, config: CompileConfig, bench: Bench
) -> list[ImportedModel]:
    """The model with each of these sizes, imported unless it was before.

    They are compared with files, and have no layers unless these are compared as well: to form them takes half of an
    import.
    """
    new, model = [size for size in sizes if opened.at(size) is None], opened.model
    kinds = {"simplifies": model.is_simplified, "has_layers": model.is_rounding}
    imported = iter(import_sizes(model.path, new, opened.dims, config, bench, **kinds))
    inputs = opened.model.open_inputs
    return [opened.at(size) or replace(next(imported), open_inputs=inputs) for size in sizes]


def _runner(model: ImportedModel, permitted: float, config: CompileConfig, bench: Bench) -> NetRunner:
    """Runs builds with other sizes than the largest, in one process each; ``permitted`` is the error with any size by
    all the rounding that the model permits."""
    samples = checked_samples(model, config.calibration, bench.pool, narrow=config.error_budget.narrow)
    samples = replace(samples, permitted_error=permitted)
    budget = budget_of_model(config.error_budget, model, samples)
    return NetRunner(_builder(model, config, bench), samples, budget, is_hurried=True)


def _builder(model: ImportedModel, config: CompileConfig, bench: Bench) -> Builder:
    kept, code, imports = KeptModules.of_user(), KeptCode.of_user(), KeptValues.of_imports()
    return Builder(model, bench.pool, bench.directory, config.header, bench.progress, kept, code, imports)


def _is_allowed(opened: OpenImport, sizes: dict[str, int]) -> bool:
    """Whether the sizes of an import are in their ranges."""
    return all(symbol.allows(sizes[symbol.name]) for symbol in opened.symbols)
