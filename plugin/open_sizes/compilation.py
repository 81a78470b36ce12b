"""Compiles an ONNX file to one .vmfb with one plan for any size: tuned at the largest, and checked at many."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.artifact import Artifact
from sartor.codegen.ir.thresholds import described, thresholds_of
from sartor.config import CompileConfig
from sartor.costing.time_budget import TimeBudget
from sartor.errors import CompileError, DisturbedError, InfeasibleError, SartorError, UnsupportedModelError, UsageError
from sartor.frontend.kept_import import forgotten_if_wrong
from sartor.frontend.loading import open_workspace
from sartor.frontend.target_check import runs_here
from sartor.onnx_model.states.cache_branch import CHOICE
from sartor.onnx_model.states.cut_caches import CutModel
from sartor.onnx_model.states.open_positions import POSITIONS
from sartor.open_sizes.caches import CutFile, cut_file, open_file
from sartor.open_sizes.calls import CallLog
from sartor.open_sizes.computed_lengths import LengthModel, length_file
from sartor.open_sizes.importing import OpenImport, import_open
from sartor.open_sizes.length_check import LengthRunner
from sartor.open_sizes.plans import checked, judge_of, replayed_net, tuned_plans
from sartor.open_sizes.prompts import CheckedPlan, judged_file, sees_no_later_tokens
from sartor.open_sizes.sized_nets import SizedNets
from sartor.planning.recipe import Recipe
from sartor.planning.recorded_recipe import check_plan, precision_of
from sartor.policies import Precision, StatePolicy
from sartor.precision.permitted_rounding import heeding_permissions
from sartor.profiling.builder import Builder
from sartor.profiling.cache_check import CachingModel
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.candidacy import Candidacy
from sartor.profiling.compilation.outputs import check_files, publish_best
from sartor.profiling.compilation.tuned_network import Tuned
from sartor.profiling.publisher import Publisher, stage_files
from sartor.profiling.refinement import Refined
from sartor.profiling.verdicts import refusal
from sartor.progress import Progress, silent
from sartor.publishing import Publication, part_of
from sartor.reference.tolerance import MOST_BY_ITSELF
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.store.store import Store
from sartor.tuning.workers.calls import call

_LOG = logging.getLogger(__name__)
# Of the time that is left, the plan for prompts takes one of so many parts; tokens are what callers wait for.
_PLANS = 3
# A plan for shorter parts is worth its code if a prompt of as many tokens takes at most so much of the time.
_WORTHWHILE = 0.95
ONE_BY_ONE = "a prompt takes a call for each of its tokens"


@dataclass(frozen=True)
class OpenConfig:
    """Settings of a compilation for any size.

    Attributes:
        base: settings whose shapes do not count.
        shapes: of the inputs, some of whose sizes are ranges.
        log: tells with which sizes the network is called, for which plans are selected; None for the usual ones.
        given: those of ``shapes`` that the user gives, None for all; caches that grow need no others.
        sources: what is told of the ranges, in sentences; empty for the ranges themselves.
        refusal: what is told if there is no range, and no cache that grows.
    """

    base: CompileConfig
    shapes: OpenShapes
    log: CallLog | None = None
    given: OpenShapes | None = None
    sources: tuple[str, ...] = ()
    refusal: UsageError | None = None

    def __post_init__(self) -> None:
        """Check that the settings are those of one plan on one device of this machine.

        Raises:
            UsageError: if one is not.
        """
        config = self.base
        if not self.has_range and self.refusal is None:
            raise UsageError("no dimension has a range of sizes")
        unmet = {
            f"--target {','.join(config.target.devices)}": config.target.others,
            f"--objective {config.objective}": config.objective is Objective.COLD_LATENCY,
            "--workers": config.workers is not None,
        }
        if option := next((name for name, is_given in unmet.items() if is_given), None):
            raise UsageError(
                f"a file for any size cannot be made with {option} yet; leave it out, or give the sizes that occur, as "
                "--shape x=1|8,16"
            )

    @property
    def has_range(self) -> bool:
        """Whether a dimension has a range."""
        return any(isinstance(size, SizeRange) for shape in self.shapes.values() for size in shape)


def compile_open(
    model: Path,
    output: Path,
    opened: OpenConfig,
    progress: Progress = silent,
    whole: Publication | None = None,
    plan: Plan | None = None,
) -> Artifact:
    """Write the best plan of a model for any size.

    Args:
        model: ONNX file.
        output: path of the .vmfb, which is replaced at the very end, or not at all.
        opened: settings.
        progress: told about every step.
        whole: what the module is published with; by default it is published alone.
        plan: built in place of tuning; None to tune.

    Raises:
        SartorError: one of its subclasses, by the kind of failure.
    """
    config = opened.base
    time = TimeBudget.of(config.time_budget)
    with (
        part_of(whole) as publication,
        open_workspace(config.target, config.jobs, end=time.patience) as (pool, directory),
        Store.open(config.database, goes_on=True) as store,
    ):
        check_files(model, output, config, publication.others)
        if not runs_here(config.target):
            raise UsageError(
                f"a file for any size is checked where it is made, and this machine runs no {config.target}; compile "
                "it on one that does, or give the sizes that occur, as --shape x=1|8,16"
            )
        if plan is not None:
            check_plan(plan, config.target, config.fixed)
            config = config.for_plan(plan.threads, precision_of(plan))
        bench = Bench(pool, directory, store, time, progress)
        open_model, config, cut = opened_model(model, output, replace(opened, base=config), bench, publication.others)
        sources = cut.cut.sources if cut is not None else opened.sources or tuple(map(str, open_model.symbols))
        if open_model.length is not None:
            sources = open_model.length.sources(opened.sources, open_model.symbols)
        making = _Making(open_model, config, bench, output, publication, sources)
        # Further sizes are imported where they are checked.
        with forgotten_if_wrong(bench.imported, KeptValues.of_imports()):
            if cut is None or not cut.cut.caches:
                return making.tuned() if plan is None else making.replayed(plan)
            making = making.caching(model, cut.cut)
            if plan is not None:
                return making.replayed(plan)
            return making.tuned_with(_prompts(model, cut.cut, opened.base.importing.states, making))


def opened_model(
    model: Path, output: Path, opened: OpenConfig, bench: Bench, others: Mapping[str, Path]
) -> tuple[OpenImport, CompileConfig, CutFile | None]:
    """Import a model for any size.

    Args:
        model: ONNX file.
        output: path of the .vmfb.
        opened: settings.
        bench: what plans are made with.
        others: what else is written, by the option that names it.

    Returns:
        The model, the settings for what was imported, and its file without caches, if it has some.
    """
    config, length = opened.base, _length(model, opened, bench)
    cut = _cut(model, opened, bench) if length is None else None
    if cut is not None:
        check_files(model, output, config, others, cut.external)
        if config.calibration is not None:
            raise UsageError("--calibration gives samples of single calls, and the model has caches; leave it out")
        source, shapes = cut.path, cut.cut.shapes
        config = replace(config, states=(), finds_states=False, shapes={})
    elif length is not None:
        check_files(model, output, config, others, length.file.external)
        source, shapes = length.file.path, length.shapes
        config = replace(config.without_states("of a length that is computed"), shapes={})
    else:
        source, shapes = model, opened.shapes
        config = config.without_states("for any size")
    ranges = None if length is None else {length.file.cut.symbol: length.bounds}
    network = _imported(source, shapes, cut, config, bench, opened.log, ranges)
    network = replace(network, length=length)
    check_files(model, output, config, others, network.model.external)
    return network, config, cut


def _length(model: Path, opened: OpenConfig, bench: Bench) -> LengthModel | None:
    """The model without the length that it computes; None if it computes none."""
    folder = bench.directory / "length"
    folder.mkdir(exist_ok=True)
    job = {"path": model, "directory": folder, "bound": frozenset(opened.base.importing.bindings)}
    made = call(bench.pool, length_file, job, f"reading '{model}'")
    if made.file is None:
        return None
    given = opened.shapes if opened.given is None else opened.given
    return LengthModel.of(made.file, opened.shapes, given)


def _imported(
    path: Path,
    shapes: OpenShapes,
    cut: CutFile | None,
    config: CompileConfig,
    bench: Bench,
    log: CallLog | None,
    ranges: Mapping[str, SizeRange] | None = None,
) -> OpenImport:
    ranges = ranges if cut is None else cut.cut.ranges
    try:
        return import_open(path, shapes, config, bench, log, ranges)
    except UnsupportedModelError as error:
        raise (error if cut is None else cut.cut.explained(error)) from None


def _prompts(model: Path, cut: CutModel, policy: StatePolicy, tokens: _Making) -> list[_Making]:
    """What makes the plans for parts of a prompt, of fewer and fewer tokens; none if the model takes them token by
    token."""
    config, bench = tokens.config, tokens.bench
    if not cut.prompts or config.planning.pins:
        return []
    if config.memory_limit is not None or config.objective is Objective.MEMORY:
        _LOG.warning("%s: memory of plans for more is not counted yet", ONE_BY_ONE)
        return []
    made = list[_Making]()
    try:
        if not call(bench.pool, sees_no_later_tokens, {"path": model, "cut": cut}, "running the model's prompts"):
            raise UnsupportedModelError("for several tokens it gives something else than for one after another")
        for number, shapes in enumerate(cut.prompts):
            folder = bench.directory / f"prompts{number}"
            folder.mkdir()
            job = {"path": model, "policy": policy, "given": shapes, "directory": folder}
            cutting = call(bench.pool, cut_file, job, f"reading '{model}'")
            if cutting.file is None:
                raise UnsupportedModelError(cutting.reason)
            part, own = cutting.file, replace(bench, directory=folder, imported=[])
            opened_part = import_open(part.path, part.cut.shapes, replace(config, dump_directory=None), own)
            making = replace(tokens, config=replace(config, pareto=None), opened=opened_part, bench=own)
            made.append(making.caching(model, part.cut))
    except SartorError as error:
        _LOG.warning("%s: %s", "short prompts take longer" if made else ONE_BY_ONE, error)
    return made


def _cut(model: Path, opened: OpenConfig, bench: Bench) -> CutFile | None:
    """The file of the model without the caches that the module keeps, or with caches of an open length that callers
    pass; None if it has neither.

    Raises:
        UsageError: if there are no such caches, and no other size is left open.
    """
    policy, reason = opened.base.importing.states, ""
    folder, given = bench.directory / "cut", opened.shapes if opened.given is None else opened.given
    folder.mkdir(exist_ok=True)
    if policy.finds or policy.declared:
        is_chosen = CHOICE in opened.base.importing.bindings
        job = {"path": model, "policy": policy, "given": given, "directory": folder, "is_chosen": is_chosen}
        cut_model = call(bench.pool, cut_file, job, f"reading '{model}'")
        if cut_model.file is not None:
            return cut_model.file
        reason = cut_model.reason
    if reason:
        _LOG.warning("callers pass the caches: %s", reason)
    if reason or not (policy.finds or policy.declared):
        job = {"path": model, "given": given, "directory": folder}
        passed = call(bench.pool, open_file, job, f"reading '{model}'")
        if passed.file is not None:
            return passed.file
        if passed.reason:
            _LOG.warning("the number of positions is not left open: %s", passed.reason)
    if opened.refusal is not None and not opened.has_range:
        raise opened.refusal
    return None


def _part_plans(prompts: Sequence[_Making], heeded: Precision) -> list[CheckedPlan]:
    """Plans for parts of prompts, of more and more tokens; none if there is none for the most.

    Shorter parts read weights as the longest do, so that a file has them once.

    Args:
        prompts: make the plans, of fewer and fewer tokens.
        heeded: what of the rounding that the model permits may be done.
    """
    plans = list[CheckedPlan]()
    for number, making in enumerate(prompts):
        bench = making.bench.for_part(_PLANS + len(prompts) - 1 - number)
        own = replace(making, bench=bench, heeded=heeded, beside=plans[-1] if plans else None, follows=bool(plans))
        plan = own.for_prompts()
        if plan is not None:
            plans.insert(0, plan)
        elif not plans:
            _LOG.warning("%s", ONE_BY_ONE)
            return []
    return plans


@dataclass(frozen=True)
class _Making:
    """A model of open sizes while a file is made of it.

    Attributes:
        opened: the model.
        config: settings.
        bench: what plans are made with.
        output: path of the file.
        publication: what it is published with.
        sources: what is told of the ranges.
        cached: the model whose caches the file keeps; None if it keeps none.
        beside: another plan of the file, whose forms of weights are taken where that is hardly slower.
        follows: whether no others are, where there are routines that read these.
        heeded: what of the rounding that the model permits may be done.
        permits_bytes: whether prompts may be rounded to 8 bits, as far as the model and the user's bound permit it.
    """

    opened: OpenImport
    config: CompileConfig
    bench: Bench
    output: Path
    publication: Publication
    sources: tuple[str, ...]
    cached: CachingModel | None = None
    beside: CheckedPlan | None = None
    follows: bool = False
    heeded: Precision = Precision.PERMITTED
    permits_bytes: bool = True

    def caching(self, model: Path, cut: CutModel) -> _Making:
        """The same of a file that keeps caches, of the user's model."""
        symbol = next(candidate for candidate in self.opened.symbols if candidate.name == POSITIONS)
        own = self.opened.model
        opened = replace(self.opened, model=replace(own, caches=cut.caches, bound=(*own.bound, *cut.fixed)))
        cached = CachingModel(model, cut.caches, symbol.most, cut.dtypes)
        return replace(self, opened=opened, sources=cut.sources, cached=cached)

    def tuned_with(self, prompts: Sequence[_Making]) -> Artifact:
        """Tune a plan, and others for prompts; publish their file, or that of the first if there is no other.

        Args:
            prompts: make plans for parts of prompts, of fewer and fewer tokens.
        """
        if not prompts:
            return self.tuned()
        # Prompts first: most of a token's time goes into the bytes of weights, so that it can read them in any form.
        permissions = self._prompt_permissions()
        parts = _part_plans(prompts, permissions[0])
        if not parts:
            return self.tuned()
        # Errors of all plans add up in the caches.
        tokens = replace(self, beside=parts[-1], heeded=Precision.F32)
        candidacy, tuned, runner = tokens._plans()
        first = tokens._checked(tuned, runner)
        try:
            run, parts = self._joined_with(first, first.worthwhile(parts, _WORTHWHILE))
        except CompileError as error:
            if permissions[1:]:
                _LOG.warning("prompts are rounded to 16 bits alone, as the file is wrong otherwise: %s", error)
                return replace(self, permits_bytes=False).tuned_with(prompts)
            _LOG.warning("%s, as plans cannot be joined: %s", ONE_BY_ONE, error)
            return self._published(candidacy, replace(tuned, refined=first.refined), runner)
        made = replace(self._tuned_artifact(candidacy, first.refined, run, runner), pareto=tuned.pareto)
        made = self._telling(made, first.refined.recipe)
        told = " or ".join(str(plan.tokens) for plan in parts)
        sizes = (*made.sizes, f"prompts are taken by parts of {told} tokens")
        allowed = max(plan.runner.budget.accepted for plan in (first, *parts))
        return replace(made, sizes=sizes, allowed=allowed)

    def _joined_with(self, first: CheckedPlan, parts: list[CheckedPlan]) -> tuple[NetRun, list[CheckedPlan]]:
        """Stage the file of all plans, or that without those for shorter parts if it is wrong; returns its judged run,
        and the plans for parts.

        Raises:
            CompileError: as ``_joined``, if both are.
        """
        try:
            return self._joined(first, parts), parts
        except CompileError as error:
            if not parts[1:]:
                raise
            _LOG.warning("short prompts take longer, as the file is wrong otherwise: %s", error)
        return self._joined(first, parts[-1:]), parts[-1:]

    def _prompt_permissions(self) -> tuple[Precision, ...]:
        """What of the rounding that the model permits prompts may do, the first of these that is right: 8 bits leave no
        room for others' errors, unless the user's bound does."""
        given = self.config.error_budget.given
        is_narrow = given is None or (self.config.error_measure == RELATIVE and given <= MOST_BY_ITSELF)
        if is_narrow or not self.permits_bytes:
            return (Precision.PERMITTED_WORDS,)
        return Precision.PERMITTED, Precision.PERMITTED_WORDS

    def _joined(self, first: CheckedPlan, parts: Sequence[CheckedPlan]) -> NetRun:
        """Stage the file of all plans; returns its judged run.

        Raises:
            CompileError: if it cannot be built or is wrong; nothing is staged then.
        """
        files, external = first.joined(parts, self.config, self.bench), self.config.external_weights
        with ExitStack() as dropping:
            dropping.callback(self.publication.drop, self.output, *([external] if external else []))
            run = judged_file(first, parts, stage_files(files, self.output, external, self.publication))
            if run.status is not Status.OK:
                raise CompileError(run.message)
            dropping.pop_all()
        return run

    def for_prompts(self) -> CheckedPlan | None:
        """Tune a plan for parts of prompts, and check it in a file of its own; None if none is right, not even one that
        rounds nothing."""
        try:
            with forgotten_if_wrong(self.bench.imported, KeptValues.of_imports()):
                _, tuned, runner = self._plans()
                return self._checked(tuned, runner)
        except SartorError as error:
            is_wrong = isinstance(error, (CompileError, InfeasibleError)) and not isinstance(error, DisturbedError)
            if is_wrong and self._config.precision is Precision.PERMITTED:
                _LOG.warning("no plan for prompts that rounds to 8 bits is right: 16 bits alone are tried: %s", error)
                return replace(self, heeded=Precision.PERMITTED_WORDS).for_prompts()
            if is_wrong and self._config.precision.is_permitted:
                _LOG.warning("no plan for prompts that rounds is right: nothing is rounded: %s", error)
                return replace(self, heeded=Precision.F32).for_prompts()
            _LOG.warning("prompts are not taken by parts for which no plan is right: %s", error)
            return None

    def _checked(self, tuned: Tuned, runner: SizedNets) -> CheckedPlan:
        """The best plan that is right in a file of its own.

        Raises:
            CompileError: if none is.
        """
        return CheckedPlan.of(tuned, runner, self.opened, self._config, self.bench)

    def tuned(self) -> Artifact:
        """Tune a plan, and publish its file."""
        return self._published(*self._plans())

    def _published(self, candidacy: Candidacy, tuned: Tuned, runner: SizedNets) -> Artifact:
        """Publish the file of the best plan that is right."""
        judges: dict[str, SizedNets] = {}

        def publish(recipe: Recipe) -> NetRun:
            judges[recipe.digest] = judge = self._judge(recipe, runner)
            return self._publish(recipe, tuned.builder, judge)

        refined, run = publish_best(tuned.refined, tuned.refiner, publish)
        made = self._tuned_artifact(candidacy, refined, run, judges[refined.recipe.digest])
        return self._telling(replace(made, pareto=tuned.pareto), refined.recipe)

    def _publish(self, recipe: Recipe, builder: Builder, judge: SizedNets) -> NetRun:
        """Publish the file of a plan if it is right; of a model that computes a length, the file that does so, if one
        that is given the length is right as well."""
        length = self.opened.length
        if length is None:
            return Publisher(builder, judge, self.output, self.publication).publish(recipe)
        run = checked(recipe, judge)
        if run.status is not Status.OK:
            return run
        runner = LengthRunner.of(length, judge, run, self.bench)
        return Publisher(runner.builder, runner, self.output, self.publication).publish(recipe)

    def _judge(self, recipe: Recipe, runner: SizedNets) -> SizedNets:
        """What checks the file of a plan, whose layers may change their code with the size."""
        return judge_of(recipe, runner, self.opened, self._config, self.bench)

    def _telling(self, made: Artifact, recipe: Recipe) -> Artifact:
        """A file that tells at which sizes layers of its plan change their code."""
        told = described(thresholds_of(recipe.graph, recipe.variants, self.opened.symbols))
        return replace(made, sizes=(*made.sizes, *told))

    @property
    def _config(self) -> CompileConfig:
        """The settings with what is heeded of the rounding that the model permits."""
        return heeding_permissions(self.config, self.opened.model, self.heeded)

    def _plans(self) -> tuple[Candidacy, Tuned, SizedNets]:
        """Select plans, and run them."""
        forms = {} if self.beside is None else self.beside.forms(self.opened.model)
        folder = self.output.parent
        return tuned_plans(self.opened, self._config, self.bench, folder, self.cached, forms, follows=self.follows)

    def _tuned_artifact(self, candidacy: Candidacy, refined: Refined, run: NetRun, runner: SizedNets) -> Artifact:
        made = self._artifact(refined.plan, run, runner)
        calls = self.opened.model.graph.calls
        timed = (call.named for call in calls if call.share)
        told = (
            f"with {named} {ratio:.2f} times the least time of a plan"
            for named, ratio in zip(timed, refined.profiled.regrets, strict=False)
        )
        return replace(made, rejections=candidacy.candidates.rejections, calls=calls, sizes=(*made.sizes, *told))

    def replayed(self, plan: Plan) -> Artifact:
        """Build a saved plan, and publish its file.

        Raises:
            UsageError: if the plan was made for another model or other ranges.
            CompileError: if the outputs are wrong.
        """
        open_model, runner = replayed_net(plan, self.opened, self.config, self.bench, self.cached)
        runner = self._judge(open_model.recipe, runner)
        run = self._publish(open_model.recipe, runner.builder, runner)
        if run.status is not Status.OK:
            raise refusal([run], runner.budget)
        made = replace(self._artifact(plan, run, runner), rejections=open_model.candidates.rejections)
        return self._telling(made, open_model.recipe)

    def _artifact(self, plan: Plan, run: NetRun, runner: SizedNets) -> Artifact:
        size = self.publication.place_of(self.output).stat().st_size
        config = self.config
        artifact = Artifact(self.output, plan, run.error, size, config.external_weights, measure=config.error_measure)
        allowed, samples = runner.budget.accepted, 1 + len(runner.others)
        return replace(artifact, layers=run.layers, samples=samples, allowed=allowed, sizes=self.sources)
