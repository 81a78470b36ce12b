"""Machines for tests, which none has to have."""

from __future__ import annotations

from dataclasses import replace

from sartor.tuning.cluster.machine import Machine, code_version
from sartor.tuning.records.hardware import Hardware

LAPTOP = Hardware("x86_64", ("A laptop's processor",), ("avx2", "fma"), 8)
BOARD = Hardware("aarch64", ("Arm 0x41/8/0x4/0xd0b/1",), ("asimd", "asimddp"), 4)


def machine(worker: str, hardware: Hardware = LAPTOP, gpus: tuple[str, ...] = (), **changes: object) -> Machine:
    """A machine of this version."""
    made = Machine(
        worker, f"name of {worker}", f"host of {worker}", hardware, gpus, hardware.cores // 2, code_version()
    )
    return replace(made, **changes)  # type: ignore[arg-type]
