"""A report of what was just compiled is made without a database that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.report.stored import with_readable, with_stored
from tests.plugin.report.made import subject


def test_a_database_that_is_none_is_told_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    database = tmp_path / "tuning.db"
    database.write_bytes(b"SQLite format 3\0" + bytes(200))
    plain = subject()
    with pytest.raises(UsageError):
        with_stored(plain, database)
    assert with_readable(plain, database) is plain
    assert "the report lacks what was measured: " in caplog.text
