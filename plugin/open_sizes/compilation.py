"""Compiles an ONNX file to one .vmfb with one plan for any size: tuned at the largest, and checked at many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sartor.artifact import Artifact
from sartor.config import CompileConfig
from sartor.costing.layer_costs import load_search
from sartor.costing.time_budget import TimeBudget
from sartor.errors import UsageError
from sartor.frontend.loading import open_workspace
from sartor.frontend.target_check import runs_here
from sartor.open_sizes.calls import CallLog
from sartor.open_sizes.checking import sized_nets
from sartor.open_sizes.importing import OpenImport, check_open, import_open
from sartor.open_sizes.sized_nets import SizedNets
from sartor.planning.recorded_recipe import check_plan
from sartor.profiling.compilation.outputs import check_files, publish_best
from sartor.profiling.compilation.tuned_network import Bench, find_variants, tune_network
from sartor.profiling.publisher import Publisher
from sartor.profiling.replay import replay
from sartor.profiling.verdicts import refusal
from sartor.progress import Progress, silent
from sartor.publishing import Publication, part_of
from sartor.samples.checked_samples import checked_samples
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan
from sartor.tuning.selection.problem.cost import Objective
from sartor.tuning.store.store import Store


@dataclass(frozen=True)
class OpenConfig:
    """Settings of a compilation for any size.

    Attributes:
        base: settings whose shapes do not count.
        shapes: of the inputs, some of whose sizes are ranges.
        log: tells with which sizes the network is called, for which plans are selected; None for the usual ones.
    """

    base: CompileConfig
    shapes: OpenShapes
    log: CallLog | None = None

    def __post_init__(self) -> None:
        """Check that the settings are those of one plan on a CPU of this machine.

        Raises:
            UsageError: if one is not.
        """
        config = self.base
        if not any(isinstance(size, SizeRange) for shape in self.shapes.values() for size in shape):
            raise UsageError("no dimension has a range of sizes")
        unmet = {
            f"--target {config.target}": config.target.device != "cpu" or config.target.others,
            "--memory-limit": config.memory_limit is not None,
            f"--objective {config.objective}": config.objective is not Objective.LATENCY,
            "--pareto": config.pareto is not None,
            "--calibration": config.calibration is not None,
            f"--precision {config.precision}": config.precision.quantises_values,
            "--workers": config.workers is not None,
        }
        if found := next((option for option, is_given in unmet.items() if is_given), None):
            raise UsageError(
                f"a file for any size cannot be made with {found} yet; leave it out, or give the sizes that occur, as "
                "--shape x=1|8,16"
            )


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
    config = opened.base.without_states("for any size")
    time = TimeBudget.of(config.time_budget)
    with (
        part_of(whole) as publication,
        open_workspace(config.target, config.jobs, end=time.patience) as (pool, directory),
        Store.open(config.database, goes_on=True) as store,
    ):
        check_files(model, output, config, publication.others)
        if not runs_here(config.target):
            raise UsageError(
                f"a file for any size is checked where it is made, and this machine runs no {config.target}"
            )
        if plan is not None:
            check_plan(plan, config.target, config.fixed)
            config = replace(config, threads=plan.threads)
        bench = Bench(pool, directory, store, time, progress)
        found = import_open(model, opened.shapes, config, bench, opened.log)
        check_open(found.model)
        check_files(model, output, config, publication.others, found.model.external)
        making = _Making(found, config, bench, output, publication)
        return making.tuned() if plan is None else making.replayed(plan)


@dataclass(frozen=True)
class _Making:
    """A model of open sizes while a file is made of it."""

    opened: OpenImport
    config: CompileConfig
    bench: Bench
    output: Path
    publication: Publication

    def tuned(self) -> Artifact:
        """Tune a plan, and publish its file."""
        load_search(self.bench.store, self.config.target, self.config.search)
        found = find_variants(self.opened.model, self.config, self.bench)
        runner = sized_nets(found.calibration.samples, self.opened, self.config, self.bench)
        tuned = tune_network(replace(found, begun=runner), self.config, self.bench, self.output.parent, whole=False)
        publisher = Publisher(tuned.builder, runner, self.output, self.publication)
        refined, run = publish_best(tuned.refined, tuned.refiner, publisher.publish)
        made = self._artifact(refined.plan, run, runner)
        return replace(made, rejections=found.candidates.rejections, calls=self.opened.model.graph.calls)

    def replayed(self, plan: Plan) -> Artifact:
        """Build a saved plan, and publish its file.

        Raises:
            UsageError: if the plan was made for another model or other ranges.
            CompileError: if the outputs are wrong.
        """
        model, config, bench = self.opened.model, self.config, self.bench
        found = replay(plan, model, config.planning, config.dump_directory)
        samples = checked_samples(model, None, bench.pool, narrow=config.error_budget.narrow)
        runner = sized_nets(samples, replace(self.opened, model=found.imported), config, bench)
        run = Publisher(runner.builder, runner, self.output, self.publication).publish(found.recipe)
        if run.status is not Status.OK:
            raise refusal([run], runner.budget)
        return replace(self._artifact(plan, run, runner), rejections=found.candidates.rejections)

    def _artifact(self, plan: Plan, run: NetRun, runner: SizedNets) -> Artifact:
        size = self.publication.place_of(self.output).stat().st_size
        config, ranges = self.config, tuple(map(str, self.opened.symbols))
        found = Artifact(self.output, plan, run.error, size, config.external_weights, measure=config.error_measure)
        allowed, samples = runner.budget.accepted, 1 + len(runner.others)
        return replace(found, layers=run.layers, samples=samples, allowed=allowed, sizes=ranges)
