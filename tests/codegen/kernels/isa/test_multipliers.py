"""Instructions say which CPUs have them."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS
from sartor.codegen.kernels.isa.multiply_instruction import MultiplyInstruction
from sartor.codegen.mlir.machine import machine_of


@pytest.mark.parametrize(
    ("instruction", "requirement"),
    [
        (BFLOAT_DOTS, "avx512bf16"),
        (INTEGER_DOTS, "avx512vnni or avxvnni"),
        (BFLOAT, "amx-bf16"),
        (INTEGER, "amx-int8"),
    ],
)
def test_what_a_cpu_has_to_have(instruction: MultiplyInstruction, requirement: str) -> None:
    assert instruction.requirement == requirement


@pytest.mark.parametrize(
    ("instruction", "cpu", "lacking"),
    [
        (INTEGER_DOTS, "cascadelake", None),
        (INTEGER_DOTS, "alderlake", None),
        (INTEGER_DOTS, "skylake-avx512", "avx512vnni"),
        (INTEGER_DOTS, "x86-64-v3", "avx512vl and avx512vnni or avxvnni"),
        (INTEGER_DOTS, "aarch64:neoverse-v1", "avx512vl and avx512vnni or avxvnni"),
        (BFLOAT_DOTS, "cooperlake", None),
        (BFLOAT, "cooperlake", "amx-bf16"),
        (INTEGER, "sapphirerapids", None),
    ],
)
def test_a_refusal_names_what_is_lacking(instruction: MultiplyInstruction, cpu: str, lacking: str | None) -> None:
    machine = machine_of(Target.create("cpu", cpu))
    assert instruction.refusal(machine) == (None if lacking is None else Rejected(f"the CPU has no {lacking}"))
    assert instruction.exists_on(machine) == (lacking is None)


def test_amx_makes_most_products() -> None:
    rates = [each.rate for each in (BFLOAT_DOTS, INTEGER_DOTS, BFLOAT, INTEGER)]
    assert rates == [2, 4, 32, 64]
