"""Whether a process may use AMX, and what is said where it may not."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import DeviceError
from sartor.runtime.driver import amx, cpuinfo
from sartor.runtime.driver.amx import MATRIX_FEATURES, tiles_granted, unusable
from sartor.runtime.manifest import Manifest, read_manifest
from sartor.runtime.session import Session

CPUINFO = "processor : 0\nflags : fpu avx512f amx_bf16 amx_tile amx_int8\n\nprocessor : 1\nflags : fpu\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Pretend to be on another machine: ``machine(answer, flags, system, architecture)``."""

    def pretend(answer: int, text: str = CPUINFO, system: str = "linux", architecture: str = "x86_64") -> None:
        (tmp_path / "cpuinfo").write_text(text, encoding="utf-8")
        monkeypatch.setattr(cpuinfo, "_CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(amx, "_request", lambda: answer)
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: architecture)
        tiles_granted.cache_clear()
        amx._has.cache_clear()

    yield pretend
    monkeypatch.undo()
    tiles_granted.cache_clear()
    amx._has.cache_clear()


def test_what_the_system_grants_can_be_used(machine: Callable[..., None]) -> None:
    machine(0)
    assert tiles_granted()
    assert unusable(MATRIX_FEATURES) == ()


@pytest.mark.parametrize(
    ("answer", "text", "system", "architecture", "expected"),
    [
        (-1, CPUINFO, "linux", "x86_64", MATRIX_FEATURES),
        (0, CPUINFO, "darwin", "x86_64", MATRIX_FEATURES),
        (0, CPUINFO, "linux", "aarch64", MATRIX_FEATURES),
        (0, "flags : fpu avx2\n", "linux", "x86_64", MATRIX_FEATURES),
        (0, "flags : fpu amx_tile amx_int8\n", "linux", "x86_64", ("amx-bf16",)),
        (0, "", "linux", "x86_64", MATRIX_FEATURES),
    ],
)
def test_what_cannot_be_used_is_named(
    machine: Callable[..., None], answer: int, text: str, system: str, architecture: str, expected: tuple[str, ...]
) -> None:
    machine(answer, text, system, architecture)
    assert unusable(MATRIX_FEATURES) == expected
    assert unusable(["avx512f", "neon"]) == ()


def test_the_system_is_asked_once(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(0)
    answers = iter([0, -1, -1])
    monkeypatch.setattr(amx, "_request", lambda: next(answers))
    assert [tiles_granted() for _ in range(3)] == [True] * 3
    assert list(answers) == [-1, -1]


def test_without_cpuinfo_nothing_is_known_to_be_there(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine(0)
    monkeypatch.setattr(cpuinfo, "_CPUINFO", tmp_path / "absent")
    assert unusable(["amx-bf16"]) == ("amx-bf16",)


@pytest.mark.skipif(bool(unusable(["amx-bf16"])), reason="there is no AMX that this process may use")
def test_a_process_that_asked_can_use_tiles() -> None:
    """In a process of its own, that no other test has asked for: the answer to ``ARCH_GET_XCOMP_PERM``."""
    code = (
        "import ctypes; from sartor.runtime.driver.amx import tiles_granted; found = ctypes.c_uint64(); "
        "get = lambda: ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(found)) or found.value >> 18 & 1; "
        "print(get(), tiles_granted(), get())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True", "1"]


def test_code_for_this_cpu_uses_what_is_granted(machine: Callable[..., None]) -> None:
    machine(-1)
    assert CompileConfig(threads=1).target.withheld == MATRIX_FEATURES
    assert CompileConfig(target=Target.create("cpu", "sapphirerapids"), threads=1).target.withheld == ()
    assert CompileConfig(target=Target.create("vulkan"), threads=1).target.withheld == ()
    machine(0)
    assert CompileConfig(threads=1).target.withheld == ()


def test_what_is_withheld_changes_no_key_of_measurements() -> None:
    plain, without = Target("cpu", "host"), Target("cpu", "host", withheld=("amx-bf16",))
    assert (plain.key, str(plain), plain.flags) == (without.key, str(without), without.flags)


def test_a_module_that_needs_tiles_is_refused_where_there_are_none(
    machine: Callable[..., None], compile_mlir: Callable[..., Path], make_manifest: Callable[..., Manifest]
) -> None:
    module = compile_mlir("model", make_manifest(features=("amx-bf16",)).to_json())
    assert read_manifest(module).features == ("amx-bf16",)
    machine(-1)
    with pytest.raises(DeviceError, match=r"needs amx-bf16, which this CPU lacks or its operating system withholds"):
        Session(module, threads=1)
    machine(0)
    with Session(module, threads=1) as session:
        assert session.manifest is not None


def test_a_manifest_of_before_needs_nothing(make_manifest: Callable[..., Manifest]) -> None:
    text = make_manifest().to_json().replace('"features":[],', "")
    assert "features" not in text
    assert Manifest.from_json(text).features == ()
