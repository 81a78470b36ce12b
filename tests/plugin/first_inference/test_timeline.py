"""Pictures of first inferences."""

from __future__ import annotations

import json
import xml.etree.ElementTree as tree
from dataclasses import asdict
from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.first_inference.sample import FirstRun, typical
from sartor.first_inference.timeline import bars_of, draw, read_cold

_RUN = FirstRun(0.1, 0.2, 0.05, (0.04, 0.03, 0.02), (("read", -0.01, 0.01, 1 << 22), ("move", 0.1, 9.0, 0)))


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
    root = tree.fromstring(draw("first & last", bars))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(bars)
    assert titles[0] == "start: 0.00 to 100.00 ms"
    assert any(title and title.endswith("4.0 MiB") for title in titles)
    assert tree.fromstring(draw("nothing", [])) is not None


def test_times_come_back_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cold.json"
    sample = {"runtime": "sartor", "files": "dropped", "typical": asdict(_RUN), "samples": []}
    path.write_text(json.dumps({"cold": [sample]}), encoding="utf-8")
    assert read_cold(path) == {("sartor", "dropped"): _RUN}


@pytest.mark.parametrize("text", ["", "[]", '{"runs": []}', '{"cold": [{"runtime": "x", "files": "y"}]}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"other\.json' is not what 'sartor bench --cold --json' writes"):
        read_cold(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_cold(tmp_path / "none.json")


def test_the_typical_run_is_the_middle_one() -> None:
    runs = [FirstRun(0.0, 0.0, load, (1.0,)) for load in (3.0, 1.0, 2.0)]
    assert typical(runs).load == 2.0
