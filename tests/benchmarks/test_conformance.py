"""ONNX's operator tests: a fixed sample of them, and the list of those that fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.conformance import batches, expected, opened, report, suite
from benchmarks.conformance.__main__ import main
from benchmarks.conformance.expected import Failures
from benchmarks.conformance.suite import OnnxTest, Outcome, Status

# One test in so many; those that are refused are in the sample too. `make conformance` runs all.
_STRIDE = 60


@pytest.fixture(scope="module")
def tests() -> dict[str, OnnxTest]:
    return suite.collect()


def test_a_sample_ends_as_it_is_listed(tests: dict[str, OnnxTest]) -> None:
    sample = [test for test in tests.values() if test.category == "node"][::_STRIDE]
    outcomes = list(batches.run(sample))
    assert len(outcomes) == len(sample)
    assert sum(outcome.status is Status.PASSED for outcome in outcomes) > len(sample) / 2
    assert expected.surprises(outcomes, expected.load()) == []


@pytest.mark.parametrize("device", suite.DEVICES)
def test_every_listed_test_is_one_of_the_suite(tests: dict[str, OnnxTest], device: str) -> None:
    assert expected.unknown(tests, expected.load(device)) == []


def test_documentation_counts_what_is_listed(tests: dict[str, OnnxTest]) -> None:
    listed = {name for each in expected.load() for name in each.tests}
    text = report.DOCUMENT.read_text(encoding="utf-8")
    for category in suite.CATEGORIES:
        names = {name for name, test in tests.items() if test.category == category}
        refused = len(names & listed)
        assert re.search(
            rf"^\| {category} \| {len(names)} \| {len(names) - refused} \(.*\) \| {refused} \|$", text, re.M
        )


def test_what_fails_on_the_cpu_fails_elsewhere_unless_its_list_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu, vulkan = tmp_path / "cpu.toml", tmp_path / "vulkan.toml"
    cpu.write_text('[[failures]]\nreason = "r"\nerror = "e"\ntests = ["test_a", "test_b", "test_c"]\n')
    vulkan.write_text('passes = ["test_a"]\n[[failures]]\nreason = "s"\nerror = "f"\ntests = ["test_b", "test_d"]\n')
    monkeypatch.setattr(expected, "FILES", {suite.CPU: cpu, suite.VULKAN: vulkan})
    assert [each.tests for each in expected.load(suite.VULKAN)] == [("test_b", "test_d"), ("test_c",)]
    assert [each.tests for each in expected.load()] == [("test_a", "test_b", "test_c")]


def _outcome(name: str, status: Status, message: str = "") -> Outcome:
    return Outcome(name, "node", status, message, 0.1)


def test_what_differs_from_the_list_is_told() -> None:
    known = (Failures("It is too hard.", "too hard", ("test_a", "test_b", "test_c")),)
    outcomes = [
        _outcome("test_a", Status.REFUSED, "CompileError: too hard"),
        _outcome("test_b", Status.PASSED),
        _outcome("test_c", Status.WRONG, "too hard"),
        _outcome("test_d", Status.REFUSED, "too hard"),
        _outcome("test_e", Status.PASSED),
    ]
    told = expected.surprises(outcomes, known)
    assert [line.partition(":")[0] for line in told] == ["test_b", "test_c", "test_d"]
    assert expected.surprises([_outcome("test_a", Status.REFUSED, "other")], known) != []


def test_a_wrong_result_is_listed_for_gpus_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, vulkan = tmp_path / "cpu.toml", tmp_path / "vulkan.toml"
    cpu.write_text("failures = []\n")
    vulkan.write_text('[[failures]]\nreason = "r"\nerror = "zeros"\nwrong = true\ntests = ["test_a"]\n')
    monkeypatch.setattr(expected, "FILES", {suite.CPU: cpu, suite.VULKAN: vulkan})
    known = expected.load(suite.VULKAN)
    assert expected.surprises([_outcome("test_a", Status.WRONG, "zeros")], known) == []
    assert expected.surprises([_outcome("test_a", Status.WRONG, "ones")], known) != []
    monkeypatch.setitem(expected.FILES, suite.CPU, vulkan)
    with pytest.raises(ValueError, match="wrong result on the CPU"):
        expected.load()


def test_a_test_is_listed_once(tmp_path: Path) -> None:
    entry = '[[failures]]\nreason = "r"\nerror = "e"\ntests = ["test_a"]\n'
    path = tmp_path / "list.toml"
    path.write_text(entry)
    assert expected.read(path)[0].tests == ("test_a",)
    path.write_text(entry * 2)
    with pytest.raises(ValueError, match="test_a"):
        expected.read(path)


def test_only_the_section_between_the_marks_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.replace_section(path, "new")
    assert path.read_text() == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"


def test_a_machine_without_the_device_runs_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.conformance.__main__.SartorBackend.supports_device", lambda _: False)
    assert main(["--device", "vulkan"]) == 0
    assert "nothing is run, because this machine has no vulkan device" in capsys.readouterr().out


def test_what_ended_a_process_or_a_compilation_at_open_sizes_is_right_or_refused_by_name(
    tests: dict[str, OnnxTest],
) -> None:
    # Masked vectors divided by what they had not read, unread and unchanged operands lost their types, and a slice had
    # fewer elements than none.
    passing = [
        "test_mod_mixed_sign_int64",
        "test_mod_int64_fmod",
        "test_reduce_sum_empty_set",
        "test_pow_types_int32_int32",
    ]
    refused = {
        "test_cumprod_1d": "a size of n5 - 4, which is -1 where n5 is 3",
        "test_reshape_reordered_all_dims": "fix all sizes",
    }
    ends = {each.name: each for each in opened.run(tests[name] for name in (*passing, *refused))}
    assert [ends[name].status for name in passing] == [Status.PASSED] * len(passing)
    for name, reason in refused.items():
        assert ends[name].status is Status.REFUSED
        assert reason in ends[name].message


def test_sizes_that_an_operator_fixes_stay_and_types_are_carried(tests: dict[str, OnnxTest]) -> None:
    names = ["test_basic_conv_with_padding", "test_add_uint16"]
    fixed, carried = opened.run(tests[name] for name in names)
    assert (fixed.status, fixed.message) == (Status.PASSED, f"{opened.FIXED} 3")
    assert (carried.status, carried.message) == (Status.PASSED, "")
