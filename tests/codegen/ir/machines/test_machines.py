"""Machines: cores of CPUs, CUDA's architectures, and how many workgroups they hold."""

from __future__ import annotations

import re

import pytest

from sartor.codegen.ir.machines.core import WIDE, core_of_aarch64
from sartor.codegen.ir.machines.cuda import ARCHITECTURES, newest_for
from sartor.codegen.ir.machines.occupancy import Footprint
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.loops.tilings import Work, register_shapes, tilings
from sartor.codegen.mlir.dispatches import executable_target, on_device
from sartor.codegen.mlir.iree_compiler import compile_module
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.codegen.mlir.machine import Machine, machine_of

CPUS = ("cortex-a55", "cortex-a72", "cortex-a76", "neoverse-n2", "neoverse-v1", "apple-m1")


def test_cores_differ() -> None:
    assert len({core_of_aarch64(each) for each in CPUS}) == len(CPUS)
    assert core_of_aarch64("unheard-of") == core_of_aarch64("cortex-a76")


@pytest.mark.parametrize("cpu", CPUS)
def test_the_compiler_names_the_core(cpu: str) -> None:
    target = Target.create("cpu", f"aarch64:{cpu}")
    assert core_of(target) == core_of_aarch64(cpu)
    assert (machine_of(target).lanes, core_of(target).lanes) == (4, 4)
    assert core_of(Target.create("cpu", "x86_64:x86-64-v4")) == WIDE


def _machine(cpu: str) -> Machine:
    return Machine(16, 28, core=core_of_aarch64(cpu))


def test_tiles_follow_from_the_core() -> None:
    work = Work(14, 14, 256, 1152, positions_join=False)
    assert len({tilings(work, _machine(each))[0] for each in CPUS}) > 1


@pytest.mark.parametrize("cpu", CPUS)
def test_steps_by_elements_keep_pixels_filters_and_sums_in_registers(cpu: str) -> None:
    found = [
        register_shape
        for register_shape in register_shapes(14, 14, 64, 1152, _machine(cpu))
        if register_shape.unroll == 4
    ]
    assert found
    for each in found:
        pixels = each.lines * each.columns
        assert pixels * each.vectors + pixels + each.vectors <= 31


SUM = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n%y = arith.addf %x, %x : tensor<4xf32>\n"
SUM += "return %y : tensor<4xf32> }"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_compiler_takes_an_architecture_as_it_is_written(name: str) -> None:
    target = Target.create("cuda", name)
    assert executable_target(target) == target.written_out
    code = compile_module(on_device(SUM, target), target.flags)
    assert re.search(rb"\.target (sm_\d+)", code)[1] == name.encode()  # type: ignore[index]


def test_each_architecture_has_its_own_limit_of_shared_memory() -> None:
    assert {name: architecture.shared_bytes for name, architecture in ARCHITECTURES.items()} == {
        **dict.fromkeys(("sm_86", "sm_89"), 101376),
        "sm_80": 166912,
        "sm_90": 232448,
    }
    keys = {Target.create("cuda", name).key for name in ARCHITECTURES}
    assert len(keys) == len(ARCHITECTURES)


@pytest.mark.parametrize(
    ("capability", "name"),
    [((7, 5), None), ((8, 0), "sm_80"), ((8, 7), "sm_86"), ((9, 0), "sm_90"), ((10, 0), "sm_90"), ((12, 0), "sm_89")],
)
def test_newer_gpus_run_code_for_older_ones(capability: tuple[int, int], name: str | None) -> None:
    assert newest_for(*capability) == name


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
