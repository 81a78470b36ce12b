"""``sartor bench``: time a module's inference, beside that of other runtimes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.cli.options.common import (
    DeviceOption,
    InputOption,
    JsonOption,
    SignatureOption,
    ThreadsOption,
    existing_file,
    read_sources,
    read_threads,
)
from sartor.cli.options.plan_choice import PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.options.used_files import model_files, module_files
from sartor.cli.output.terminal import milliseconds, show_json, show_table
from sartor.cli.tables.cold_table import ColdTimes, cold_json, show_cold
from sartor.cli.tables.in_network_table import Row, in_network_json, in_network_rows, show_in_network
from sartor.cli.tables.peak_table import bench_machine
from sartor.comparison.bench_job import PEERS, SELF, BenchResults, BenchRuns, time_in_worker
from sartor.errors import DeviceError, UsageError
from sartor.first_inference.cold_bench import COLD_PEERS, DEFAULT_COLD_ROUNDS, STOCK, ColdRuns, time_cold
from sartor.first_inference.layer_phases import Phases, layer_phases
from sartor.profiling.layers.dispatch_job import dispatches_in_worker
from sartor.publishing import check_apart
from sartor.report.page import write_json
from sartor.report.trace import Slice
from sartor.report.trace import trace as trace_of
from sartor.runtime.benchmark import Ratio, time_ratio
from sartor.runtime.dispatch_statistics import DispatchStatistics
from sartor.runtime.driver.bound_input import bound_feeds
from sartor.runtime.driver.device import device_settings
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.manifest import Manifest, find_manifest
from sartor.runtime.module import open_module
from sartor.runtime.module_facts import (
    check_first_part,
    check_passes_all,
    inference_functions,
    input_names,
    module_manifest,
    module_signature,
    module_weights,
    session_signature,
    session_threads,
)
from sartor.samples.feeds import make_feeds
from sartor.tuning.cost_tables.in_network import call_seconds
from sartor.tuning.records.network import Network
from sartor.tuning.records.plan import Plan
from sartor.tuning.workers.calls import open_pool
from sartor.tuning.workers.sharing import machine_turns

_LOG = logging.getLogger(__name__)
_DEFAULT_PEER = "onnxruntime"
_DEFAULT_ROUNDS = 20
_MOST_ROUNDS = 10**9
# With others a round is a block of runs of each.
_ROUNDS_WITH_PEERS = 8


def bench(
    module: Annotated[Path | None, typer.Argument(metavar="[MODEL.vmfb]", help="A compiled module.")] = None,
    vs: Annotated[Path | None, typer.Option(metavar="MODEL.onnx", help="The model for other runtimes.")] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            help=f"Runtimes to compare with: {','.join(PEERS)}, with --cold also {STOCK}. (default: {_DEFAULT_PEER})"
        ),
    ] = None,
    input: InputOption = None,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    signature: SignatureOption = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_MOST_ROUNDS,
            help="Exactly so many rounds: inferences, or beside other runtimes blocks of a quarter of a second. "
            f"(default: {_DEFAULT_ROUNDS} or more, blocks {_ROUNDS_WITH_PEERS})",
        ),
    ] = None,
    dispatches: Annotated[
        bool,
        typer.Option("--dispatches", help="Show where the time goes, dispatch by dispatch, and what was predicted."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write inferences and layers as a trace for Perfetto or Chrome."),
    ] = None,
    peak: Annotated[
        bool, typer.Option("--peak", help="Measure the machine instead: its f32 peak and memory bandwidth.")
    ] = False,
    cold: Annotated[
        bool,
        typer.Option(
            "--cold", help="Time the first inference instead: each in a fresh process, its files in memory or not."
        ),
    ] = False,
    tuning_db: Annotated[
        Path | None, typer.Option(help="Tuning database for --peak. (default: in the user's cache directory)")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Time a module, interleaved with other runtimes on the same inputs; or measure what the machine does at most."""
    if peak:
        _check_peak_stands_alone({"--dispatches": dispatches, "--trace": trace, "--cold": cold})
        options = (
            "MODEL.vmfb",
            "--vs",
            "--peers",
            "--input",
            "--shape",
            "--size",
            "--device",
            "--signature",
            "--rounds",
        )
        values = (module, vs, peers, input, shape, size, device, signature, rounds)
        _check_peak_stands_alone(dict(zip(options, values, strict=True)))
        bench_machine(read_threads(threads), tuning_db, json)
        return
    module = _named_module(module, tuning_db)
    sources = read_sources(input, input_names(module, signature))
    if trace is not None:
        _check_trace(trace, module, vs, sources)
    names = _peer_names(vs, peers, COLD_PEERS if cold else tuple(PEERS))
    choice = read_choice(shape, device, sources)
    manifest = module_manifest(module, choice)
    check_passes_all(module)
    kind = device or (manifest.devices[0] if manifest else "cpu")
    best = threads or session_threads(module)
    workers = read_threads(best) if kind == "cpu" else None
    known = module_signature(module, signature, choice)
    bound = manifest.bound if manifest else ()
    noise = manifest.noise if manifest else ()
    feeds = make_feeds(sized_inputs(module, known.inputs, size), sources, bound, noise)
    if cold:
        if dispatches or trace is not None:
            asked = "--dispatches are" if dispatches else "a --trace is"
            raise UsageError(f"{asked} timed in warm inferences; leave it or --cold out")
        if noise and names:
            raise UsageError(
                f"'{vs}' draws '{noise[0].name}' itself, so that its first inferences are not those of the module; "
                "leave --vs or --cold out"
            )
        runs = ColdRuns(
            module,
            known.entry,
            module_weights(module, manifest),
            device_settings(kind, workers),
            vs,
            names,
            read_threads(threads),
            feeds,
            bound_feeds(bound),
            rounds or DEFAULT_COLD_ROUNDS,
            signature=session_signature(module, known),
        )
        times = time_cold(runs)
        (cold_json if json else show_cold)(times, _phases(runs, manifest, times))
        return
    count = rounds or (_ROUNDS_WITH_PEERS if names else _DEFAULT_ROUNDS)
    fixed = rounds is not None
    is_counted = dispatches or (trace is not None and not (manifest and manifest.segments))
    if is_counted:
        check_first_part(module, kind)
    plan = Plan.from_json(_later_plan(manifest), f"'{module}'") if manifest and is_counted else None
    results = time_in_worker(
        BenchRuns(
            module,
            session_signature(module, known),
            kind,
            workers,
            vs,
            names,
            read_threads(threads),
            feeds,
            count,
            exactly=fixed,
            bound=bound,
            noise=bool(noise),
        )
    )
    statistics = (
        _statistics(module, inference_functions(manifest, known)[-1], feeds, kind, workers) if is_counted else None
    )
    samples = results.samples
    speedups = {name: time_ratio(samples[name], samples[SELF]) for name in names}
    if trace is not None:
        write_json(trace, trace_of(samples, _slices(plan, statistics)))
    shown = statistics if dispatches else None
    rows = in_network_rows(shown, plan) if shown and plan else []
    (_show_json if json else _show_tables)(results, speedups, shown, rows)


