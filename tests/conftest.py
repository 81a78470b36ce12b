"""Tiny models taken through the front end, once for all tests."""

from __future__ import annotations

import functools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import onnx
import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.variants import routine
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf, imported_model
from tests.processor_time import ProcessorTimes
from tests.thorough import mark_thorough
from tests.tiny_models import MODELS
from tests.units import is_unit, neither_compiling_nor_starting
from tests.warm_processes import ending_processes, warm_processes

# Tests run side by side, in any number of copies: they take turns with nobody.
_CACHE = tempfile.TemporaryDirectory(prefix="tests-of-sartor-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name
# A shell has what it starts in the background ignore Ctrl-C, which tests send; some would wait for its effect for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that take minutes, the longest first. Where processes share the tests, one that began last would be waited for
# while the others have nothing left to do.
_LONG = (
    "docs/test_guide.py",
    "tuning/cluster/test_cluster.py",
    "plugin/test_faults.py",
    "codegen/routines/test_kernels.py",
    "codegen/routines/test_contract.py",
    "plugin/test_planted_faults.py",
    "plugin/test_low_precision.py",
    "docs/test_devices_and_machines.py",
    "codegen/routines/test_low_precision.py",
    "plugin/cli/test_constraints.py",
    "plugin/test_failing_fusions.py",
    "plugin/test_pipeline.py",
    "plugin/several/test_compilation.py",
    "codegen/routines/test_dots.py",
    "benchmarks/test_conformance.py",
    "plugin/test_childnet_pipeline.py",
    "benchmarks/record/test_record.py",
    "plugin/profiling/layerwise/test_layer_verdict.py",
    "plugin/precision/test_eligibility.py",
    "plugin/test_quantised_networks.py",
    "plugin/onnx_model/test_onnx_runtime_files.py",
    "plugin/open_sizes/test_compilation.py",
    "plugin/test_linking_faults.py",
    "tuning/measuring/test_tuner.py",
    "tuning/measuring/test_checking.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--unit`` leaves out tests that compile or start a process."""
    parser.addoption("--unit", action="store_true", help="run unit tests alone: what neither compiles nor starts")


def pytest_configure(config: pytest.Config) -> None:
    """Tell at the end which files took most of the processors' time."""
    config.pluginmanager.register(ProcessorTimes())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--unit``, files outside the rooms of unit tests are not read."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if config.getoption("--unit") and is_test and not is_unit(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files; tests that ask for the fixture ``vulkan`` are chosen by ``-m vulkan``."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    renamed = mark_thorough(items)
    if renamed and not any("::" in arg for arg in config.args):
        raise pytest.UsageError(f"tests/thorough.py names tests that there are not: {', '.join(sorted(renamed))}")
    for item in items:
        if "vulkan" in getattr(item, "fixturenames", ()):
            item.add_marker("vulkan")


@pytest.fixture(scope="session", autouse=True)
def nothing_kept() -> Iterator[None]:
    """Nothing of an earlier compilation is used: tests that compare bytes compare what the compiler makes twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KeptModules, "of_user", lambda: KeptModules(Path(_CACHE.name) / "modules", limit=0))
        patch.setattr(KeptCode, "of_user", lambda: KeptCode(Path(_CACHE.name) / "code", limit=0))
        patch.setattr(KeptValues, "of_imports", lambda: KeptValues(Path(_CACHE.name) / "imports", limit=0))
        with ending_processes():
            yield


@pytest.fixture(scope="session", autouse=True)
def units_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--unit``, tests neither compile nor start a process."""
    with neither_compiling_nor_starting() if request.config.getoption("--unit") else nullcontext():
        yield


NOTE_FAULT = routine.note_fault


@pytest.fixture(scope="session", autouse=True)
def faults_end_tests() -> Iterator[None]:
    """A routine that fails by a fault of its own is not left out, as it is for users, but fails the test."""

    def end(_name: str, _task: Task, error: ValueError) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routine, "note_fault", end)
        yield


# What processes do when they start, end or are disturbed is their subject.
_OF_PROCESSES = (
    "hostile",
    "plugin/frontend/test_onnx_parts.py",
    "plugin/onnx_model/preparing/test_simplify.py",
    "plugin/test_full_places.py",
    "plugin/test_workspace.py",
    "tuning/cluster",
    "tuning/workers",
)


@pytest.fixture(scope="module", autouse=True)
def processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Workers serve one pool after the other, but for files whose subject they are."""
    place = request.path.relative_to(Path(__file__).parent).as_posix()
    with nullcontext() if place.startswith(_OF_PROCESSES) else warm_processes():
        yield


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The ONNX file of a tiny model."""
    folder = tmp_path_factory.mktemp("tiny")

    def save(name: str) -> Path:
        path = folder / f"{name}.onnx"
        if not path.exists():
            onnx.save(MODELS[name](), path)
        return path

    return save


@pytest.fixture(scope="session")
def imported_of(model_file: Callable[[str], Path]) -> ImportedOf:
    """What the front end makes of a tiny model."""

    return functools.cache(lambda name: imported_model(model_file(name)))


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """One worker."""
    with WorkerPool(1) as opened:
        yield opened
