"""What waits or keeps to a time asks a clock that nobody sets; the time of day is for what people read."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sartor.costing.time_budget import TimeBudget
from sartor.workspace import workspace

_REPOSITORY = Path(__file__).parents[2]
# When measurements were made, how old they are, how old a file is whose process cannot be asked, whether a model was
# written so lately that its times may not tell when it is written again, and whether source was changed since a process
# began.
_TIME_OF_DAY = {
    "codegen/source_digest.py",
    "plugin/cli/database/follow.py",
    "plugin/cli/database/options.py",
    "plugin/cli/database/prune.py",
    "plugin/cli/database/show.py",
    "plugin/frontend/kept_import.py",
    "plugin/workspace.py",
    "tuning/records/measurement.py",
    "tuning/store/store.py",
}
_NAMES = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "datetime.fromtimestamp"}


def _askers() -> Iterator[str]:
    """Files of the package that ask for the time of day, or turn it into a date."""
    for room in ("codegen", "dialect_passes", "plugin", "runtime", "tuning"):
        for path in sorted((_REPOSITORY / room).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.Attribute) and ast.unparse(node) in _NAMES for node in ast.walk(tree)):
                yield path.relative_to(_REPOSITORY).as_posix()


def test_only_what_is_kept_for_people_has_the_time_of_day() -> None:
    found = set(_askers())
    assert found <= _TIME_OF_DAY
    assert "tuning/records/measurement.py" in found


@pytest.mark.parametrize("jump", [-1e6, 1e6], ids=["back", "forth"])
def test_a_clock_that_jumps_takes_nothing_from_a_budget(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    real = time.time
    budget = TimeBudget.of(60.0)
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    assert 50.0 < budget.end - time.monotonic() <= 60.0
    # What is worked in does not count as old, whoever makes another one.
    with workspace() as folder, workspace():
        assert folder.exists()
