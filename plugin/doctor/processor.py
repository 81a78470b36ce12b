"""The processor: its instruction set, caches, and what the operating system lets programs use of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sartor.doctor.finding import Finding, State
from sartor.runtime.driver.amx import MATRIX_FEATURES, tiles_granted
from sartor.runtime.driver.cores import Cores, allowed_cpus, find_cores
from sartor.runtime.module import has_huge_pages
from sartor.tuning.records.hardware import Hardware, host
from sartor.tuning.records.isa_level import isa_class

_TOPIC = "processor"
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# Extensions for which kernels differ, by Linux's names.
_KERNELS_DIFFER = (
    *("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "avx_vnni"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "asimddp", "i8mm", "bf16", "sve"),
)

_DOTS = ("avx512_vnni", "avx_vnni", "amx_int8")


def examine_processor(hardware: Hardware | None = None, caches: Path = _CACHES) -> Iterator[Finding]:
    """What the processor and the system's use of it mean for kernels."""
    machine = hardware or host()
    yield Finding(_TOPIC, "model", machine.description)
    yield from _cores(find_cores(allowed_cpus()), machine.cores)
    yield _instruction_set(machine)
    yield Finding(_TOPIC, "caches", ", ".join(_caches(caches)) or "the system does not tell")
    if machine.architecture == "x86_64":
        yield _quantised_products(machine)
        yield _matrix_unit(machine)
    yield _huge_pages()


def _cores(cores: Cores, logical: int) -> Iterator[Finding]:
    """How many cores there are, and how many workers a session starts on them."""
    kinds = [f"{cores.physical} that this process may use", f"{logical} logical ones in all"]
    if cores.performance < cores.physical:
        kinds.append(f"{cores.physical - cores.performance} efficiency cores, which get {_use_of_slow(cores)}")
    if cores.nodes > 1:
        kinds.append(f"{cores.node} on one of {cores.nodes} NUMA nodes, where workers stay")
    yield Finding(_TOPIC, "cores", ", ".join(kinds))
    if cores.quota is not None:
        quota = f"a quota of {cores.quota:g} processors' time, which {cores.workers} workers keep within"
        yield Finding(_TOPIC, "quota", quota, State.LIMITED, "give the container more; --threads overrides it")


def _use_of_slow(cores: Cores) -> str:
    if cores.workers_on_all == cores.workers:
        return "no worker"
    return f"workers for modules that ran faster with {cores.workers_on_all} than with {cores.workers} when compiled"


def _instruction_set(machine: Hardware) -> Finding:
    known = [feature for feature in _KERNELS_DIFFER if feature in machine.features]
    level = isa_class(machine)
    features = f"{level} with {', '.join(known)}" if known else level
    if machine.architecture == "x86_64" and "avx2" not in machine.features:
        advice = "kernels are written for AVX2 and newer; layers will mostly run IREE's own code"
        return Finding(_TOPIC, "instruction set", features, State.LIMITED, advice)
    return Finding(_TOPIC, "instruction set", features)


def _quantised_products(machine: Hardware) -> Finding:
    """Whether instructions add products of 8-bit integers in 32 bits: others add two in 16, and saturate."""
    if any(dot in machine.features for dot in _DOTS):
        return Finding(_TOPIC, "quantised models", "the processor multiplies 8-bit integers exactly")
    advice = (
        "ONNX Runtime's products of 8-bit integers saturate here, so its results of quantised models may be far off; "
        "what Sartor compares modules with is exact, and modules compute products of 8 bits in f32"
    )
    return Finding(_TOPIC, "quantised models", "the processor has no VNNI", State.LIMITED, advice)


def _matrix_unit(machine: Hardware) -> Finding:
    has_unit = any(matrix_feature.replace("-", "_") in machine.features for matrix_feature in MATRIX_FEATURES)
    if not has_unit:
        return Finding(_TOPIC, "AMX", "the processor has none")
    if tiles_granted():
        return Finding(_TOPIC, "AMX", "granted to this process")
    advice = "the system or container refuses it: use Linux 5.16 or newer, and a sandbox that allows arch_prctl"
    return Finding(_TOPIC, "AMX", "refused", State.LIMITED, advice)


def _huge_pages() -> Finding:
    if has_huge_pages():
        return Finding(_TOPIC, "huge pages", "on request")
    advice = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root; large weights are then read faster"
    return Finding(_TOPIC, "huge pages", "none", State.LIMITED, advice)


def _caches(folder: Path) -> Iterator[str]:
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text(encoding="ascii").strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        letter = {"Data": "d", "Instruction": "i"}.get(kind, "")
        yield f"L{level}{letter} {size}iB"
