"""The plan of a file with several is chosen by shapes, and by the level that a machine has the features of."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.errors import UsageError
from sartor.runtime.driver import cpuinfo
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.several.choice import fitting
from sartor.runtime.several.levels import likely_level
from sartor.runtime.several.record import Alternative

_MASK = TensorSpec("mask", "float32", (8,))
_SIGNATURES = tuple(Signature("run", (TensorSpec("x", "float32", (size, 8)), _MASK), ()) for size in (1, 3))


def test_inputs_that_vary_choose() -> None:
    assert fitting(_SIGNATURES, {"x": (3, 8), "mask": (8,)}) is _SIGNATURES[1]
    assert fitting(_SIGNATURES, {}) is _SIGNATURES[0]


def test_a_wrong_shape_of_another_input_is_left_to_who_checks_arrays() -> None:
    assert fitting(_SIGNATURES, {"x": (3, 8), "mask": (9,)}) is _SIGNATURES[1]
    assert fitting(_SIGNATURES[:1], {"x": (3, 8), "mask": (9,)}) is _SIGNATURES[0]


def test_what_is_asked_has_to_be_there() -> None:
    with pytest.raises(UsageError, match=r"shapes x=2,8; it has plans for x=1,8; x=3,8"):
        fitting(_SIGNATURES, {"x": (2, 8), "mask": (9,)})
    with pytest.raises(UsageError, match=r"shapes x=3,8 mask=9; it has plans for x=1,8 mask=8; x=3,8 mask=8"):
        fitting(_SIGNATURES, {"x": (3, 8), "mask": (9,)}, asked=["mask"])


_LEVELS = {
    "x86-64-v4": ("avx2", "avx512bf16", "avx512f", "fma", "sse3", "sse4.1"),
    "x86-64-v3": ("avx2", "fma", "sse3", "sse4.1"),
    "x86-64": (),
}
_ARM = {"aarch64:neoverse-v1": ("bf16", "dotprod", "fullfp16", "lse", "sve"), "aarch64:generic": ("fp-armv8",)}
_PLANS = [Alternative("cpu", name, (), (), needs) for name, needs in (_LEVELS | _ARM).items()]


@pytest.mark.parametrize(
    ("machine", "flags", "level"),
    [
        ("x86_64", "flags\t\t: fpu pni sse4_1 fma avx2 avx512f avx512_bf16", "x86-64-v4"),
        ("x86_64", "flags\t\t: fpu pni sse4_1 fma avx2 avx512f", "x86-64-v3"),
        ("x86_64", "flags\t\t: fpu", "x86-64"),
        ("aarch64", "Features\t: fp asimd atomics asimdhp asimddp sve bf16", "aarch64:neoverse-v1"),
        ("arm64", "Features\t: fp asimd", "aarch64:generic"),
        ("aarch64", "", None),
    ],
)
def test_the_first_level_that_the_processor_has(
    machine: str, flags: str, level: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\n{flags}\nbugs\t\t: none\n", encoding="utf-8")
    monkeypatch.setattr(cpuinfo, "_CPUINFO", path)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert likely_level(_PLANS) == level


def test_no_processor_is_known_where_linux_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpuinfo, "_CPUINFO", tmp_path / "absent")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert likely_level(_PLANS) == "x86-64"
