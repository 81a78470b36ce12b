"""The tier of unit tests: those that neither compile nor start a process, which ``make unit`` runs in two minutes.

In these rooms most do neither. A test that begins to is left to ``make test``, which runs all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sartor.codegen.mlir import iree_compiler

ROOMS = (
    *("codegen/analysis", "codegen/ir", "codegen/kernels/loops", "codegen/linking", "codegen/subgraphs"),
    *("plugin/comparison", "plugin/onnx_model", "plugin/planning", "plugin/reference", "plugin/report"),
    *("plugin/cli/options", "plugin/cli/tables", "plugin/samples", "plugin/open_sizes", "tools"),
    *("runtime/driver", "runtime/files", "runtime/mapping", "runtime/several"),
    *("tuning/calibration", "tuning/errors", "tuning/records", "tuning/search", "tuning/selection", "tuning/store"),
)
_TESTS = Path(__file__).parent


def is_unit(path: Path) -> bool:
    """Whether a file of tests is in one of the rooms."""
    return path.relative_to(_TESTS).as_posix().startswith(tuple(f"{room}/" for room in ROOMS))


@contextmanager
def neither_compiling_nor_starting() -> Iterator[None]:
    """Skip the test that compiles, or starts a process."""

    def skip(*_: object, **__: object) -> None:
        pytest.skip("it compiles or starts a process, as `make test` lets it")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iree_compiler, "_invoked", skip)
        patch.setattr(subprocess.Popen, "__init__", skip)
        yield
