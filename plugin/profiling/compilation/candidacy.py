"""A model with its calibrated ranges and the variants of its layers, from which plans are selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.filters.followed_forms import reading_forms
from sartor.costing.layer_costs import foreseen
from sartor.costing.listing import all_of
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.loading import import_network
from sartor.frontend.value_ranges import with_children
from sartor.planning.recipe import unsplit_recipe
from sartor.precision.calibration import Calibration, calibrate
from sartor.precision.compensation.compensated_weights import with_compensation
from sartor.precision.equalisation import find_exponents
from sartor.precision.permitted_rounding import with_permitted_error
from sartor.profiling.builder import Builder
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.floor import has_floor
from sartor.profiling.compilation.stock_floor import may_leave_out
from sartor.profiling.layerwise.rewritten_layers import checking_layers
from sartor.profiling.network_records import NetworkRecords
from sartor.profiling.network_runner import NetRunner
from sartor.profiling.verdicts import budget_of_model
from sartor.reference.trusted.loaded_models import MOST_BYTES
from sartor.samples.checked_samples import check_measure
from sartor.samples.rewritten_samples import RewriteCheck
from sartor.samples.sample_sets import SampleSet, sample_set
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.records.doubts import Doubts

# One of so many parts of the time that is left may go into compensating errors of weights.
_COMPENSATING = 2


@dataclass(frozen=True)
class Candidacy:
    """A model as layers, with what plans are selected from.

    Attributes:
        imported: the model.
        calibration: its samples and ranges.
        candidates: the variants of each layer.
        checking: the comparison of its rewrites with definitions of operators, which may go on.
        begun: what builds and runs its networks, and has begun already; None if nothing has.
        sized: of a network of open sizes some more that rounding is measured with, and their calibrations.
        forms: in which another plan of the file reads weights, by their names.
        follows: whether layers read weights in these alone, where they can.
    """

    imported: ImportedModel
    calibration: Calibration
    candidates: Candidates
    checking: RewriteCheck
    begun: NetRunner | None = None
    sized: tuple[tuple[ImportedModel, Calibration], ...] = ()
    forms: Mapping[str, Packing] = field(default_factory=dict)
    follows: bool = False

    def of(self, candidates: Candidates) -> Candidacy:
        """The same with other variants, or those of them that read weights in the forms to follow."""
        if self.follows:
            candidates = reading_forms(candidates, self.imported.graph, self.forms)
        return replace(self, candidates=candidates)


def find_variants(
    imported: ImportedModel,
    config: CompileConfig,
    bench: Bench,
    *,
    is_tuned_here: bool = False,
    rewritten: ImportedModel | None = None,
    sized: Sequence[ImportedModel] = (),
    forms: Mapping[str, Packing] | None = None,
) -> Candidacy:
    """Calibrate a model, and ask every routine about every layer.

    Args:
        imported: the model.
        config: settings.
        bench: what plans are made with.
        is_tuned_here: whether its networks will run on this machine, so that what they need can begin.
        rewritten: the same model with smaller sizes, on which its rewrites are compared with definitions; None for
            itself.
        sized: the same model with other sizes, with which rounding is measured, too.
        forms: as for ``Candidacy``; variants that read weights in these are wanted then, however fast they are.

    Raises:
        UsageError: if the user's samples or measure fail.
        RewriteError: if a rewrite computes something else than the operator's definition.
    """
    is_hurried = has_floor(config, bench.time)
    checking = RewriteCheck(bench.pool, rewritten or imported, config.calibrating.samples)
    if is_hurried and is_tuned_here and not _fills_memory(imported):
        # A plan that is predicted is built meanwhile: nothing is measured that a wrong rewrite would waste.
        checking.begin()
    else:
        checking.finish()
    imported = equalised(imported, config, bench)
    alone = [_calibrated(model, config, bench) for model in (imported, *sized)]
    calibration, *others = (own.covering([other for other in alone if other is not own]) for own in alone)
    calibration = calibration.permitting(other.samples.permitted_error for other in others)
    check_measure(imported, calibration.samples, bench.pool, config.error_budget)
    imported, calibration = with_compensation(
        imported, calibration, config.calibrating, bench.pool, bench.progress, bench.time.part(_COMPENSATING).end
    )
    imported = replace(imported, ranges=with_children(imported.graph, {**calibration.ranges.values, **imported.ranges}))
    begun = _begun(imported, calibration.samples, config, bench) if is_tuned_here else None
    is_narrow = is_hurried and not config.planning.pins and not forms
    narrow = foreseen(bench.store, config.target) if is_narrow else all_of
    with _checking_rewrites(imported, calibration.samples, config, bench) if is_tuned_here else nullcontext():
        candidates = find_candidates(imported, config.planning, config.dump_directory, everything=False, narrow=narrow)
    calibrated = tuple(zip(sized, others, strict=True))
    return Candidacy(imported, calibration, candidates, checking, begun, calibrated, forms or {})


def _calibrated(imported: ImportedModel, config: CompileConfig, bench: Bench) -> Calibration:
    calibration = calibrate(imported, config.calibrating, bench.pool, bench.progress)
    return with_permitted_error(
        imported, calibration, config, bench.pool, bench.progress, is_hurried=bench.time.is_bounded
    )


def _fills_memory(imported: ImportedModel) -> bool:
    """Whether a model's weights are so many that ONNX Runtime should not load them in two processes at a time."""
    return isinstance(imported.prepared, Path) and imported.prepared.stat().st_size > MOST_BYTES