def _later_plan(manifest: Manifest) -> Mapping[str, Any]:
    """The plan of later inferences, which are timed, in a file that may have one of its own for the first."""
    return manifest.plan if manifest.successor is None else manifest.successor["plan"]


def _phases(runs: ColdRuns, manifest: Manifest | None, times: ColdTimes) -> Phases | None:
    """The phases of the layers, if the module has a plan of layers for the CPU."""
    if manifest is None or not manifest.network or runs.device.kind != "cpu":
        return None
    reading = {state: found for (name, state), found in times.items() if name == SELF}
    try:
        plan = Plan.from_json(manifest.plan, f"'{runs.module}'")
        if plan.unsplit or manifest.segments:
            return None
        network = Network.from_json(manifest.network, f"the network in '{runs.module}'")
        return layer_phases(runs, plan, network, reading)
    except (DeviceError, UsageError) as error:
        _LOG.warning("what single layers take is not known: %s", error)
        return None


def _slices(plan: Plan | None, statistics: DispatchStatistics | None) -> list[Slice]:
    """The layers and the conversions before them, in execution order, with their times; dispatches without a plan."""
    if statistics is None:
        return []
    if plan is None or plan.unsplit:
        return [Slice(each.name, each.seconds, {"calls": str(each.calls)}) for each in statistics.dispatches]
    taken = call_seconds(statistics.dispatches)
    found: list[Slice] = []
    for layer in plan.layers:
        found += [
            Slice(f"{each.producer} -> {layer.layer}", taken[each.symbol], {"from": each.source, "to": each.target})
            for each in plan.adapts
            if each.consumer == layer.layer and each.seconds and each.symbol in taken
        ]
        if layer.symbol in taken:
            found.append(Slice(layer.layer, taken[layer.symbol], {"routine": layer.variant}))
    return found


