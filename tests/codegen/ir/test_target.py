"""Targets by the user's names, and what they make the compiler do."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import compile_module, ir, run_passes, translate
from sartor.devices import KINDS
from sartor.errors import CompileError, UsageError

ADDITION = """util.func public @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %sum = arith.addf %x, %x : tensor<4xf32>
  util.return %sum : tensor<4xf32>
}"""
IDENTITY = "util.func public @f(%arg0: tensor<4xf32>) -> tensor<4xf32> { util.return %arg0 : tensor<4xf32> }"


@pytest.mark.parametrize("device", KINDS)
def test_every_device_has_a_default_architecture(device: str) -> None:
    target = Target.create(device)
    assert str(target) == f"{device}:{target.architecture}"
    assert any(target.architecture in flag for flag in target.device_flags)


def test_the_cpu_is_the_first_of_two_devices() -> None:
    target = Target.joined([Target.create("vulkan"), Target.create("cpu")])
    assert str(target) == "cpu:host,vulkan:llvmpipe"
    assert target.devices == ("cpu", "vulkan")
    assert target.of("cpu") == Target.create("cpu")
    assert target.of("vulkan").flags != target.of("cpu").flags == target.flags
    assert target.key != Target.create("cpu").key


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("vulkan", "cuda"), ("cpu", "vulkan", "cuda")])
def test_other_devices_do_not_work_together(devices: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="several devices are cpu,vulkan or cpu,cuda"):
        Target.joined([Target.create(device) for device in devices])


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="'tpu' is not a target"):
        Target.create("tpu")


@pytest.mark.parametrize("architecture", ["", ":", "aarch64:", ":neoverse-n1", "aarch64::generic"])
def test_an_architecture_of_which_a_part_is_missing_is_refused(architecture: str) -> None:
    message = f"'{architecture}' is not an architecture, expected for example host or aarch64:"
    with pytest.raises(UsageError, match=message):
        Target.create("cpu", architecture)


def test_a_cpu_may_have_another_instruction_set() -> None:
    target = Target.create("cpu", "aarch64:neoverse-n1")
    assert str(target) == "cpu:aarch64:neoverse-n1"
    assert (target.isa, Target.create("cpu", "x86-64-v3").isa, Target.create("cuda").isa) == ("aarch64", None, None)
    assert "--iree-llvmcpu-target-cpu=neoverse-n1" in target.device_flags
    assert any(flag.startswith("--iree-llvmcpu-target-triple=aarch64-") for flag in target.device_flags)
    assert not any("triple" in flag for flag in Target.create("cpu").device_flags)
    assert b"embedded-elf-arm_64" in compile_module(ADDITION, target.flags)


def test_the_compilers_diagnostic_is_in_the_error() -> None:
    with pytest.raises(CompileError, match="undeclared SSA value"):
        compile_module(IDENTITY.replace("return %arg0", "return %no_such_value"), Target.create("cpu").flags)
    with pytest.raises(CompileError, match="refused a flag"):
        translate(IDENTITY, ("--no-such-flag",), to="flow")
    with ir.Context():
        module = ir.Module.parse(IDENTITY)
    with pytest.raises(CompileError, match="no-such-pass"):
        run_passes(module, "builtin.module(no-such-pass)")


def test_compilation_is_deterministic() -> None:
    flags = Target.create("cpu").flags
    assert compile_module(IDENTITY, flags) == compile_module(IDENTITY, flags)


def test_of_vulkans_targets_one_is_software() -> None:
    assert Target.create("vulkan").is_software
    others = (Target.create("vulkan", "ampere"), Target.create("vulkan", "rdna3"), Target.create("cpu"))
    assert not any(each.is_software for each in (*others, Target.create("cuda")))
