"""Targets by the user's names, and what they make the compiler do."""

from __future__ import annotations

import pytest

from sartor.codegen.iree_compiler import compile_module, ir, run_passes, translate
from sartor.codegen.target import DEVICES, Target
from sartor.errors import CompileError, UsageError

IDENTITY = "util.func public @f(%arg0: tensor<4xf32>) -> tensor<4xf32> { util.return %arg0 : tensor<4xf32> }"


@pytest.mark.parametrize("device", DEVICES)
def test_every_device_has_a_default_architecture(device: str) -> None:
    target = Target.create(device)
    assert str(target) == f"{device}:{target.architecture}"
    assert any(target.architecture in flag for flag in target.device_flags)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="'tpu' is no target"):
        Target.create("tpu")


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
