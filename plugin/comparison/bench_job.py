"""Worker side of ``sartor bench``: times a module beside other runtimes on the user's file, with all errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from sartor.errors import SartorError
from sartor.onnx_model.reading.load import check_files, load_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.benchmark import BLOCK, PAUSE, Samples, time_interleaved
from sartor.runtime.driver.bound_input import BoundInput, bound_feeds
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.output_error import relative_error, scales_of
from sartor.runtime.reference import OnnxRuntimeReference, OpenVinoReference
from sartor.runtime.session import Session
from sartor.tuning.workers.calls import TIMEOUT, call, open_pool
from sartor.tuning.workers.protocol import WorkerError
from sartor.tuning.workers.sharing import machine_turns
from sartor.workspace import workspace

_LOG = logging.getLogger(__name__)


def errors_of(
    runs: Mapping[str, Callable[[], Sequence[Array]]], model: Path, feeds: Mapping[str, Array], threads: int
) -> dict[str, float]:
    """The relative error of each run's outputs (``relative_error``) to what the model means.

    Args:
        runs: by name.
        model: the ONNX file.
        feeds: an array for each of its inputs.
        threads: of the reference.

    Returns:
        The errors by name; empty, with a warning, if the reference cannot run the model.
    """
    try:
        right = ReferenceModel(model, threads=threads)(feeds)
    except SartorError as error:
        _LOG.warning("how exact the runtimes are is not known: %s", error)
        return {}
    scales = scales_of(right)
    return {name: relative_error(run(), right, scales=scales) for name, run in runs.items()}


# Unrelated results of one magnitude differ by more than the norm of either. Rounding to 8 bits stays far below this.
_UNRELATED = 0.5


def difference_of(own: Sequence[Array], other: Sequence[Array]) -> str | None:
    """How a module's outputs differ from those of a model, if more than rounding explains; else None.

    Only outputs of real numbers are compared by value: few classes are often the same, and many indices are not.
    """
    if len(own) != len(other):
        return f"it has {len(other)} outputs and the module {len(own)}"
    for index, (ours, theirs) in enumerate(zip(own, other, strict=True)):
        if ours.shape != theirs.shape:
            return f"output {index} has the shape {list(theirs.shape)}, in the module {list(ours.shape)}"
        if ours.dtype.kind == theirs.dtype.kind == "f" and (off := _distance(ours, theirs)) > _UNRELATED:
            return f"output {index} is off by {off:.2g} of its norm"
    return None


def _distance(ours: Array, theirs: Array) -> float:
    """The norm of the difference by the norm of the other; 0 if that is zero or either is not finite."""
    right = theirs.astype(np.float64)
    norm, apart = float(np.linalg.norm(right)), float(np.linalg.norm(ours.astype(np.float64) - right))
    return apart / norm if norm > 0 and np.isfinite(apart / norm) else 0.0


SELF = "sartor"
ON_DEVICE = "sartor, on the device"
"""The module with inputs that are on a GPU already and outputs that stay there, without transfers."""

Peer = Callable[[Mapping[str, Array]], list[Array]]
"""Another runtime with a model: it takes an array for each input, and gives those of its outputs."""

PEERS: dict[str, Callable[..., Peer]] = {
    "onnxruntime": partial(OnnxRuntimeReference, is_timed=True),
    "openvino": OpenVinoReference,
}
"""Constructors of the other runtimes, by the names that users give."""

_DEFAULT_SECONDS = 2.0
_ROUND_TIMEOUT = 60.0
_SIZE_TIMEOUT = 120.0
# Weights of many GiB are read from a slow disk in that time; what takes longer is timed as it is.
_SETTLE_SECONDS = 300.0


@dataclass(frozen=True)
class BenchRuns:
    """The module and the other runtimes to time, with their settings.

    Attributes:
        module: a compiled module.
        signature: what it takes and gives; None if its manifest says so.
        device: as for ``Session``.
        workers: number of the module's threads, as for ``Session``.
        model: the ONNX file that the other runtimes run; None if there are none.
        peers: names of the other runtimes, keys of ``PEERS``.
        peer_threads: number of threads of each of them.
        feeds: one array per input of the module.
        rounds: least number of rounds.
        exactly: whether to stop after ``rounds``; otherwise rounds continue until they have taken two seconds.
        bound: the model's inputs whose values were fixed when the module was compiled.
        noise: whether inputs of the module stand for random operators of the model.
    """

    module: Path
    signature: Signature | None
    device: str
    workers: int | None
    model: Path | None
    peers: tuple[str, ...]
    peer_threads: int
    feeds: Mapping[str, Array]
    rounds: int
    exactly: bool
    bound: tuple[BoundInput, ...] = ()
    noise: bool = False


@dataclass(frozen=True)
class BenchResults:
    """What was measured of a module and the other runtimes.

    Attributes:
        samples: times by name, those of the module under ``SELF``, and on a GPU those without transfers under
            ``ON_DEVICE``.
        errors: relative errors of the module and its peers to what the model means, by name; empty without peers, or if
            no reference runs the model.
    """

    samples: dict[str, Samples]
    errors: dict[str, float]


def time_in_worker(runs: BenchRuns) -> BenchResults:
    """Time the runs in a worker process.

    Raises:
        CompileError: if the worker crashes, takes too long or runs out of memory.
        SartorError: if a runtime raises one.
    """
    timeout = TIMEOUT + (_ROUND_TIMEOUT * runs.rounds if runs.exactly else 0.0)
    with open_pool(1, machine_turns()) as (pool, _):
        (results,) = call(pool, time_runs, {"runs": [runs]}, "timing", timeout, quiet=True)
        return results


def time_sizes_in_worker(runs: Sequence[BenchRuns]) -> list[BenchResults]:
    """As ``time_in_worker``, of one module with inputs of several sizes: each runtime has one session for all."""
    first = runs[0]
    timeout = TIMEOUT + len(runs) * (_SIZE_TIMEOUT + (_ROUND_TIMEOUT * first.rounds if first.exactly else 0.0))
    with open_pool(1, machine_turns()) as (pool, _):
        return call(pool, time_runs, {"runs": runs}, "timing", timeout, quiet=True)


def time_runs(runs: Sequence[BenchRuns]) -> list[BenchResults] | WorkerError:
    """Worker side of ``time_in_worker`` and ``time_sizes_in_worker``: runs differ in their inputs alone."""
    try:
        return _time(runs)
    except SartorError as error:
        return WorkerError(error)


def _time(runs: Sequence[BenchRuns]) -> list[BenchResults]:
    model = runs[0].model
    if model is not None:
        # Peers would read whatever external data it names, wherever that is.
        check_files(model)
    with _fed(runs[0]) as fed:
        return _timed([replace(run, model=fed.model) for run in runs])


@contextmanager
def _fed(runs: BenchRuns) -> Iterator[BenchRuns]:
    """The runs, on a copy of the model whose random operators are inputs, if it has some: all get the same numbers."""
    model = load_model(runs.model) if runs.model is not None and runs.noise else None
    if model is None:
        yield runs
        return
    with workspace() as folder:
        copy = folder / "model.onnx"
        copy.write_bytes(model.SerializeToString())
        yield replace(runs, model=copy)


def _timed(runs: Sequence[BenchRuns]) -> list[BenchResults]:
    first = runs[0]
    session = Session(
        first.module, device=first.device, threads=first.workers, signature=first.signature, keep_states=False
    )
    with session:
        session.settle(_SETTLE_SECONDS)
        references = {name: PEERS[name](first.model, threads=first.peer_threads) for name in first.peers}
        return [_timed_once(session, references, run) for run in runs]


def _timed_once(session: Session, references: Mapping[str, Peer], runs: BenchRuns) -> BenchResults:
    def whole() -> list[Array]:
        return session.run(None, dict(runs.feeds))

    feeds = _whole_feeds(runs)
    peers = {name: partial(reference, feeds) for name, reference in references.items()}
    _warn_of_another_network(whole, peers, runs)
    callables: dict[str, Callable[[], object]] = {SELF: whole}
    if not session.device.host_memory:
        arrays = {name: session.to_device(feed) for name, feed in runs.feeds.items()}
        callables[ON_DEVICE] = lambda: session.run_device(None, arrays)
    callables |= peers
    seconds = 0.0 if runs.exactly else _DEFAULT_SECONDS
    if not runs.peers:
        return BenchResults(time_interleaved(callables, min_rounds=runs.rounds, min_seconds=seconds), {})
    samples = time_interleaved(callables, min_rounds=runs.rounds, min_seconds=seconds, block=BLOCK, pause=PAUSE)
    return BenchResults(samples, _errors(whole, peers, runs))


def _errors(
    own: Callable[[], list[Array]], peers: Mapping[str, Callable[[], list[Array]]], runs: BenchRuns
) -> dict[str, float]:
    assert runs.model is not None
    return errors_of({SELF: own, **peers}, runs.model, _whole_feeds(runs), runs.peer_threads)


def _warn_of_another_network(
    own: Callable[[], list[Array]], peers: Mapping[str, Callable[[], list[Array]]], runs: BenchRuns
) -> None:
    """Say where times do not compare, as the file is not the model that the module was compiled from."""
    for name, peer in peers.items():
        if difference := difference_of(own(), peer()):
            _LOG.warning(
                "%s computes something else from '%s' than '%s' does on the same inputs (%s): times compare only with "
                "the model that the module was compiled from",
                name,
                runs.model,
                runs.module,
                difference,
            )


def _whole_feeds(runs: BenchRuns) -> dict[str, Array]:
    """The inputs of the model's file."""
    return {**runs.feeds, **bound_feeds(runs.bound)}
