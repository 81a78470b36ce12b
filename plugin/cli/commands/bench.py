"""``sartor bench``: time a module's inference, beside that of other runtimes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.cli.options.common import (
    DeviceOption,
    InputOption,
    JsonOption,
    SignatureOption,
    ThreadsOption,
    read_sources,
    read_threads,
)
from sartor.cli.options.plan_choice import PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.options.swept_sizes import Sizes, SizesOption, as_texts, swept_sizes
from sartor.cli.options.timing import (
    DEFAULT_ROUNDS,
    ROUNDS_WITH_PEERS,
    ColdOption,
    DispatchesOption,
    PeakDatabaseOption,
    PeakOption,
    PeersOption,
    RoundsOption,
    TimedModelOption,
    TimedModule,
    TraceOption,
    check_peak_stands_alone,
    check_trace,
    named_module,
    timed_peers,
)
from sartor.cli.tables.cold_table import ColdTimes, cold_json, show_cold
from sartor.cli.tables.in_network_table import in_network_rows
from sartor.cli.tables.peak_table import bench_machine
from sartor.cli.tables.size_table import show_sizes, sizes_json
from sartor.cli.tables.time_table import show_times, times_json
from sartor.comparison.bench_job import PEERS, SELF, BenchRuns, time_in_worker, time_sizes_in_worker
from sartor.devices import CPU, is_cpu
from sartor.errors import DeviceError, UsageError
from sartor.first_inference.cold_bench import COLD_PEERS, DEFAULT_COLD_ROUNDS, ColdRuns, time_cold
from sartor.first_inference.layer_phases import Phases, layer_phases
from sartor.profiling.layers.dispatch_job import dispatches_in_worker
from sartor.report.page import write_json
from sartor.report.trace import slices_of
from sartor.report.trace import trace as trace_of
from sartor.runtime.dispatch_statistics import DispatchStatistics
from sartor.runtime.driver.bound_input import BoundInput, bound_feeds
from sartor.runtime.driver.device import device_settings
from sartor.runtime.driver.noise import Noise
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.manifest import Manifest
from sartor.runtime.module_facts import (
    bound_inputs,
    check_first_part,
    check_passes_all,
    inference_functions,
    input_names,
    module_manifest,
    module_signature,
    module_weights,
    noise_inputs,
    session_signature,
    session_threads,
)
from sartor.runtime.several.choice import PlanChoice
from sartor.samples.feeds import make_feeds
from sartor.tuning.records.network import Network
from sartor.tuning.records.plan import Plan
from sartor.tuning.workers.calls import open_pool
from sartor.tuning.workers.sharing import machine_turns

_LOG = logging.getLogger(__name__)


def bench(
    module: TimedModule = None,
    vs: TimedModelOption = None,
    peers: PeersOption = None,
    input: InputOption = None,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    sizes: SizesOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    signature: SignatureOption = None,
    rounds: RoundsOption = None,
    dispatches: DispatchesOption = False,
    trace: TraceOption = None,
    peak: PeakOption = False,
    cold: ColdOption = False,
    tuning_db: PeakDatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Time a module, interleaved with other runtimes on the same inputs; or measure what the machine does at most."""
    if peak:
        given: dict[str, object] = {
            "--dispatches": dispatches,
            "--trace": trace,
            "--cold": cold,
            "MODEL.vmfb": module,
            "--vs": vs,
        }
        given |= {"--peers": peers, "--input": input, "--shape": shape, "--size": size, "--sizes": sizes}
        given |= {"--device": device}
        check_peak_stands_alone(given | {"--signature": signature, "--rounds": rounds})
        bench_machine(read_threads(threads), tuning_db, json)
        return
    module = named_module(module, tuning_db)
    sources = read_sources(input, input_names(module, signature))
    if trace is not None:
        check_trace(trace, module, vs, sources)
    names = timed_peers(vs, peers, COLD_PEERS if cold else tuple(PEERS))
    choice, beside = read_choice(shape, device, sources), _Peers(vs, names, read_threads(threads))
    if sizes:
        _check_sizes_alone({"--cold": cold, "--dispatches": dispatches, "--trace": trace})
        swept = swept_sizes(module, sizes, size)
        each_timed = [_timed_module(module, choice, threads, signature, sources, as_texts(one)) for one in swept]
        _time_sizes(swept, each_timed, beside, rounds, json)
        return
    timed = _timed_module(module, choice, threads, signature, sources, size)
    if cold:
        _check_cold_alone(timed, beside, dispatches, trace)
        _time_first(timed, beside, rounds, json)
    else:
        _time(timed, beside, rounds, dispatches, trace, json)


@dataclass(frozen=True)
class _Timed:
    """A module, and what it runs on.

    Attributes:
        path: its file.
        manifest: of the plan that is timed; None if another program compiled it.
        signature: the function, with what it takes and gives.
        device: as for ``Session``.
        workers: number of threads; None on a GPU.
        feeds: one array per input.
    """

    path: Path
    manifest: Manifest | None
    signature: Signature
    device: str
    workers: int | None
    feeds: Mapping[str, Array]

    @property
    def bound(self) -> tuple[BoundInput, ...]:
        """Inputs of the model that the module does not take."""
        return self.manifest.bound if self.manifest else ()

    @property
    def noise(self) -> tuple[Noise, ...]:
        """Inputs of the module that the model draws itself."""
        return self.manifest.noise if self.manifest else ()


@dataclass(frozen=True)
class _Peers:
    """The other runtimes: their model, which may be missing, their names, and their number of threads."""

    model: Path | None
    names: tuple[str, ...]
    threads: int


