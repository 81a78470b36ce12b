"""Times the first inference of a module and of other runtimes, each sample in a process of its own."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sartor.devices import CPU, is_cpu
from sartor.errors import DeviceError, UsageError
from sartor.first_inference.sample import FirstRun
from sartor.onnx_model.reading.read_apart import read_model
from sartor.runtime.dispatch_statistics import write_input
from sartor.runtime.driver.device import DeviceSettings, tool_device
from sartor.runtime.driver.iree_runtime import tool
from sartor.runtime.driver.signature import Array, Signature
from sartor.tuning.measuring.runs.cold_read import drop_page_cache
from sartor.workspace import workspace

SELF = "sartor"
CACHED, DROPPED = "in memory", "dropped"
"""States of a model's files: in the page cache, or not. Libraries and the interpreter are in it in both."""
STOCK = "iree"
COLD_PEERS = ("onnxruntime", "openvino", STOCK)
"""Other runtimes. ONNX Runtime and OpenVINO run twice: on the ONNX file, and on what they saved of it. IREE's own tool
runs the module."""

_CHILD = Path(__file__).with_name("child.py")
DEFAULT_COLD_ROUNDS = 10
_TIMEOUT = 600.0
_SHOWN = 300


@dataclass(frozen=True)
class Rival:
    """Another module of the same network, or another way to run one.

    Attributes:
        module: to run.
        settled: whether all of it is brought into place before the first layer runs, so that nothing overlaps.
    """

    module: Path
    settled: bool = False


@dataclass(frozen=True)
class ColdRuns:
    """What is timed.

    Attributes:
        module: a compiled module.
        entry: its function.
        weights: files of weights beside it, by scope.
        device: on which it runs.
        model: the ONNX file that other runtimes run; None if there are none.
        peers: their names.
        threads: number of threads of those that run it.
        feeds: one array per input of the module.
        bound: inputs of the model only, with a fixed value.
        rounds: samples of each runtime in each state.
        runs: inferences in each process.
        rivals: further modules with their weights inside, by name.
        load: processes that compute beside all samples, at the same priority.
        seconds: no round begins after so many seconds; the first always runs. None for no limit.
        saved: an existing folder that keeps what other runtimes save of the model to start faster; None saves anew.
        signature: of the module, if it does not tell its own.
    """

    module: Path
    entry: str
    weights: Mapping[str, Path]
    device: DeviceSettings
    model: Path | None
    peers: tuple[str, ...]
    threads: int
    feeds: Mapping[str, Array]
    bound: Mapping[str, Array]
    rounds: int
    runs: int = 12
    rivals: Mapping[str, Rival] = field(default_factory=dict)
    load: int = 0
    seconds: float | None = None
    saved: Path | None = None
    signature: Signature | None = None


@dataclass(frozen=True)
class _Competitor:
    """A runtime with a model: how its process is started, and which files it reads."""

    run: Callable[[], FirstRun]
    files: tuple[Path, ...]


def time_cold(runs: ColdRuns) -> dict[tuple[str, str], list[FirstRun]]:
    """Time all runtimes in turn, with their files in memory and, where the system can drop them, not.

    Returns:
        Samples by the names of runtime and state; those of one index are of the same round.

    Raises:
        DeviceError: if a process fails; the message has its last line.
        UsageError: if a runtime is not installed.
    """
    with workspace() as folder, _beside(runs.load):
        competitors = dict(_competitors(runs, folder))
        states = [CACHED, DROPPED] if hasattr(os, "posix_fadvise") else [CACHED]
        turns = [(name, state) for name in competitors for state in states]
        timed: dict[tuple[str, str], list[FirstRun]] = {turn: [] for turn in turns}
        order, begin = random.Random(0), time.monotonic()
        for done in range(runs.rounds):
            if done and runs.seconds is not None and time.monotonic() - begin > runs.seconds:
                break
            for name, state in order.sample(turns, len(turns)):
                _bring(competitors[name].files, state)
                timed[name, state].append(competitors[name].run())
    return timed


def save_for_peers(runs: ColdRuns) -> None:
    """Let other runtimes save what they start faster with in ``runs.saved``, so that a later ``time_cold`` only times.

    Raises:
        DeviceError, UsageError: as ``time_cold``.
    """
    with workspace() as folder:
        for _ in _competitors(runs, folder):
            pass