def _checking_rewrites(
    imported: ImportedModel, samples: SampleSet, config: CompileConfig, bench: Bench
) -> AbstractContextManager[None]:
    """Compare the layers of the rewritten model on the first sample, on another processor, where outputs hide errors.

    Raises:
        RewriteError: at its end, if they are wrong.
    """
    budget = budget_of_model(config.error_budget, imported, samples)
    hides = budget.asks_layers and budget.rounds
    return checking_layers(bench.pool, imported, [samples.first]) if hides else nullcontext()


def _begun(imported: ImportedModel, samples: SampleSet, config: CompileConfig, bench: Bench) -> NetRunner | None:
    """Begin, on another processor, what does not depend on variants: the reference outputs, and the stock model if it
    never ran.

    The stock model does not begin where it may prove hopeless, and within a time budget, of which it takes much.
    """
    if not config.target.is_cpu or config.target.others:
        return None
    runner = runner_of(imported, samples, config, bench)
    runner.begin_ahead()
    stock = unsplit_recipe(imported, config.planning)
    records = NetworkRecords(bench.store, imported, config.target, runner, Doubts(bench.pool.is_quiet))
    waits = bench.time.is_bounded or may_leave_out(config)
    if not (waits or config.planning.pins) and records.run_of(stock) is None:
        runner.builder.begin(stock)
    return runner


def runner_of(imported: ImportedModel, samples: SampleSet, config: CompileConfig, bench: Bench) -> NetRunner:
    """What builds networks, and runs them."""
    budget = budget_of_model(config.error_budget, imported, samples)
    kept, code, imports = KeptModules.of_user(), KeptCode.of_user(), KeptValues.of_imports()
    builder = Builder(imported, bench.pool, bench.directory, config.header, bench.progress, kept, code, imports)
    return NetRunner(builder, samples, budget, is_hurried=bench.time.is_bounded)


def equalised(imported: ImportedModel, config: CompileConfig, bench: Bench) -> ImportedModel:
    """The model, imported anew with channels equalised before products where 8 bits need that.

    In f32 it computes the same bits. Random samples tell nothing about sizes of channels, so the user's are needed.

    Raises:
        UsageError: if the samples do not fit the model, or cannot be read.
    """
    policy = config.calibrating
    # What is known of the sizes of one import is not so of another's; rows have ranges of their own there.
    if policy.samples is None or imported.open_inputs or not policy.precision.quantises_values:
        return imported
    samples = sample_set(imported, policy.samples, narrow=True)
    exponents = find_exponents(imported, samples.source, bench.pool, config.threads, bench.progress)
    if not exponents:
        return imported
    importing = replace(config.importing, exponents=exponents)
    anew = import_network(imported.path, importing, bench.pool, bench.progress, bench.directory)
    bench.imported.append(anew)
    return anew
