"""Records first inferences of networks: by plans that were selected for them, by others, and by other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.cold import Settings, prepare, runs_of
from benchmarks.cold_plans import NARROW_ERROR, ColdPlan, make_plan, overlapped, plan_file, size_of
from benchmarks.record.results import ERROR_LIMIT, Entry
from benchmarks.record.task import Found, Task
from sartor.errors import SartorError
from sartor.first_inference.cold_bench import COLD_PEERS, SELF, ColdRuns, time_cold
from sartor.first_inference.sample import FirstRun
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session

NETWORKS = ("squeezenet", "mobilenet_v2", "resnet50", "vgg16", "bert")
"""Networks whose every part is compared: small and large files, and a transformer."""
_ROUNDS = 15
# Most of a round is starting processes and reading files, which are no part of what is timed.
_FACTOR = 7


def measure_first(task: Task) -> Found:
    """Time all plans, with and without overlap, beside other runtimes on the model and on what they saved of it.

    Raises:
        SartorError: if the network does not compile for later inferences, or a runtime fails.
    """
    return _measured(task, tuple(ColdPlan), COLD_PEERS)


def measure_cold(task: Task) -> Found:
    """Time the plan that is selected for the first inference beside that for later ones.

    Raises:
        SartorError: as ``measure_first``.
    """
    return _measured(task, (ColdPlan.LATENCY, ColdPlan.KERNELS), ())


def entry_name(runtime: str, files: str) -> str:
    """The name of an entry: who, and where the model's files were."""
    return f"{runtime}, {files}"


def _measured(task: Task, plans: tuple[ColdPlan, ...], peers: tuple[str, ...]) -> Found:
    network, directory = task.model.stem, task.directory / "cold"
    directory.mkdir(exist_ok=True)
    made, failures = _made(network, plans, Settings(directory, plans, peers, task.threads, _ROUNDS, None))
    seconds = task.effort.seconds * task.effort.processes * _FACTOR
    settings = replace(made, seconds=seconds, settles=bool(peers))
    prepare(network, settings)
    sizes = {overlapped(plan): _facts(network, plan, settings) for plan in settings.plans}
    plan_of = {name: plan for plan in settings.plans for name in (plan.knobs, overlapped(plan))}
    timed = runs_of(network, settings)
    errors = _errors(task.model, timed, {plan: plan_file(network, directory, plan) for plan in settings.plans})
    entries = {}
    for (runtime, files), runs in time_cold(timed).items():
        who = overlapped(plans[0]) if runtime == SELF else runtime
        samples, facts = (tuple(run.first for run in runs),), {**_phases(runs), **sizes.get(who, {})}
        plan = plan_of.get(who)
        allowed = NARROW_ERROR if plan is ColdPlan.WEIGHTS else ERROR_LIMIT
        entries[entry_name(who, files)] = Entry(samples, 0.0 if plan is None else errors[plan], allowed, facts)
    return entries, failures


def _errors(model: Path, timed: ColdRuns, modules: Mapping[ColdPlan, Path]) -> dict[ColdPlan, float]:
    """Relative errors of plans on the inputs that are timed; outputs of other runtimes are not compared."""
    expected = ReferenceModel(model, threads=timed.threads)(timed.feeds)
    found = {}
    for plan, module in modules.items():
        with Session(module, threads=timed.threads, keep_states=False) as session:
            found[plan] = relative_error(session.run(None, timed.feeds), expected)
    return found


def _made(network: str, plans: tuple[ColdPlan, ...], settings: Settings) -> tuple[Settings, dict[str, str]]:
    """Make the plans anew; those that cannot be made are left out, but not the first."""
    made, failures = [], {}
    for plan in plans:
        plan_file(network, settings.directory, plan).unlink(missing_ok=True)
        try:
            make_plan(network, settings.directory, plan, settings.threads)
        except SartorError as error:
            if plan is plans[0]:
                raise
            failures[overlapped(plan)] = str(error)
        else:
            made.append(plan)
    return replace(settings, plans=tuple(made)), failures


def _facts(network: str, plan: ColdPlan, settings: Settings) -> dict[str, float]:
    size = size_of(network, settings.directory, plan)
    return {"module MiB": size.module_mib, "added MiB": size.added_mib, "compile seconds": size.seconds}


def _phases(runs: list[FirstRun]) -> dict[str, float]:
    """Medians, and least times of processors, of all processes."""
    found = {"process seconds": median(run.whole for run in runs)}
    if all(len(run.runs) > 1 for run in runs):
        found |= {f"inference {number + 1}": median(run.runs[number] for run in runs) for number in range(3)}
        found["later inference"] = median(run.warm for run in runs)
        found["slowest between"] = median(max(run.runs[1:]) for run in runs)
    if all(run.taken for run in runs):
        found["processor seconds"] = min(run.taken[0] for run in runs)
    return found
