"""Where a scheduler is, as a user names it: an address, or a file that may not be there yet, or is another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.tuning.cluster.link import Scheduler


@pytest.mark.parametrize("text", ["{}", "[]", "7", '{"address": 7}', '{"address": "nowhere"}'])
def test_a_file_without_an_address_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(UsageError, match="address"):
        _ = Scheduler.of(str(file)).arguments


@pytest.mark.parametrize("text", [None, "", '{"address": "tcp://127'])
def test_a_file_that_is_not_written_to_its_end_may_be_so_later(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(OSError, match=r"scheduler's file '.*' is not"):
        _ = Scheduler.of(str(file)).arguments
    file.write_text('{"address": "tcp://127.0.0.1:8786"}')
    assert Scheduler.of(str(file)).arguments == {"scheduler_file": str(file)}
