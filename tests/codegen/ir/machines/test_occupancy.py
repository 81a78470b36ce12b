"""How many workgroups a multiprocessor holds: numbers of NVIDIA's occupancy calculator and of its guides."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.machines.occupancy import Footprint

KIB = 1 << 10


@pytest.mark.parametrize(
    ("architecture", "footprint", "resident"),
    [
        # By threads: 2048 or 1536 of them.
        ("sm_80", Footprint(256, 32), 8),
        ("sm_86", Footprint(256, 32), 6),
        ("sm_86", Footprint(1024, 32), 1),
        # By workgroups.
        ("sm_80", Footprint(32, 32), 32),
        ("sm_86", Footprint(32, 32), 16),
        ("sm_89", Footprint(32, 32), 24),
        # By registers: those of a warp are a multiple of 256, and 65 of a thread count like 72.
        ("sm_80", Footprint(256, 64), 4),
        ("sm_80", Footprint(256, 65), 3),
        ("sm_80", Footprint(256, 128), 2),
        ("sm_90", Footprint(128, 255), 2),
        ("sm_90", Footprint(128, 168), 3),
        # 65536 / (32 * 104) are 19 warps, but each part has four.
        ("sm_80", Footprint(32, 104), 16),
        # By shared memory, of which each workgroup takes one KiB more.
        ("sm_80", Footprint(128, 32, 48 * KIB), 3),
        ("sm_86", Footprint(128, 32, 48 * KIB), 2),
        ("sm_86", Footprint(128, 32, 50 * KIB), 1),
        ("sm_90", Footprint(128, 32, 227 * KIB), 1),
        # Too much of something.
        ("sm_86", Footprint(128, 32, 100 * KIB), 0),
        ("sm_80", Footprint(128, 256), 0),
        ("sm_80", Footprint(1024, 72), 0),
    ],
)
def test_the_scarcest_resource_counts(architecture: str, footprint: Footprint, resident: int) -> None:
    assert footprint.resident(ARCHITECTURES[architecture]) == resident
