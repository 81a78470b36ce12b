"""Options that ask for several plans in one file."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sartor.cli.options.several import read_shape_sets, read_targets
from sartor.errors import UsageError


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
    assert [str(each) for each in read_targets(devices, cpu, None)] == found


def test_all_levels_are_those_of_this_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    levels = [each.architecture for each in read_targets(None, "all", None)]
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
        (["x=1..3,4"], [{"x": (1, 4)}, {"x": (2, 4)}, {"x": (3, 4)}]),
        (["x=1", "x=2", "y=5"], [{"x": (1,), "y": (5,)}, {"x": (2,), "y": (5,)}]),
        (["x=1..2", "y=3..4"], [{"x": (1,), "y": (3,)}, {"x": (2,), "y": (4,)}]),
    ],
)
def test_shapes_are_given_one_by_one_or_by_a_range(texts: list[str] | None, found: list[dict[str, object]]) -> None:
    assert list(read_shape_sets(texts)) == found


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["x"], "expected NAME=1,3,224,224"),
        ([f"x=1,{'9' * 5000}"], "is no shape"),
        (["x=1,a"], "or a range such as 1..8"),
        (["x=1", "x=1"], "given twice for 'x'"),
        (["x=4..1"], "empty range: 1 is less than 4"),
        (["x=1..64,3"], "a range of 64 sizes, and a file has at most 32"),
        (["x=1..2,1..2"], "several ranges"),
        (["x=1", "x=1,2"], "different numbers of dimensions"),
        (["x=1..2", "y=1..3"], "gives 'x' 2 shapes and 'y' 3"),
    ],
)
def test_shapes_that_contradict_each_other_are_refused(texts: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_shape_sets(texts)
