"""Tests of NVIDIA's GPUs as Vulkan targets."""

from __future__ import annotations

import re

import pytest

from sartor.codegen.ir.machines.vulkan import NVIDIA
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import executable_target, on_device
from sartor.codegen.mlir.iree_compiler import translate

pytestmark = pytest.mark.vulkan

_SHARED = re.compile(r"max_workgroup_memory_bytes = (\d+)")
_ADD = (
    "util.func public @add(%a: tensor<4xf32>) -> tensor<4xf32> "
    "{ %b = arith.addf %a, %a : tensor<4xf32> util.return %b : tensor<4xf32> }"
)


@pytest.mark.parametrize("name", NVIDIA)
def test_only_the_shared_memory_differs_from_what_iree_knows(name: str) -> None:
    target = Target.create("vulkan", name)
    own = executable_target(target)
    (stock,) = set(re.findall(r"#hal\.executable\.target<.*>", translate(_ADD, target.flags, to="flow")))
    assert _SHARED.sub("", own) in _SHARED.sub("", stock)
    assert _SHARED.findall(own) == [str(48 << 10)]
    assert int(_SHARED.findall(stock)[0]) > 48 << 10


def test_other_gpus_are_those_that_iree_knows() -> None:
    for name in ("llvmpipe", "rdna3", "valhall4"):
        target = Target.create("vulkan", name)
        assert target.written_out is None
        assert on_device(_ADD, target) == _ADD
