"""How fast a file is read for the first time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sartor.runtime.mapping.pages import CAN_MOVE
from sartor.tuning.measuring.runs import cold_read as module
from sartor.tuning.measuring.runs.cold_read import cold_read_bandwidth, drop_page_cache
from sartor.tuning.store.store import Store

needs_fadvise = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="files cannot be dropped from memory here")


@needs_fadvise
def test_it_is_measured_once_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    monkeypatch.setattr(module, "_BYTES", 4 << 20)
    with Store.open(tmp_path / "t.db") as store:
        found = cold_read_bandwidth(store, folder)
        assert found is not None
        assert found > 0
        monkeypatch.setattr(module, "_samples", lambda folder: pytest.fail("measured again"))
        assert cold_read_bandwidth(store, folder) == found
    assert list(folder.iterdir()) == []


def test_a_system_that_cannot_forget_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    monkeypatch.setattr(module, "_BYTES", 1 << 20)
    with Store.open(tmp_path / "t.db") as store:
        assert cold_read_bandwidth(store, tmp_path) is None


@needs_fadvise
def test_what_is_forgotten_is_still_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert drop_page_cache(path)
    assert path.read_bytes() == b"content"


@needs_fadvise
@pytest.mark.parametrize("can_move", [True, False])
def test_a_sample_reads_all_of_the_file(can_move: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, touched = tmp_path / "file", list[int]()
    path.write_bytes(bytes(5 << 20))
    monkeypatch.setattr(module, "CAN_MOVE", can_move and CAN_MOVE)
    monkeypatch.setattr(module, "_touch", lambda content: touched.append(len(content)))
    assert module._read(path) > 0
    assert touched == [5 << 20]
