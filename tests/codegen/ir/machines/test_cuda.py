"""CUDA's architectures as they are written out."""

from __future__ import annotations

import re

import pytest

from sartor.codegen.ir.machines.cuda import ARCHITECTURES, newest_for
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import executable_target, on_device
from sartor.codegen.mlir.iree_compiler import compile_module

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
