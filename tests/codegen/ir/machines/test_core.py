"""CPUs of 64-bit Arm have cores of their own, and kernels for them have other sizes."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.machines.core import WIDE, core_of_aarch64
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.loops.tilings import Work, register_shapes, tilings
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
