"""Kept imports are forgotten where a check of the rewritten model fails, whatever is compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from sartor import pipeline
from sartor.config import CompileConfig
from sartor.errors import RewriteError
from sartor.frontend.imported_model import Origin
from sartor.profiling.compilation.bench import Bench
from sartor.profiling.compilation.made_plan import PlanTask
from sartor.several import making, switching
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.selection.problem.cost import Objective

KEYS = {name: name[0] * 80 for name in ("first", "other")}


def compiled(folder: Path) -> None:
    machines = Mock(are_elsewhere=False)
    pipeline._compile_on(machines, Path("m"), folder / "m.vmfb", CompileConfig(), Mock(), Mock())


def of_several(folder: Path) -> None:
    bench = Bench(Mock(), folder, Mock(), Mock(), Mock())
    making.tuned_plan(PlanTask(Path("m"), folder / "m.vmfb", CompileConfig(), bench, {}))


def switched(folder: Path) -> None:
    config = CompileConfig(objective=Objective.COLD_LATENCY)
    switching._compile(Path("m"), folder / "m.vmfb", config, Mock(), Mock())


@pytest.mark.parametrize(("module", "compile_"), [(pipeline, compiled), (making, of_several), (switching, switched)])
def test_imports_whose_rewrites_are_wrong_are_forgotten(
    module: Any, compile_: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with equalised channels as well, which are other imports."""
    kept = KeptValues(tmp_path / "imports")
    for key in KEYS.values():
        kept.keep(key, b"", [], [])
    imported = {name: Mock(origin=Origin(b"", (), key), external=()) for name, key in KEYS.items()}

    def checked(_: object, __: object, bench: Bench, **___: object) -> None:
        bench.imported.append(imported["other"])
        raise RewriteError("it is wrong")

    monkeypatch.setattr(KeptValues, "of_imports", lambda: kept)
    monkeypatch.setattr(module, "import_network", lambda *_: imported["first"])
    monkeypatch.setattr(module, "check_files", Mock())
    monkeypatch.setattr(module, "find_variants", checked)
    for name in ("load_search", "_check", "heeding_permissions"):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, lambda *given, **_: given[0])
    if hasattr(module, "open_workspace"):
        monkeypatch.setattr(module, "open_workspace", lambda *_, **__: nullcontext((Mock(), tmp_path)))
        monkeypatch.setattr(module, "Store", MagicMock())
    with pytest.raises(RewriteError):
        compile_(tmp_path)
    assert not any(map(kept.may_have, KEYS.values()))
