"""Readers of damaged files: the function or command that reads each kind of file."""

from __future__ import annotations

import io
import math
import signal
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

from onnx import ModelProto

import sartor.cli.main
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import SartorError, UsageError
from sartor.frontend import import_job
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.value_ranges import quantised_by
from sartor.onnx_model.graphs.infer import without_weights
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.preparing.simplify_worker import simplify_bytes
from sartor.onnx_model.reading.load import load_model
from sartor.planning.recorded_recipe import check_plan, precision_of, recipe_of_plan
from sartor.reference.random_inputs import sample_inputs
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.samples.feeds import read_archive
from sartor.samples.given_samples import Samples
from sartor.tuning.records.plan import Plan
from sartor.tuning.workers.protocol import WorkerError
from tests.hostile.container_mutations import damage_archive, damage_array, damage_database
from tests.hostile.corpus import imported_model
from tests.hostile.model_mutations import damage_model
from tests.hostile.mutations import Mutate, damage_bytes, damage_json

_EXIT_CODES = (0, 1, 2, 3, 4, 5, 6)
_SAMPLES_READ = 50
# Shorter than the limit of the separate process that this replaces.
_SIMPLIFY_SECONDS = 15.0
# Inputs of a damaged model may be larger than the test's memory; larger ones are not sampled.
_SAMPLED_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Subject:
    """A reader of one kind of file, and the mutation of its inputs.

    Attributes:
        kind: folder of the corpus.
        suffix: suffix of the damaged file.
        damage: the mutation of the file's bytes.
        read: reader that takes the file and the corpus; raises SartorError if it refuses the file.
        share: fraction of all inputs.
    """

    kind: str
    suffix: str
    damage: Mutate
    read: Callable[[Path, Path], None]
    share: float


class CommandError(Exception):
    """A command ended in a way that is not allowed."""


def _command(*arguments: object) -> None:
    """Run ``sartor`` in this process.

    Raises:
        UsageError: if the command failed with an error message.
        CommandError: if the exit code is unknown, the command printed a traceback, or it failed without a message.
    """
    out, err = io.StringIO(), io.StringIO()
    with mock.patch("sys.argv", ["sartor", *map(str, arguments)]), redirect_stdout(out), redirect_stderr(err):
        try:
            sartor.cli.main.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    said = err.getvalue()
    if code not in _EXIT_CODES or "Traceback" in said or (code and "rror" not in said):
        raise CommandError(f"exit code {code}: {said[-2000:]}")
    out.getvalue().encode("utf-8", "backslashreplace")
    if code:
        raise UsageError(said)


def _prepare(path: Path, corpus: Path) -> None:
    model = load_model(path)
    if any(tensor.external_data for tensor in model.graph.initializer):
        raise CommandError("a loaded model refers to other files")
    prepared = prepare(model, simplifier=_not_simplified)
    if sum(math.prod(each.shape) for each in prepared.inputs) < _SAMPLED_ELEMENTS:
        sample_inputs(without_weights(prepared.model), 0)


def _not_simplified(model: ModelProto) -> tuple[str, ...]:
    return ()


class _InProcess:
    """onnxslim in this process, because a separate process takes a second to start."""

    def __enter__(self) -> _InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def simplified(self, model: ModelProto) -> ModelProto | None:
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, _SIMPLIFY_SECONDS)
        try:
            return ModelProto.FromString(simplify_bytes(model.SerializeToString()))
        except Exception:  # noqa: BLE001 any error would end the separate process
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)


def _interrupt(*_: object) -> None:
    raise TimeoutError


def _import(path: Path, corpus: Path) -> None:
    with mock.patch.object(import_job, "SimplifyProcess", _InProcess):
        imported = import_job.run_import(path, {}, None, path.parent)
    for made in ("weights.bin", "prepared.onnx"):
        path.with_name(made).unlink(missing_ok=True)
    if isinstance(imported, WorkerError):
        raise imported.error


