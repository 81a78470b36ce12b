"""Measurements as text: nothing is lost on the way, and every line is checked."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.codegen.analysis.task_facts import task_facts
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store import export
from sartor.tuning.store.export import is_export, read_export, write_export
from sartor.tuning.store.untrusted import CLOCK_SKEW, Skipped, read_line
from tests.tuning.store.store_samples import FAILURE, MEASUREMENT

NOW = 5000.0
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
TIMES = st.lists(st.floats(min_value=5e-324, max_value=1e7), max_size=4).map(tuple)
MEASUREMENTS = st.builds(
    Measurement,
    key=st.builds(MeasurementKey, NAMES, NAMES, NAMES, NAMES, st.integers(1, 512), NAMES, NAMES),
    status=st.sampled_from([status for status in Status if status is not Status.OK]),
    samples=TIMES,
    baseline_samples=TIMES,
    error=st.none() | st.floats(min_value=0),
    message=st.text(),
    created=st.floats(0, NOW),
    packed_bytes=st.integers(0, 2**63 - 1),
    facts=st.sampled_from(["", "convolution", "pooling batch=1 kernel_height=3"]),
)


def text_of(*measurements: Measurement) -> str:
    file = io.StringIO()
    assert write_export(file, measurements) == len(measurements)
    return file.getvalue()


def changed(**values: Any) -> str:
    """The text of a measurement in which something is wrong."""
    *_, line = text_of(MEASUREMENT).splitlines()
    return json.dumps({**json.loads(line), **values})


def without(name: str) -> str:
    values = json.loads(changed())
    del values[name]
    return json.dumps(values)


def read(path: Path, content: str | bytes) -> list[Measurement | Skipped]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_export(path, NOW))


@given(MEASUREMENTS)
def test_every_measurement_comes_back_bit_by_bit(measurement: Measurement) -> None:
    header, line = text_of(measurement).splitlines()
    assert json.loads(header) == {"format": "sartor measurements", "version": 3}
    assert read_line(line.encode(), "line 2", NOW) == measurement


@pytest.mark.parametrize("model", ["residual", "lenet"])
def test_facts_about_tasks_come_back(imported_of: Callable[[str], ImportedModel], model: str) -> None:
    measurements = [replace(MEASUREMENT, facts=task_facts(layer.task)) for layer in imported_of(model).graph.layers]
    _, *lines = text_of(*measurements).splitlines()
    assert [read_line(line.encode(), "a line", NOW) for line in lines] == measurements


@pytest.mark.parametrize("error", [None, 0.0, 1e-7, math.inf])
def test_errors_come_back(tmp_path: Path, error: float | None) -> None:
    measurement = replace(MEASUREMENT, error=error)
    text = text_of(measurement, FAILURE)
    assert text.isascii()
    assert read(tmp_path / "export", text) == [measurement, FAILURE]


def test_exports_may_be_concatenated(tmp_path: Path) -> None:
    assert read(tmp_path / "export", text_of(MEASUREMENT) + "\n" + text_of(FAILURE)) == [MEASUREMENT, FAILURE]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "JSON"),
        ("<<<<<<< ours", "JSON"),
        ("[" * 100_000, "JSON"),
        ("1" * 100_000, "JSON"),
        ("[]", "object"),
        (without("hardware"), "hardware"),
        (without("samples"), "samples"),
        (changed(more=1), "more"),
        (changed(task=""), "task"),
        (changed(task=7), "task"),
        (changed(variant="x" * 1001), "variant"),
        (changed(threads=0), "threads"),
        (changed(threads=True), "threads"),
        (changed(threads="1"), "threads"),
        (changed(threads=2**40), "threads"),
        (changed(status="splendid"), "status"),
        (changed(samples=[]), "no samples"),
        (changed(samples=[0.0]), "samples.0"),
        (changed(samples=[-1.0]), "samples.0"),
        (changed(samples=[math.inf]), "samples.0"),
        (changed(samples=[1.0, math.nan]), "samples.1"),
        (changed(samples=["1"]), "samples.0"),
        (changed(samples={"a": 1}), "samples"),
        (changed(baseline_samples=[1.0] * 100_001), "baseline_samples"),
        (changed(error=-1.0), "error"),
        (changed(error=math.nan), "error"),
        (changed(message="x" * 4001), "message"),
        (changed(created=-1.0), "created"),
        (changed(created=math.inf), "created"),
        (changed(created=NOW + CLOCK_SKEW + 1), "future"),
        (changed(packed_bytes=-1), "packed_bytes"),
        (changed(packed_bytes=2**63), "packed_bytes"),
        (changed(task="\udcff"), ""),
    ],
)
def test_lines_that_are_no_measurements_are_skipped(tmp_path: Path, line: str, said: str) -> None:
    skipped, kept = read(tmp_path / "export", f"{text_of()}{line}\n{changed()}\n")
    assert isinstance(skipped, Skipped)
    assert skipped.where == "line 2"
    assert said in skipped.reason
    assert len(skipped.reason) < 300
    assert kept == MEASUREMENT


def test_bytes_that_are_no_text_are_skipped(tmp_path: Path) -> None:
    content = text_of(MEASUREMENT).encode() + b"\xff\xfe\n" + bytes(100) + b"\n" + text_of(FAILURE).encode()[:-20]
    measurement, *skipped = read(tmp_path / "export", content)
    assert measurement == MEASUREMENT
    assert [each.where for each in skipped if isinstance(each, Skipped)] == ["line 3", "line 4", "line 6"]


def test_lines_too_long_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "LONGEST_LINE", 1000)
    content = f"{text_of()}{'x' * 5000}\n{changed()}\n{'x' * 1000}\n{'x' * 2000}"
    found = read(tmp_path / "export", content)
    assert [each.where for each in found if isinstance(each, Skipped)] == ["line 2", "line 4", "line 5"]
    assert found[1] == MEASUREMENT


@pytest.mark.parametrize("content", ["", "\n", "x", changed(), '{"format": "other", "version": 1}', '{"format": 1}'])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UsageError, match="neither a tuning database nor"):
        read(tmp_path / "other", content)
    assert not is_export(tmp_path / "other")


def test_exports_of_the_first_version_lack_facts(tmp_path: Path) -> None:
    old = text_of(MEASUREMENT).replace('"version": 3', '"version": 1').replace(', "facts": "", "foreign_load": 0.0', "")
    assert "facts" not in old
    assert read(tmp_path / "export", old) == [MEASUREMENT]


@pytest.mark.parametrize("facts", ["Rows", "a b", "a b=", "a b=-1", "a  b=1", "a b=1\n", "a b=1" + "0" * 20])
def test_what_says_nothing_about_a_task_is_skipped(tmp_path: Path, facts: str) -> None:
    (found,) = read(tmp_path / "export", text_of() + changed(facts=facts))
    assert isinstance(found, Skipped)
    assert found.reason.startswith("facts")


def test_a_newer_export_is_refused(tmp_path: Path) -> None:
    newer = text_of().replace('"version": 3', '"version": 4')
    for content in (newer, text_of(MEASUREMENT) + newer):
        with pytest.raises(UsageError, match=r"version 4 .* up to 3: update Sartor"):
            read(tmp_path / "export", content)
    assert is_export(tmp_path / "export")
