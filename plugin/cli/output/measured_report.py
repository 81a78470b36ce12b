"""What a report shows that is measured for it: times beside other runtimes, and layers' errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.comparison.bench_job import SELF, BenchRuns, time_in_worker, time_sizes_in_worker
from sartor.comparison.compare_job import Question, ask
from sartor.comparison.layer_errors import LayerError
from sartor.comparison.model_comparison import layered_manifest, open_comparison, usual_error
from sartor.devices import CPU, is_cpu
from sartor.errors import UsageError
from sartor.onnx_model.rewrites.number_types.widen_halves import widens_halves
from sartor.policies import DEFAULT_MAX_ERROR
from sartor.profiling.layers.dispatch_job import dispatches_in_worker
from sartor.progress import Progress
from sartor.report.subject import LayerErrors, Subject, TimesOfSize, with_dispatches
from sartor.runtime.driver.device import device_settings
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.manifest import Manifest
from sartor.runtime.module_facts import (
    check_first_part,
    inference_functions,
    module_manifest,
    module_signature,
    module_weights,
    session_signature,
    session_threads,
)
from sartor.runtime.several.choice import PlanChoice
from sartor.tuning.workers.calls import open_pool
from sartor.tuning.workers.sharing import machine_turns

Feeds = Mapping[str, Array]
"""An array per input."""

_ROUNDS = 20
# A round is a block of runs where there are peers, and there are many sizes.
_ROUNDS_OF_A_SIZE = 8


@dataclass(frozen=True)
class Measured:
    """A module that is measured, and with what.

    Attributes:
        path: its file.
        model: the ONNX file that it was compiled from, which other runtimes and the reference run; None if not given.
        choice: of a file with several plans, the one that the report is about.
        threads: as for ``Session``.
        feeds: one array per input.
    """

    path: Path
    model: Path | None
    choice: PlanChoice
    threads: int | None
    feeds: Mapping[str, Array]


def with_times(subject: Subject, measured: Measured, peers: tuple[str, ...]) -> Subject:
    """The subject with times of whole inferences, interleaved with those of peers, and of its layers within one.

    Raises:
        UsageError: if this machine does not run the level of the plan.
        SartorError: if a runtime raises one.
    """
    manifest = subject.manifest
    _check_level(measured, manifest)
    signature = module_signature(measured.path, choice=measured.choice)
    if not manifest.segments:
        check_first_part(measured.path, manifest.devices[0])
    runs = _runs(measured, manifest, signature, peers)
    samples = time_in_worker(runs).samples
    subject = replace(subject, times={name: runtime.seconds for name, runtime in samples.items()})
    if manifest.segments or manifest.successor is not None:
        # Of two plans the page shows that for the first inference, and timed is the one that takes over.
        return subject
    return _with_dispatches(subject, runs, inference_functions(manifest, signature)[-1], samples[SELF].median)


def with_sizes(
    subject: Subject, measured: Measured, peers: tuple[str, ...], feeds: Sequence[tuple[Mapping[str, int], Feeds]]
) -> Subject:
    """The subject, a module for any size, with times of inferences beside those of peers, for each of several sizes.

    Args:
        subject: of the page.
        measured: the module.
        peers: names of other runtimes.
        feeds: sizes by the names of dimensions, and an array per input that has them.

    Raises:
        SartorError: if a runtime raises one.
    """
    signature = module_signature(measured.path, choice=measured.choice)
    runs = _runs(measured, subject.manifest, signature, peers)
    runs = replace(runs, rounds=_ROUNDS_OF_A_SIZE)
    results = time_sizes_in_worker([replace(runs, feeds=arrays) for _, arrays in feeds])
    medians = [{name: samples.median for name, samples in taken.samples.items()} for taken in results]
    by_size = [TimesOfSize(sizes, seconds) for (sizes, _), seconds in zip(feeds, medians, strict=True)]
    return replace(subject, by_size=by_size)


def _runs(measured: Measured, manifest: Manifest, signature: Signature, peers: tuple[str, ...]) -> BenchRuns:
    """The module, and other runtimes if their model is given."""
    kind = manifest.devices[0]
    best = measured.threads or session_threads(measured.path)
    return BenchRuns(
        module=measured.path,
        signature=session_signature(measured.path, signature),
        device=measured.choice.device or kind,
        workers=device_settings(CPU, best).threads if is_cpu(kind) else None,
        model=measured.model,
        peers=peers if measured.model else (),
        peer_threads=device_settings(CPU, measured.threads).threads,
        feeds=measured.feeds,
        rounds=_ROUNDS,
        exactly=False,
        bound=manifest.bound,
        noise=bool(manifest.noise),
    )


def _check_level(measured: Measured, manifest: Manifest) -> None:
    choice = measured.choice
    here = module_manifest(measured.path, replace(choice, level=None)) if choice.level is not None else None
    if here is not None and here.levels != manifest.levels:
        raise UsageError(f"this machine runs the level {', '.join(here.levels)}, so {choice.level} cannot be timed")


def _with_dispatches(subject: Subject, runs: BenchRuns, function: Signature, seconds: float) -> Subject:
    """The subject with the times of its layers, of which a whole inference takes ``seconds``."""
    arrays = [runs.feeds[spec.name] for spec in function.inputs]
    weights = module_weights(runs.module, subject.manifest)
    settings = {"device": runs.device, "threads": runs.workers, "parameters": weights}
    timed = {"path": runs.module, "entry": function.entry, "inputs": arrays, **settings}
    with open_pool(1, machine_turns()) as (pool, _):
        statistics = dispatches_in_worker(pool, timed)
    return with_dispatches(subject, statistics.without_plans().dispatches, seconds)


def with_errors(subject: Subject, measured: Measured, model: Path, progress: Progress) -> Subject:
    """The subject with its layers' errors against the reference, and why routines do not support them.

    Raises:
        UsageError: if the module has no layers, or was compiled from another model.
    """
    path, choice, manifest = measured.path, measured.choice, subject.manifest
    layered_manifest(path, choice)
    usual, signature = usual_error(path, choice), module_signature(path, choice=choice)
    narrow, widens = usual > DEFAULT_MAX_ERROR, widens_halves(manifest.devices)
    with open_pool(1) as (pool, _):
        right = ask(pool, Question(model, signature, measured.feeds, usual, None, narrow, manifest.bound, widens))
    opened = open_comparison(
        path, model, measured.feeds, right.shapes, choice=choice, threads=measured.threads, progress=progress
    )
    with opened as comparison:
        errors = {layer.layer: _errors(layer) for layer in comparison.table()}
        return replace(subject, errors=errors, rejections=comparison.rejections)


def _errors(layer: LayerError) -> LayerErrors:
    return LayerErrors(layer.error, layer.before, layer.alone)
