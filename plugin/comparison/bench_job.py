"""Worker side of ``sartor bench``: a module beside other runtimes, which run the user's own file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.errors import SartorError
from sartor.runtime.benchmark import Samples, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference
from sartor.runtime.session import Session
from sartor.tuning.workers.calls import TIMEOUT, WorkerError, call, open_pool

SELF = "sartor"
PEERS: dict[str, Callable[..., Callable[[Mapping[str, Array]], list[Array]]]] = {
    "onnxruntime": OnnxRuntimeReference,
    "openvino": OpenVinoReference,
}
"""Other runtimes, by the names that the user gives them."""

_DEFAULT_SECONDS = 2.0
_ROUND_TIMEOUT = 60.0


@dataclass(frozen=True)
class BenchRuns:
    """What to time.

    Attributes:
        module: a compiled module.
        device: as for ``Session``.
        workers: threads of the module, as for ``Session``.
        model: the ONNX file that peers run; None if there are none.
        peers: keys of ``PEERS``.
        peer_threads: threads of each peer.
        feeds: one array per input.
        rounds: as many at least.
        exactly: so many rounds, however short they are; else as many as fill two seconds.
    """

    module: Path
    device: str
    workers: int | None
    model: Path | None
    peers: tuple[str, ...]
    peer_threads: int
    feeds: Mapping[str, Array]
    rounds: int
    exactly: bool


def time_in_worker(runs: BenchRuns) -> dict[str, Samples]:
    """Times by name, those of the module under ``SELF``, taken in a process that may crash.

    Raises:
        CompileError: if it does, or takes too long or too much memory.
        SartorError: as the runtimes raise it.
    """
    timeout = TIMEOUT + (_ROUND_TIMEOUT * runs.rounds if runs.exactly else 0.0)
    with open_pool(1) as (pool, _):
        return call(pool, time_runs, {"runs": runs}, "timing", timeout)


def time_runs(runs: BenchRuns) -> dict[str, Samples] | WorkerError:
    """Worker side of ``time_in_worker``."""
    try:
        return _time(runs)
    except SartorError as error:
        return WorkerError(error)


def _time(runs: BenchRuns) -> dict[str, Samples]:
    with Session(runs.module, device=runs.device, threads=runs.workers) as session:
        callables: dict[str, Callable[[], object]] = {SELF: lambda: session.run(None, dict(runs.feeds))}
        callables |= {name: _peer(name, runs) for name in runs.peers}
        seconds = 0.0 if runs.exactly else _DEFAULT_SECONDS
        return time_interleaved(callables, min_rounds=runs.rounds, min_seconds=seconds)


def _peer(name: str, runs: BenchRuns) -> Callable[[], object]:
    reference = PEERS[name](runs.model, threads=runs.peer_threads)
    return lambda: reference(runs.feeds)