def _timed_module(
    module: Path,
    choice: PlanChoice,
    threads: int | None,
    signature: str | None,
    sources: Mapping[str, str],
    size: Sequence[str] | None,
) -> _Timed:
    """The module with its inputs; arguments are options of the command."""
    manifest = module_manifest(module, choice)
    check_passes_all(module)
    device = choice.device or (manifest.devices[0] if manifest else CPU)
    best = threads or session_threads(module)
    workers = read_threads(best) if is_cpu(device) else None
    known = module_signature(module, signature, choice)
    inputs = sized_inputs(module, known.inputs, size)
    feeds = make_feeds(inputs, sources, bound_inputs(module), noise_inputs(module))
    return _Timed(module, manifest, known, device, workers, feeds)


def _check_sizes_alone(given: Mapping[str, object]) -> None:
    """Make sure that no option is given of what ``--sizes`` does not time."""
    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(f"{names[0]} is for one size; leave it out, or name the size with --size in place of --sizes")


def _time_sizes(swept: Sequence[Sizes], timed: Sequence[_Timed], peers: _Peers, rounds: int | None, json: bool) -> None:
    """Time inferences with each of several sizes, and show them."""
    results = time_sizes_in_worker([_runs(one, peers, rounds) for one in timed])
    (sizes_json if json else show_sizes)(swept, results)


def _check_cold_alone(timed: _Timed, peers: _Peers, dispatches: bool, trace: Path | None) -> None:
    """Make sure that ``--cold`` can time what is asked for."""
    if dispatches or trace is not None:
        warm = "--dispatches are" if dispatches else "a --trace is"
        raise UsageError(f"{warm} timed in warm inferences; leave it or --cold out")
    if timed.noise and peers.names:
        raise UsageError(
            f"'{peers.model}' draws '{timed.noise[0].name}' itself, so that its first inferences are not those of the "
            "module; leave --vs or --cold out"
        )


def _time_first(timed: _Timed, peers: _Peers, rounds: int | None, json: bool) -> None:
    """Time first inferences, and show them."""
    runs = ColdRuns(
        module=timed.path,
        entry=timed.signature.entry,
        weights=module_weights(timed.path, timed.manifest),
        device=device_settings(timed.device, timed.workers),
        model=peers.model,
        peers=peers.names,
        threads=peers.threads,
        feeds=timed.feeds,
        bound=bound_feeds(timed.bound),
        rounds=rounds or DEFAULT_COLD_ROUNDS,
        signature=session_signature(timed.path, timed.signature),
    )
    times = time_cold(runs)
    (cold_json if json else show_cold)(times, _phases(runs, timed.manifest, times))


def _phases(runs: ColdRuns, manifest: Manifest | None, times: ColdTimes) -> Phases | None:
    """The phases of the layers, if the module has a plan of layers for the CPU."""
    if manifest is None or not manifest.network or not is_cpu(runs.device.kind):
        return None
    reading = {state: samples for (name, state), samples in times.items() if name == SELF}
    try:
        plan = Plan.from_json(manifest.plan, f"'{runs.module}'")
        if plan.unsplit or manifest.segments:
            return None
        network = Network.from_json(manifest.network, f"the network in '{runs.module}'")
        return layer_phases(runs, plan, network, reading)
    except (DeviceError, UsageError) as error:
        _LOG.warning("what single layers take is not known: %s", error)
        return None


def _time(timed: _Timed, peers: _Peers, rounds: int | None, dispatches: bool, trace: Path | None, json: bool) -> None:
    """Time later inferences, and show them; write the trace if there is to be one."""
    manifest = timed.manifest
    is_counted = dispatches or (trace is not None and not (manifest and manifest.segments))
    if is_counted:
        check_first_part(timed.path, timed.device)
    plan = Plan.from_json(_later_plan(manifest), f"'{timed.path}'") if manifest and is_counted else None
    results = time_in_worker(_runs(timed, peers, rounds))
    statistics = _statistics(timed) if is_counted else None
    if trace is not None:
        write_json(trace, trace_of(results.samples, slices_of(statistics, plan) if statistics else []))
    shown = statistics if dispatches else None
    rows = in_network_rows(shown, plan) if shown and plan else []
    (times_json if json else show_times)(results, shown, rows)


def _runs(timed: _Timed, peers: _Peers, rounds: int | None) -> BenchRuns:
    return BenchRuns(
        module=timed.path,
        signature=session_signature(timed.path, timed.signature),
        device=timed.device,
        workers=timed.workers,
        model=peers.model,
        peers=peers.names,
        peer_threads=peers.threads,
        feeds=timed.feeds,
        rounds=rounds or (ROUNDS_WITH_PEERS if peers.names else DEFAULT_ROUNDS),
        exactly=rounds is not None,
        bound=timed.bound,
        noise=bool(timed.noise),
    )


def _later_plan(manifest: Manifest) -> Mapping[str, Any]:
    """The plan of later inferences, which are timed, in a file that may have one of its own for the first."""
    return manifest.plan if manifest.successor is None else manifest.successor["plan"]


def _statistics(timed: _Timed) -> DispatchStatistics:
    """The dispatches of a later inference."""
    function = inference_functions(timed.manifest, timed.signature)[-1]
    settings: dict[str, Any] = {
        "path": timed.path,
        "entry": function.entry,
        "inputs": [timed.feeds[spec.name] for spec in function.inputs],
        "device": timed.device,
        "threads": timed.workers,
        "parameters": module_weights(timed.path, timed.manifest),
    }
    with open_pool(1, machine_turns()) as (pool, _):
        return dispatches_in_worker(pool, settings).without_plans()
