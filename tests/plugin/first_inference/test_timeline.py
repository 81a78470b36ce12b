"""Pictures of first inferences."""

from __future__ import annotations

import json
import xml.etree.ElementTree as tree
from dataclasses import asdict
from pathlib import Path

import pytest

from sartor.cli.tables.cold_table import layers_json
from sartor.errors import UsageError
from sartor.first_inference.cold_record import ColdRecord, read_cold
from sartor.first_inference.layer_phases import LayerPhases, Phases
from sartor.first_inference.sample import FirstRun, typical
from sartor.first_inference.timeline import Panel, bars_of, draw, layer_bars

_RUN = FirstRun(0.1, 0.2, 0.05, (0.04, 0.03, 0.02), (("read", -0.01, 0.01, 1 << 22), ("move", 0.1, 9.0, 0)))

_PHASES = Phases(
    (
        LayerPhases("a", 1 << 20, {"dropped": 2.0}, 1.0, 0.5),
        LayerPhases("b", 2 << 20, {"dropped": 4.0}, 8.0, 4.0),
        LayerPhases("the rest", 0, {"dropped": 0.0}, 1.0, 0.5),
    ),
    10.0,
    5.0,
)


def test_phases_follow_each_other() -> None:
    bars = list(bars_of("sartor <1>", _RUN))
    own = [bar for bar in bars if bar.lane == "sartor <1>"]
    assert [bar.label for bar in own] == ["start", "import", "open", "inference 1", "inference 2", "inference 3"]
    assert [bar.end for bar in own[:-1]] == [bar.begin for bar in own[1:]]
    assert own[-1].end == pytest.approx(0.44)
    beside = [(bar.kind, bar.begin, bar.end) for bar in bars if bar.lane != "sartor <1>"]
    assert [kind for kind, *_ in beside] == ["read", "move"]
    assert [time for _, *times in beside for time in times] == pytest.approx([0.29, 0.31, 0.4, 9.3])


def test_the_picture_is_svg_with_a_rectangle_per_bar() -> None:
    bars = list(bars_of("sartor <1>", _RUN))
    root = tree.fromstring(draw(Panel("first & last", bars), Panel("again", bars[:1])))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(bars) + 1
    assert titles[0] == "start: 0.00 to 100.00 ms"
    assert any(title and title.endswith("4.0 MiB") for title in titles)
    assert tree.fromstring(draw(Panel("nothing", []))) is not None


def test_times_come_back_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cold.json"
    sample = {"runtime": "sartor", "files": "dropped", "typical": asdict(_RUN), "samples": []}
    path.write_text(json.dumps({"cold": [sample]}), encoding="utf-8")
    assert read_cold(path) == ColdRecord({("sartor", "dropped"): _RUN}, ())
    path.write_text(json.dumps({"cold": [sample], "phases": layers_json(_PHASES)}), encoding="utf-8")
    assert read_cold(path).layers == _PHASES.layers


def test_layers_wait_for_what_is_read() -> None:
    bars = [(bar.lane, bar.label, bar.begin, bar.end) for bar in layer_bars(_PHASES.layers)]
    assert bars == [
        ("dropped: read", "a", 0.0, 2.0),
        ("dropped: executed", "a", 2.0, 3.0),
        ("dropped: read", "b", 2.0, 6.0),
        ("dropped: executed", "b", 6.0, 14.0),
        ("dropped: executed", "the rest", 14.0, 15.0),
        ("later: executed", "a", 0.0, 0.5),
        ("later: executed", "b", 0.5, 4.5),
        ("later: executed", "the rest", 4.5, 5.0),
    ]


def test_layers_that_nobody_read_wait_for_nothing() -> None:
    unread = [LayerPhases("a", 0, {}, 1.0, 1.0), LayerPhases("b", 0, {}, 2.0, 1.0)]
    first = [bar for bar in layer_bars(unread) if bar.lane == "in memory: executed"]
    assert [(bar.begin, bar.end) for bar in first] == [(0.0, 1.0), (1.0, 3.0)]


@pytest.mark.parametrize("text", ["", "[]", '{"runs": []}', '{"cold": [{"runtime": "x", "files": "y"}]}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"other\.json' is not what 'sartor bench --cold --json' writes"):
        read_cold(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_cold(tmp_path / "none.json")


def test_what_a_file_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="writes: at 'cold', it is missing"):
        read_cold(path)


def test_the_typical_run_is_the_middle_one() -> None:
    runs = [FirstRun(0.0, 0.0, load, (1.0,)) for load in (3.0, 1.0, 2.0)]
    assert typical(runs).load == 2.0


@pytest.mark.parametrize(
    "step", [[["read"], 0, 1, 1], ["read", 0, 1, float("inf")], ["read", 0, 1, 10**400], ["read", float("nan"), 1, 1]]
)
def test_steps_that_cannot_be_drawn_are_refused(step: list[object], tmp_path: Path) -> None:
    typical_run = {"start": 0.1, "imports": 0.1, "load": 0.1, "runs": [0.1], "steps": [step]}
    path = tmp_path / "cold.json"
    path.write_text(json.dumps({"cold": [{"runtime": "sartor", "files": "dropped", "typical": typical_run}]}))
    with pytest.raises(UsageError, match="is not what 'sartor bench --cold --json' writes"):
        read_cold(path)


@pytest.mark.parametrize("start", [1e306, -1e300, 10**400])
def test_times_that_nothing_takes_are_refused(tmp_path: Path, start: float) -> None:
    path = tmp_path / "cold.json"
    sample = {"runtime": "sartor", "files": "dropped", "typical": asdict(_RUN) | {"start": start}, "samples": []}
    path.write_text(json.dumps({"cold": [sample]}), encoding="utf-8")
    with pytest.raises(UsageError, match="a number of at most"):
        read_cold(path)