@cache
def _planned(corpus: Path) -> tuple[ImportedModel, Candidates]:
    imported = imported_model(corpus / "planned.onnx")
    return imported, find_candidates(imported, CompileConfig(threads=1).planning)


def _plan(path: Path, corpus: Path) -> None:
    plan = Plan.load(path)
    imported, candidates = _planned(corpus)
    check_plan(plan, CompileConfig().target, CompileConfig().bindings)
    config = replace(CompileConfig(), threads=plan.threads, precision=precision_of(plan))
    ranged = quantised_by(plan.ranges, imported)
    recipe = recipe_of_plan(plan, ranged, candidates.variants, config.target)
    recipe.manifest(ranged, config.header)


def _manifest(path: Path, corpus: Path) -> None:
    manifest = Manifest.from_json(path.read_text(encoding="utf-8", errors="replace"))
    manifest.to_json()
    with mock.patch("sartor.cli.commands.inspect.read_manifest", return_value=manifest):
        _command("inspect", path)


def _module(path: Path, corpus: Path) -> None:
    _command("inspect", path)


def _database(path: Path, corpus: Path) -> None:
    refused: list[SartorError] = []
    steps: Sequence[Sequence[object]] = (
        ("list",),
        ("show",),
        ("prune", "--max-size", "20KiB"),
        ("export", path.with_suffix(".out")),
    )
    for step in steps:
        try:
            _command("db", *step, "--tuning-db", path)
        except SartorError as error:
            refused.append(error)
    for suffix in (".out", ".db-wal", ".db-shm", ".db-journal"):
        path.with_suffix(suffix).unlink(missing_ok=True)
    if refused:
        raise refused[0]


def _import_database(path: Path, corpus: Path) -> None:
    target = path.with_name("into.db")
    try:
        _command("db", "import", path, "--tuning-db", target)
    finally:
        for left in path.parent.glob("into.db*"):
            left.unlink()
        for suffix in (".db-wal", ".db-shm"):
            path.with_suffix(suffix).unlink(missing_ok=True)


def _samples(path: Path, corpus: Path) -> None:
    samples = Samples.open(path, [TensorSpec("x", "float32", (1, 3, 4))])
    for number, _ in enumerate(samples.since(0)):
        if number == _SAMPLES_READ:
            break


def _feed(path: Path, corpus: Path) -> None:
    _command("run", corpus / "module" / "stock.vmfb", "--input", f"x={path}", "--threads", 1)


def _archive_feeds(path: Path, corpus: Path) -> None:
    read_archive(path, [TensorSpec("x", "float32", (1, 3, 4))])


def _damage_module(data: bytes, random: Random) -> bytes:
    """Return a module with damage in its manifest, a small part of the file, or anywhere."""
    start, end = data.find(b'{"devices"'), data.rfind(b'"}')
    if start < 0 or random.random() < 0.5:
        return damage_bytes(data, random)
    content = bytearray(data)
    for _ in range(random.randint(1, 8)):
        content[random.randrange(start, end)] = random.choice((*b'"{}[]:,0129-e\\ \x00\xff', random.randrange(256)))
    return bytes(content)


SUBJECTS = (
    Subject("model", ".onnx", damage_model, _prepare, 0.52),
    Subject("model", ".onnx", damage_model, _import, 0.04),
    Subject("plan", ".json", damage_json, _plan, 0.08),
    Subject("manifest", ".json", damage_json, _manifest, 0.06),
    Subject("module", ".vmfb", _damage_module, _module, 0.06),
    Subject("database", ".db", damage_database, _database, 0.04),
    Subject("database", ".db", damage_database, _import_database, 0.04),
    Subject("export", ".jsonl", damage_bytes, _import_database, 0.02),
    Subject("arrays", ".npy", damage_array, _samples, 0.04),
    Subject("arrays", ".npz", damage_archive, _samples, 0.04),
    Subject("arrays", ".npy", damage_array, _feed, 0.03),
    Subject("arrays", ".npz", damage_archive, _archive_feeds, 0.03),
)
