"""Plans for any size for CPU levels that one file has, among which the module chooses when it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import UsageError
from sartor.frontend.kept_import import forgotten_if_wrong
from sartor.frontend.target_check import runs_here
from sartor.open_sizes.compilation import OpenConfig, opened_model
from sartor.open_sizes.plans import best_checked, checked, judge_of, replayed_net, tuned_plans
from sartor.planning.recorded_recipe import check_plan, precision_of
from sartor.precision.permitted_rounding import heeding_permissions
from sartor.profiling.compilation.made_plan import Made, PlanTask
from sartor.profiling.verdicts import refusal
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.records.measurement import Status
from sartor.tuning.records.plan import Plan


def check_levels(opened: OpenConfig, targets: Sequence[Target]) -> CompileConfig:
    """The settings that the plans of a file for any size for several CPU levels share.

    Raises:
        UsageError: if a target is none of these, or states are asked for.
    """
    for target in targets:
        if not target.is_cpu:
            raise UsageError(
                f"a file for any size cannot have a plan for {target} beside others yet; name CPU levels alone, or "
                "give the sizes that occur, as --shape x=1|8,16"
            )
    return replace(opened.base.without_states("for several CPU levels and any size"), shapes={})


def open_plan(task: PlanTask, saved: Plan | None, opened: OpenConfig) -> Made:
    """The plan of a level for any size: a saved one, or else one that is tuned.

    Raises:
        UsageError: if this machine does not run the level, or the plan was made for another model or other ranges.
        CompileError: if its outputs are wrong.
    """
    config, bench = task.config, task.bench
    if not runs_here(config.target):
        raise UsageError(
            f"a file for any size is checked where it is made, and this machine runs no {config.target}; leave this "
            "level out"
        )
    if saved is not None:
        check_plan(saved, config.target, config.fixed)
        config = config.for_plan(saved.threads, precision_of(saved))
    network, config, _ = opened_model(task.model, task.output, replace(opened, base=config), bench, task.others)
    if network.length is not None:
        raise UsageError(
            f"{network.length.file.cut.node} computes a length: of such a model no file for several CPU levels is made "
            "yet; name one level"
        )
    with forgotten_if_wrong(bench.imported, KeptValues.of_imports()):
        if saved is None:
            heeding = heeding_permissions(config, network.model)
            candidacy, tuned, runner = tuned_plans(network, heeding, bench, task.output.parent)
            refined, run, runner = best_checked(tuned, runner, network, heeding, bench)
            recipe, plan, rejections = refined.recipe, refined.plan, candidacy.candidates.rejections
            imported = network.model
        else:
            replayed, runner = replayed_net(saved, network, config, bench)
            runner = judge_of(replayed.recipe, runner, network, config, bench)
            run = checked(replayed.recipe, runner)
            if run.status is not Status.OK:
                raise refusal([run], runner.budget)
            recipe, plan, rejections = replayed.recipe, saved, replayed.candidates.rejections
            imported = replayed.imported
    return Made(config.target, {}, imported, recipe, plan, run, runner, rejections)
