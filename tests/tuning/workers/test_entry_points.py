"""Workers find functions by names that follow from the functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest

from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.workers import entry_points
from sartor.tuning.workers.entry_points import entry_point


def test_the_name_leads_back_to_the_function() -> None:
    module, name = entry_point(entry_point).split(":")
    assert getattr(import_module(module), name) is entry_point
    assert module == entry_points.__name__


def test_what_a_worker_cannot_import_is_refused() -> None:
    def within() -> None:
        pass

    refused: list[Callable[..., object]] = [within, lambda: None, Tuner.measure]
    for function in refused:
        with pytest.raises(ValueError, match="cannot import"):
            entry_point(function)


def test_functions_of_the_program_itself_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_point, "__module__", "__main__")
    with pytest.raises(ValueError, match="__main__"):
        entry_point(entry_point)
