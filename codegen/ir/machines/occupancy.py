"""How many workgroups a multiprocessor of an NVIDIA GPU holds at once (CUDA C++ Best Practices Guide, "Occupancy")."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.codegen.ir.machines.cuda import WARP, CudaArchitecture

# Of a multiprocessor; registers are given to whole warps in units, and a fourth of the warps are on each of its parts.
_REGISTERS, _UNIT, _PARTS = 1 << 16, 256, 4
MOST_REGISTERS = 255
"""Registers that a thread can have."""

# Shared memory that each workgroup takes besides its own, and in which units.
_RESERVED, _SHARED_UNIT = 1 << 10, 128


@dataclass(frozen=True)
class Footprint:
    """What a workgroup takes of a multiprocessor.

    Attributes:
        threads: of the workgroup.
        registers: of a thread.
        shared_bytes: shared memory.
    """

    threads: int
    registers: int
    shared_bytes: int = 0

    def resident(self, gpu: CudaArchitecture) -> int:
        """Workgroups that a multiprocessor holds; 0 if not one fits."""
        warps = -(-self.threads // WARP)
        shared = -(-(self.shared_bytes + _RESERVED) // _SHARED_UNIT) * _SHARED_UNIT
        if self.registers > MOST_REGISTERS or self.shared_bytes > gpu.shared_bytes:
            return 0
        return min(
            gpu.resident_groups,
            gpu.resident_threads // (warps * WARP),
            _warps_by_registers(self.registers) // warps,
            gpu.shared_total // shared,
        )


def _warps_by_registers(registers: int) -> int:
    """Warps for which a multiprocessor has registers, the same number on each of its parts."""
    of_warp = -(-registers * WARP // _UNIT) * _UNIT
    return _REGISTERS // _PARTS // of_warp * _PARTS
