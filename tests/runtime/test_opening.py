"""Opening a model: what is undone if it does not load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.errors import DeviceError
from sartor.runtime import opening
from sartor.runtime.driver.device import open_device
from sartor.runtime.manifest import Manifest
from sartor.runtime.mapping.overlap import Overlap
from sartor.runtime.opening import Place, _choose_device
from sartor.runtime.session import Session


def test_reading_ahead_ends_if_the_program_does_not_load(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Overlap] = []

    def refuse(*_: object) -> None:
        assert not stopped
        raise DeviceError("the device has no memory")

    monkeypatch.setattr(opening, "_load", refuse)
    monkeypatch.setattr(Overlap, "stop", lambda overlap, **_: stopped.append(overlap))
    with pytest.raises(DeviceError, match="has no memory"):
        Session(model)
    assert len(stopped) == 1


def test_a_session_that_opened_reads_on(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Overlap] = []
    monkeypatch.setattr(Overlap, "stop", lambda overlap, **_: stopped.append(overlap))
    session = Session(model)
    assert stopped == []
    session.close()
    assert len(stopped) == 1


def test_by_default_a_session_has_the_threads_with_which_its_module_is_fastest(
    make_manifest: Callable[..., Manifest],
) -> None:
    fastest_alone, unknown = make_manifest(plan={"workers": 1}), make_manifest(plan={})
    assert _choose_device(Place(None, None, 0), fastest_alone) is open_device("cpu", 1)
    assert _choose_device(Place("cpu", 3, 0), fastest_alone) is open_device("cpu", 3)
    assert _choose_device(Place(None, None, 0), unknown) is open_device("cpu")
