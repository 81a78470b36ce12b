"""The long check of all kernels: what it keeps, and that it goes on where it was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from sartor.codegen.ir.layer import Layer
from tools.cuda import __main__ as command
from tools.cuda import record
from tools.cuda.ptx import Assembled
from tools.cuda.record import Kernel, Record

GOOD = Kernel("good", Assembled("good", 96, 0, 0), None)
BAD = Kernel("bad", Assembled("bad", 255, 8, 16), "16 bytes spilled")


def test_a_record_is_read_again_unless_the_code_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cuda.json"
    Record.at(path).add("sm_80 one", [GOOD, BAD])
    found = Record.at(path)
    assert found.has("sm_80 one")
    assert found.summary("sm_80") == "2 kernels, at most 255 registers, 1 with spills, 1 faults"
    assert found.faults("") == ["bad: 16 bytes spilled"]
    assert found.faults("sm_90") == []
    monkeypatch.setattr(record, "_sources", lambda: "other")
    assert not Record.at(path).kernels


@pytest.fixture(autouse=True)
def _three_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [Mock(), Mock(), Mock()]
    for index, each in enumerate(layers):
        each.name = f"layer{index}"
    monkeypatch.setattr(command, "_layers", lambda name: iter(layers))


def test_the_check_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def check(layer: Layer, architecture: str, routine: str) -> Iterator[tuple[str, Assembled, str | None]]:
        asked.append(layer.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        yield GOOD.name, GOOD.assembled, GOOD.fault

    monkeypatch.setattr(command, "check", check)
    given = ["--arch", "sm_86", "--model", "transformer", "-o", str(tmp_path / "cuda.json")]
    with pytest.raises(KeyboardInterrupt):
        command.main(given)
    assert command.main(given) == 0
    assert asked == ["layer0", "layer1", "layer1", "layer2"]
    assert "3 kernels, at most 96 registers" in capsys.readouterr().out


def test_a_fault_is_printed_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "check", lambda *_: iter([(BAD.name, BAD.assembled, BAD.fault)]))
    assert command.main(["--arch", "sm_86", "--model", "transformer"]) == 1
    assert "bad: 16 bytes spilled" in capsys.readouterr().out