def _check_peak_stands_alone(given: Mapping[str, object]) -> None:
    names = [name for name, value in given.items() if value]
    if names:
        raise UsageError(f"--peak measures the machine, not a module; leave {names[0]} out")


def _check_trace(trace: Path, module: Path, vs: Path | None, sources: Mapping[str, str]) -> None:
    """Make sure that the trace can be written, and over nothing that is read."""
    inputs = [(f"the input '{name}'", Path(source)) for name, source in sources.items()]
    check_apart({"--trace": trace}, [*module_files(module), *(model_files(vs) if vs else []), *inputs])


def _named_module(module: Path | None, tuning_db: Path | None) -> Path:
    if module is None:
        raise UsageError("there is nothing to time; name a compiled module, or measure the machine with --peak")
    if tuning_db is not None:
        raise UsageError("--tuning-db is for --peak; a module is timed anew each time")
    return module


def _statistics(
    module: Path, signature: Signature, feeds: Mapping[str, Array], kind: str, workers: int | None
) -> DispatchStatistics:
    arrays = [feeds[spec.name] for spec in signature.inputs]
    weights = module_weights(module, find_manifest(open_module(module)))
    settings = {"device": kind, "threads": workers, "parameters": weights}
    with open_pool(1, machine_turns()) as (pool, _):
        found = dispatches_in_worker(pool, {"path": module, "entry": signature.entry, "inputs": arrays, **settings})
    return found.without_plans()


def _peer_names(vs: Path | None, peers: str | None, known: Sequence[str]) -> tuple[str, ...]:
    if vs is None and peers is None:
        return ()
    if vs is not None:
        existing_file(vs)
    names = tuple(dict.fromkeys((peers or _DEFAULT_PEER).split(",")))
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"'{unknown[0]}' is no peer, choose among {', '.join(known)}")
    if vs is None and set(names) != {STOCK}:
        raise UsageError("--peers needs the ONNX model they run; name it with --vs")
    return names


def _show_json(
    results: BenchResults,
    speedups: Mapping[str, Ratio],
    statistics: DispatchStatistics | None,
    layers: list[Row],
) -> None:
    runs: list[dict[str, Any]] = [
        {
            "name": name,
            "median_ms": each.median * 1e3,
            "minimum_ms": each.minimum * 1e3,
            "samples_ms": [seconds * 1e3 for seconds in each.seconds],
            "sartor_is_faster_by": asdict(speedups[name]) if name in speedups else None,
            "relative_error": results.errors.get(name),
        }
        for name, each in results.samples.items()
    ]
    parts = None if statistics is None else asdict(statistics)
    show_json({"runs": runs, "dispatches": parts, "layers": in_network_json(layers)})


def _show_tables(
    results: BenchResults,
    speedups: Mapping[str, Ratio],
    statistics: DispatchStatistics | None,
    layers: list[Row],
) -> None:
    rows = [
        [
            *(name, milliseconds(each.median), milliseconds(each.minimum)),
            *(_error(results.errors.get(name)), _speedup(speedups.get(name))),
        ]
        for name, each in results.samples.items()
    ]
    rounds = len(results.samples[SELF].seconds)
    columns = ("runtime", "median ms", "minimum ms", "relative error", "Sartor is (95% interval)")
    show_table(f"one inference, {rounds} rounds", columns, rows, right=(1, 2, 3, 4))
    if statistics is not None:
        _show_dispatches(statistics)
    if layers:
        show_in_network(layers)


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.2g}"


def _speedup(ratio: Ratio | None) -> str:
    """Return a speedup with its interval in words; a ratio below 1 is written as a slowdown above 1."""
    if ratio is None:
        return ""
    if ratio.value >= 1:
        return f"{ratio.value:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f})"
    return f"{1 / ratio.value:.2f} times as slow ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})"


def _show_dispatches(statistics: DispatchStatistics) -> None:
    total = sum(each.seconds for each in statistics.dispatches) or 1.0
    rows = [
        [each.name, str(each.calls), milliseconds(each.seconds), f"{each.seconds / total:.1%}"]
        for each in statistics.dispatches
    ]
    show_table("dispatches", ("dispatch", "calls", "ms", "share"), rows, right=(1, 2, 3))
