"""Options of the command line: choices, several values, and which files are used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from sartor.cli.options import used_files
from sartor.cli.options.common import existing_file, read_shapes, read_sources
from sartor.cli.options.compilation import CompileOptions
from sartor.cli.options.several import read_shape_sets, read_targets
from sartor.cli.options.used_files import model_files, module_files
from sartor.errors import UsageError
from sartor.policies import Double, Search
from sartor.runtime.manifest import Manifest
from sartor.settings.size_range import SizeRange
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.selection.problem.cost import Objective
from tests.plugin.external_model import WEIGHTS, write_convolution
from tests.runtime.conftest import MANIFEST


def test_models_are_not_read_from_standard_input_or_pipes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("-"), Path("/dev/null"), pipe):
        with pytest.raises(UsageError, match=f"'{path}' is not a regular file: standard input and pipes are not read"):
            existing_file(path)


def test_other_paths_are_not_taken_for_pipes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        existing_file(tmp_path)
    with pytest.raises(UsageError, match="is not there"):
        existing_file(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "names", "name", "source"),
    [
        ("x=run=3/x.npy", ["x"], "x", "run=3/x.npy"),
        ("x=run=3/x.npy", [], "x", "run=3/x.npy"),
        ("x=1=zeros", ["x=1", "y"], "x=1", "zeros"),
        ("x=1=a=b.npy", ["x", "x=1"], "x=1", "a=b.npy"),
        ("other=a=b", ["x"], "other", "a=b"),
    ],
)
def test_names_of_inputs_and_files_may_have_equals_signs(text: str, names: list[str], name: str, source: str) -> None:
    assert read_sources([text], names) == {name: source}


@pytest.mark.parametrize("text", ["x", "x=", "=zeros", "x=1="])
def test_an_input_without_a_name_or_a_source_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read, expected NAME=FILE"):
        read_sources([text], ["x=1"])


def test_sizes_have_as_many_digits_as_a_model_can_have() -> None:
    assert read_shapes(["x=1,99999999999"]) == {"x": (1, 99999999999)}
    with pytest.raises(UsageError, match="is no shape"):
        read_shapes([f"x={'9' * 5000}"])


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("objective", Objective),
        ("search", Search),
        ("double", Double),
        ("calibration_method", CalibrationMethod),
    ],
)
def test_an_option_takes_each_value_of_its_policy(name: str, policy: type[StrEnum]) -> None:
    (literal, _) = get_args(get_type_hints(CompileOptions)[name])
    assert {*get_args(literal)} == {value.value for value in policy}


def test_a_model_has_weights_beside_it(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    write_convolution(model)
    assert model_files(model) == [("the model", model), ("weights of the model", (tmp_path / WEIGHTS).resolve())]
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(UsageError, match="which is missing from"):
        model_files(model)


def test_a_module_has_weights_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "model.vmfb"
    assert module_files(module) == [("the module", module)]
    module.touch()
    monkeypatch.setattr(used_files, "open_module", lambda path: path)
    manifest = Manifest(**(MANIFEST | {"parameters": {"model": "model.irpa"}}))  # type: ignore[arg-type]
    monkeypatch.setattr(used_files, "find_manifest", lambda _: manifest)
    assert module_files(module) == [("the module", module), ("weights of the module", tmp_path / "model.irpa")]


@pytest.mark.parametrize(
    ("devices", "cpu", "found"),
    [
        (None, None, ["cpu:host"]),
        (None, "x86-64-v3,x86-64-v4", ["cpu:x86-64-v3", "cpu:x86-64-v4"]),
        (["cpu", "vulkan"], None, ["cpu:host", "vulkan:llvmpipe"]),
        (["vulkan", "cpu"], "x86-64-v3,host", ["vulkan:llvmpipe", "cpu:x86-64-v3", "cpu:host"]),
        (["cpu,vulkan"], "x86-64-v3", ["cpu:x86-64-v3,vulkan:llvmpipe"]),
    ],
)
def test_each_device_and_each_level_is_a_target(
    devices: Sequence[str] | None, cpu: str | None, found: list[str]
) -> None:
    assert [str(target) for target in read_targets(devices, cpu, None)] == found


def test_all_levels_are_those_of_this_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    levels = [target.architecture for target in read_targets(None, "all", None)]
    assert levels == ["x86-64-v3", "x86-64-v4", "sapphirerapids"]
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="not defined for riscv64"):
        read_targets(None, "all", None)


@pytest.mark.parametrize(
    ("devices", "cpu", "arch", "complaint"),
    [
        (None, "all,x86-64-v3", None, "stands for all of them; give it alone"),
        (None, "x86-64-v3,,x86-64-v4", None, "lacks a level"),
        (["vulkan"], "x86-64-v3,x86-64-v4", None, "--cpu is for --target cpu"),
        (["cpu"], "x86-64-v3,x86-64-v4", "sm_80", "--arch is for the targets vulkan and cuda"),
    ],
)
def test_levels_that_cannot_be_are_refused(
    devices: Sequence[str] | None, cpu: str, arch: str | None, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_targets(devices, cpu, arch)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (None, [{}]),
        (["x=1,3"], [{"x": (1, 3)}]),
        (["x=1,3", "x=8,3"], [{"x": (1, 3)}, {"x": (8, 3)}]),
        (["x=1|2|3,4"], [{"x": (1, 4)}, {"x": (2, 4)}, {"x": (3, 4)}]),
        (["x=1", "x=2", "y=5"], [{"x": (1,), "y": (5,)}, {"x": (2,), "y": (5,)}]),
        (["x=1|2", "y=3|4"], [{"x": (1,), "y": (3,)}, {"x": (2,), "y": (4,)}]),
    ],
)
def test_shapes_are_given_one_by_one_or_by_sizes(texts: list[str] | None, found: list[dict[str, object]]) -> None:
    assert list(read_shape_sets(texts)) == found


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["x"], "expected NAME=1,3,224,224"),
        ([f"x=1,{'9' * 5000}"], "is no shape"),
        (["x=1,a"], "a range of any size such as 1..8, or sizes such as 1|2|4"),
        (["x=1|a"], "is no shape"),
        (["x=1", "x=1"], "given twice for 'x'"),
        (["x=4..1"], "the range 4..1 has fewer than two sizes"),
        (["x=4..4"], "the range 4..4 has fewer than two sizes"),
        (["x=0..4"], "the range 0..4 begins below 1"),
        (["x=33..63:32"], "the range 33..63:32 has fewer than two sizes"),
        (["x=1|2,1|2"], "several sizes of several dimensions"),
        (["x=1..2", "x=3"], "several shapes beside a range"),
        (["x=1..2", "y=1|2"], "several shapes beside a range"),
        (["x=1", "x=1,2"], "different numbers of dimensions"),
        (["x=1|2", "y=1|2|3"], "gives 'x' 2 shapes and 'y' 3"),
    ],
)
def test_shapes_that_contradict_each_other_are_refused(texts: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_shape_sets(texts)


def test_a_range_is_one_plan_for_any_size() -> None:
    found = read_shape_sets(["x=1..512,384", "y=32..640:32", "z=3"])
    assert found == {"x": (SizeRange(1, 512), 384), "y": (SizeRange(32, 640, 32),), "z": (3,)}


def test_a_short_range_tells_how_to_ask_for_a_plan_for_each_size(caplog: pytest.LogCaptureFixture) -> None:
    read_shape_sets(["x=1..512,384", "y=1..8"])
    assert [record.getMessage() for record in caplog.records] == [
        "--shape y has the range 1..8: one plan for any size in it; for a plan for each of some sizes name them, as 1|8"
    ]
