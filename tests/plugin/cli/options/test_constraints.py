"""What options that constrain a plan are read as."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from sartor.cli.options import beginning, constraints
from sartor.cli.options.beginning import begin, elapsed
from sartor.cli.options.compilation import CompileOptions
from sartor.cli.options.constraints import (
    read_precision,
    read_time_budget,
    read_weight_blocks,
)
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.config_values import SETTINGS
from sartor.errors import UsageError
from sartor.policies import Precision


@pytest.mark.parametrize(
    ("text", "found"), [("274512", 274512), ("0", 0), ("1.5MiB", 3 << 19), ("2 GB", 2_000_000_000)]
)
def test_a_size_without_a_unit_is_in_bytes_as_messages_say_it(text: str, found: int) -> None:
    assert SETTINGS["memory_limit"].asked(text) == found
    assert CompileConfig(threads=1, memory_limit=text).memory_limit == found  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["-1", "1.5", "much", "", "9" * 30])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--memory-limit"):
        SETTINGS["memory_limit"].asked(text)


@pytest.mark.parametrize(("text", "fraction"), [("0", 0.0), ("0%", 0.0), ("1%", 0.01), ("0.5%", 0.005), ("100%", 1.0)])
def test_a_part_of_the_time_is_a_percentage(text: str, fraction: float) -> None:
    assert SETTINGS["tune_until"].asked(text) == pytest.approx(fraction)


@pytest.mark.parametrize("text", ["1", "00", "-1%", "101%", "", "1 %", "much%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected a percentage up to 100% such as 3%"):
        SETTINGS["tune_until"].asked(text)


def test_fast_is_a_budget_of_nothing() -> None:
    assert read_time_budget(None, fast=True) == read_time_budget(0.0, fast=True) == 0.0
    assert read_time_budget(None, fast=False) is None
    with pytest.raises(UsageError, match="contradicts --time-budget 3"):
        read_time_budget(3.0, fast=True)


def test_weights_are_narrowed_by_a_precision_of_their_own() -> None:
    assert read_precision(None) == Precision.F32
    named = {each: read_precision(None, each) for each in ("int4", "int8", "mixed")}
    assert [*named.values()] == [Precision.INT4_WEIGHTS, Precision.INT8_WEIGHTS, Precision.MIXED_WEIGHTS]
    assert all(each.computes_in_f32 for each in named.values())
    with pytest.raises(UsageError, match=r"--weights int4 .*--precision bf16 is another; leave one of them out"):
        read_precision("bf16", "int4")


def test_blocks_of_weights_are_named_behind_their_bits() -> None:
    assert read_precision(None, "mixed:16") == Precision.MIXED_WEIGHTS
    assert read_weight_blocks(None) == read_weight_blocks("int4") == read_weight_blocks("int8") == (32,)
    assert read_weight_blocks("int4:128,16") == (128, 16)
    assert CompileConfig(threads=1, weight_blocks=(128, 16)).weight_blocks == (16, 128)


@pytest.mark.parametrize("text", ["int4:", "int4:33", "int4:32,", "mixed:all"])
def test_other_blocks_of_weights_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a block has 16, 32, 64, 128, 256 rows"):
        read_weight_blocks(text)


@pytest.mark.parametrize("text", ["int8:32", "int3", "", ":32"])
def test_other_bits_of_weights_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is none of int4, int8, mixed"):
        read_precision(None, text)


@pytest.mark.parametrize(("seconds", "left"), [(3.0, 2.0), (0.5, 0.0)])
def test_a_budget_counts_from_the_beginning_of_the_command(
    seconds: float, left: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(constraints, "elapsed", lambda: 1.0)
    assert read_time_budget(seconds, fast=False) == left
    assert ("nothing is measured" in caplog.text) == (left == 0.0)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_a_budget_that_is_none_is_refused_by_the_name_of_its_option(seconds: float) -> None:
    with pytest.raises(UsageError, match=f"--time-budget is {seconds}, expected a number of seconds of 0 or more"):
        read_time_budget(seconds, fast=False)


@pytest.mark.parametrize("given", [{"fast": True}, {"time_budget": 0.0}])
def test_what_asks_about_measuring_is_refused_where_nothing_is_measured(given: dict[str, Any]) -> None:
    options = CompileOptions(Path("net.onnx"), Path("net.vmfb"), search="full", **given)
    with pytest.raises(UsageError, match="measures nothing, and --search is about what is measured"):
        options.config(Target.create("cpu"), {}, 1)


@pytest.mark.parametrize(("begun", "until"), [(1.0, 0.03), (9.0, None)])
def test_a_budget_that_was_spent_before_contradicts_nothing(
    begun: float, until: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraints, "elapsed", lambda: begun)
    options = CompileOptions(Path("net.onnx"), Path("net.vmfb"), time_budget=3.0, tune_until="3%")
    config = options.config(Target.create("cpu"), {}, 1)
    assert (config.time_budget, config.tune_until) == (max(0.0, 3.0 - begun), until)


def test_a_command_begins_when_its_entry_point_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "_LAST", [])
    assert elapsed() == 0
    begin()
    assert 0 <= elapsed() < 60