@contextmanager
def _beside(count: int) -> Iterator[None]:
    """Let so many other programs compute meanwhile."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _bring(files: Sequence[Path], state: str) -> None:
    for file in files:
        if state == DROPPED:
            drop_page_cache(file)
        else:
            with file.open("rb") as source:
                while source.read(1 << 24):
                    pass


def _competitors(runs: ColdRuns, folder: Path) -> Iterator[tuple[str, _Competitor]]:
    own, all_feeds = _written(runs.feeds, folder), _written({**runs.feeds, **runs.bound}, folder)
    files = (runs.module, *runs.weights.values())
    options = _session_options(runs)
    told = options if runs.signature is None else options | {"signature": _as_lists(runs.signature)}
    yield SELF, _Competitor(lambda: _child(SELF, runs.module, own, runs, told), files)
    for name, rival in runs.rivals.items():
        chosen = options | ({"settled": True} if rival.settled else {})
        run = partial(_child, SELF, rival.module, own, runs, chosen)
        yield name, _Competitor(run, (rival.module,))
    if STOCK in runs.peers:
        command = [str(tool("iree-run-module")), *tool_arguments(runs, folder)]
        yield STOCK, _Competitor(lambda: _tool(command), files)
    if runs.model is None:
        return
    # Peers would read whatever external data it names, wherever that is.
    model = (runs.model, *read_model(runs.model, all_feeds))
    for name in runs.peers:
        if name != STOCK:
            yield from _peer(name, model, all_feeds, runs, runs.saved or folder)


def _session_options(runs: ColdRuns) -> dict[str, Any]:
    if not is_cpu(runs.device.kind):
        return {"device": str(runs.device)}
    return {"device": CPU, "threads": runs.device.threads}


def _as_lists(signature: Signature) -> list[Any]:
    """A signature as JSON: the function, its inputs and its outputs."""
    inputs, outputs = ([asdict(spec) for spec in specs] for specs in (signature.inputs, signature.outputs))
    return [signature.entry, inputs, outputs]


def tool_arguments(runs: ColdRuns, folder: Path) -> list[str]:
    """What IREE's own tools are told to run: the module, its device and its inputs, which are written to a folder."""
    inputs = [write_input(array, folder / f"tool{number}.bin") for number, array in enumerate(runs.feeds.values())]
    return [
        f"--device={tool_device(runs.device)}",
        *runs.device.flags,
        f"--module={runs.module}",
        f"--function={runs.entry}",
        *(f"--parameters={scope}={file}" for scope, file in sorted(runs.weights.items())),
        *(f"--input={input_}" for input_ in inputs),
    ]


def _peer(
    name: str, files: Sequence[Path], feeds: Mapping[str, Any], runs: ColdRuns, folder: Path
) -> Iterator[tuple[str, _Competitor]]:
    """A runtime on the ONNX file, the first of the model's files, and on what it can save to start faster."""
    model = files[0]

    def timed(path: Path, options: Mapping[str, Any]) -> Callable[[], FirstRun]:
        return lambda: _child(name, path, feeds, runs, options)

    yield name, _Competitor(timed(model, {}), tuple(files))
    if name == "onnxruntime":
        saved = folder / f"{model.stem}.ort"
        if not _is_newer([saved], files):
            _child(name, model, feeds, runs, {"save": str(saved)})
        yield f"{name}, .ort", _Competitor(timed(saved, {}), (saved,))
    else:
        cache = folder / f"{model.stem}.cache"
        cache.mkdir(exist_ok=True)
        if not _is_newer([file for file in cache.rglob("*") if file.is_file()], files):
            _child(name, model, feeds, runs, {"cache": str(cache)})
        kept = (*files, *sorted(file for file in cache.rglob("*") if file.is_file()))
        yield f"{name}, its cache", _Competitor(timed(model, {"cache": str(cache)}), kept)


def _is_newer(saved: Sequence[Path], files: Sequence[Path]) -> bool:
    """Whether files are there that were saved after all files of the model were written."""
    written = max(file.stat().st_mtime for file in files)
    return bool(saved) and all(path.exists() and path.stat().st_mtime >= written for path in saved)


def _written(feeds: Mapping[str, Array], folder: Path) -> dict[str, dict[str, Any]]:
    """Inputs as files of their bytes."""
    files = {}
    for number, (name, array) in enumerate(feeds.items()):
        file = folder / f"{number}.bin"
        np.ascontiguousarray(array).tofile(file)
        files[name] = {"file": str(file), "dtype": array.dtype.name, "shape": list(array.shape)}
    return files


def _child(runtime: str, model: Path, feeds: Mapping[str, Any], runs: ColdRuns, options: Mapping[str, Any]) -> FirstRun:
    job = {"runtime": runtime, "model": str(model), "feeds": feeds, "threads": runs.threads, "runs": runs.runs}
    # -P: what lies beside the file is not to be found by its name.
    command = [sys.executable, "-P", str(_CHILD), json.dumps(job | {"options": options})]
    spawned = time.perf_counter_ns()
    return FirstRun.of(spawned, json.loads(output_of(runtime, command).splitlines()[-1]))


def _tool(command: Sequence[str]) -> FirstRun:
    """A run of IREE's tool, of which only the whole is known."""
    begin = time.perf_counter()
    output_of(STOCK, command)
    return FirstRun(0.0, 0.0, 0.0, (time.perf_counter() - begin,))


def output_of(runtime: str, command: Sequence[str]) -> str:
    """What a fresh process writes to standard output.

    Raises:
        DeviceError: if it fails or takes too long; the message has its last line, and names the runtime.
        UsageError: if the runtime is not installed.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"{runtime} took longer than {_TIMEOUT:.0f} s in a fresh process") from None
    if done.returncode == 0:
        return done.stdout
    last = ([line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"])[-1]
    if last.startswith("ModuleNotFoundError"):
        raise UsageError(f"{runtime} is not installed; install it with: pip install 'sartor[peers]'")
    raise DeviceError(f"{runtime} failed in a fresh process: {last.strip()[:_SHOWN]}")
