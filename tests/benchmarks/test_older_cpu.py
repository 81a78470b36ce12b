"""Libraries that ask for the CPU get an answer without AVX-512, VNNI and AMX, and nothing else of them changes."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.older_cpu.cpuid_sites import CPUID, cpuid_sites
from benchmarks.older_cpu.libraries import older_environment, without_cpuid

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux" or not shutil.which("cc") or not shutil.which("objdump"),
    reason="it takes Linux on x86-64, a C compiler and objdump",
)

# The number of `looks_like_it` contains the instruction's bytes.
_LIBRARY = """
#include <cpuid.h>
unsigned looks_like_it(void) { return 0x11a20f22u; }
void ask(unsigned leaf, unsigned sub, unsigned *r) { __cpuid_count(leaf, sub, r[0], r[1], r[2], r[3]); }
"""
_PROGRAM = """
import ctypes, faulthandler, sys
faulthandler.enable()
library = ctypes.CDLL(sys.argv[1])
library.looks_like_it.restype = ctypes.c_uint
registers = (ctypes.c_uint * 4)()
for leaf, sub in ((0, 0), (1, 0), (7, 0), (7, 1)):
    library.ask(leaf, sub, registers)
    print(*registers)
print(library.looks_like_it())
"""
_AVX2, _AVX512F, _VNNI, _AVX_VNNI = 1 << 5, 1 << 16, 1 << 11, 1 << 4


def _answers(library: Path, environment: dict[str, str]) -> list[list[int]]:
    command = [sys.executable, "-c", _PROGRAM, str(library)]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [[int(number) for number in line.split()] for line in text.splitlines()]


def test_answers_lack_what_older_cpus_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.older_cpu.libraries._copy_runtime", lambda _: None)
    source, library = tmp_path / "asks.c", tmp_path / "asks.so"
    source.write_text(_LIBRARY)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    sites, data = cpuid_sites(library), library.read_bytes()
    assert len(sites) == 1
    assert data.count(CPUID) > 1
    changed = tmp_path / "changed.so"
    changed.write_bytes(without_cpuid(data, sites))

    here = _answers(library, {})
    older = _answers(changed, older_environment(tmp_path / "older"))
    assert older[0] == here[0]
    # Byte 3 of EBX is the number of the processor that runs the program.
    assert older[1][2:] == here[1][2:]
    assert older[4] == here[4] == [0x11A20F22]
    assert older[2][1] & _AVX2 == here[2][1] & _AVX2
    assert not older[2][1] & _AVX512F
    assert not older[2][2] & _VNNI
    assert not older[3][0] & _AVX_VNNI
    newer = _answers(changed, older_environment(tmp_path / "older", avx_vnni=True))
    assert newer[2] == older[2]
    assert newer[3][0] & _AVX_VNNI == here[3][0] & _AVX_VNNI
    assert newer[3][0] & ~_AVX_VNNI == older[3][0]
