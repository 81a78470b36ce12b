"""Settings by which other runtimes use the code that they have for an older CPU.

OpenVINO has one, by its part oneDNN. ONNX Runtime has none, so it is copied, and a preloaded library answers its CPUID
instructions.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.older_cpu.cpuid_sites import CPUID, cpuid_sites
from sartor.errors import UsageError

_PACKAGE, _LIBRARIES = "onnxruntime", "capi/onnxruntime_pybind11_state*.so"
_SOURCE = Path(__file__).parent / "answer_cpuid.c"
# Undefined on all x86-64 CPUs, and as long as CPUID.
_UNDEFINED = b"\x0f\x04"
# What oneDNN uses at most, without AVX-VNNI and with it; and what the preloaded library reads.
_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
_AVX_VNNI = {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "KEEP_AVX_VNNI": "1"}


def older_environment(folder: Path, *, avx_vnni: bool = False) -> dict[str, str]:
    """Variables by which a program sees copies of the installed runtimes in ``folder``, made if there are none.

    Args:
        folder: for the copies.
        avx_vnni: whether AVX-VNNI stays visible, if this CPU has it.

    Raises:
        UsageError: if there is no C compiler or no ``objdump``.
    """
    missing = [program for program in ("cc", "objdump") if shutil.which(program) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} are needed; install gcc and binutils")
    answers = folder.absolute() / "answer_cpuid.so"
    copies = folder.absolute() / f"{_PACKAGE}-{importlib.metadata.version(_PACKAGE)}"
    if not copies.exists():
        unfinished = copies.with_name(f"unfinished.{os.getpid()}")
        unfinished.mkdir(parents=True)
        _copy_runtime(unfinished)
        unfinished.rename(copies)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(answers), str(_SOURCE)], check=True)
    path = os.pathsep.join(filter(None, [str(copies), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "LD_PRELOAD": str(answers), **(_AVX_VNNI if avx_vnni else _AVX2)}


def _copy_runtime(folder: Path) -> None:
    """Copy ONNX Runtime to a folder; only its library that asks for the CPU takes space."""
    spec = find_spec(_PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = Path(spec.submodule_search_locations[0])
    libraries = sorted(source.glob(_LIBRARIES))
    if not libraries:
        raise UsageError(f"'{source}' has no library {_LIBRARIES}; use another version of ONNX Runtime")
    shutil.copytree(source, folder / _PACKAGE, copy_function=_linked, symlinks=True)
    for path in libraries:
        copy = folder / _PACKAGE / path.relative_to(source)
        copy.unlink()
        copy.write_bytes(without_cpuid(path.read_bytes(), cpuid_sites(path)))


def without_cpuid(data: bytes, sites: Sequence[int]) -> bytes:
    """The bytes of a library with undefined instructions at some places."""
    changed = bytearray(data)
    for site in sites:
        assert changed[site : site + len(CPUID)] == CPUID
        changed[site : site + len(CPUID)] = _UNDEFINED
    return bytes(changed)


def _linked(source: str, target: str) -> str:
    """A link to a file, or a copy on another disk."""
    try:
        os.link(source, target)
    except OSError:
        return shutil.copy2(source, target)
    return target
