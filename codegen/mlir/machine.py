"""Properties of a CPU target: vector width, registers and features.

They are read off the compiler's output, so every CPU that it supports works without a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sartor.codegen.ir.layer import F16, F32, Task
from sartor.codegen.ir.machines.core import WIDE, Core, core_of_aarch64
from sartor.codegen.ir.target import Target, cpu_features
from sartor.codegen.ir.variants.routine import Rejected
from sartor.codegen.mlir.iree_compiler import load_dialects, translate

Flags = tuple[str, ...]
"""The compiler's flags for a target, by which its answers are known."""

_FLOATS = (F32, F16)
_ACCUMULATOR_BYTES = 4
_FALLBACK_VECTOR = 16
_AVX512_VECTOR = 64
_OPERANDS = 4
_ACCUMULATORS_OF_32 = 28
_ACCUMULATORS_OF_16 = 12
# The compiler writes what it knows of a CPU beside each executable.
_ANY_CODE = """util.func public @doubled(%given: tensor<64xf32>) -> tensor<64xf32> {
  %result = arith.addf %given, %given : tensor<64xf32>
  util.return %result : tensor<64xf32>
}"""


@dataclass(frozen=True)
class Machine:
    """A CPU as its code generator sees it.

    Attributes:
        vector_bytes: width of a vector register.
        accumulators: vector registers that a kernel can use for sums; the others are left for operands.
        threads: worker threads that the work of a kernel is partitioned for.
        features: CPU features, by LLVM's names.
        withheld: features that the operating system does not let programs use.
        core: what the analytic models know of it.
        in_subgroups: whether it is a GPU, a subgroup being a vector.
    """

    vector_bytes: int
    accumulators: int
    threads: int = 1
    features: frozenset[str] = frozenset()
    withheld: tuple[str, ...] = ()
    core: Core = WIDE
    in_subgroups: bool = False

    def refusal(self, feature: str) -> Rejected | None:
        """Why code cannot use a feature; None if it can."""
        if feature not in self.features:
            return Rejected(f"the CPU has no {feature}")
        if feature in self.withheld:
            return Rejected(f"the operating system does not let programs use the CPU's {feature}")
        return None

    @property
    def lanes(self) -> int:
        """Sums in a vector register. They are f32 or i32, whatever the type of operands."""
        return self.vector_bytes // _ACCUMULATOR_BYTES

    @property
    def registers(self) -> int:
        """Vector registers."""
        return self.accumulators + _OPERANDS

    def with_lanes(self, lanes: int) -> Machine:
        """The machine with vectors of another number of sums: parts of registers, or several registers each."""
        together = max(1, lanes // self.lanes)
        size = lanes * _ACCUMULATOR_BYTES
        core = replace(
            self.core,
            vector_bytes=size,
            multiplies=self.core.multiplies / together,
            loads=self.core.loads / together,
        )
        return replace(self, vector_bytes=size, accumulators=max(1, self.registers // together - _OPERANDS), core=core)

    def pixels(self, vectors: int, spare: int = 0, *, prepares: bool = False) -> int:
        """The most pixels of a register tile with ``vectors`` vectors of channels, if ``spare`` registers are left
        free.

        Registers hold the sums and the vectors. One more holds the pixel's number, unless the instruction broadcasts it
        from memory, as AVX-512's can if the number is not changed first (``prepares``).
        """
        number = 0 if self.vector_bytes == _AVX512_VECTOR and not prepares else 1
        free = min(self.accumulators, self.registers - vectors - number)
        return max(0, free - spare) // vectors


def get_ready(target: Target) -> None:
    """Load what is needed to ask routines about layers, and ask the compiler about each CPU of a target.

    Both take some tenths of a second, once in a process, and others may be waited for meanwhile.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    load_dialects()
    for part in target.each:
        if part.is_cpu:
            machine_of(part)


def answers_about(target: Target) -> dict[Flags, Machine]:
    """What the compiler says of each CPU of a target, which another process need not ask again (``take_answers``).

    Raises:
        CompileError: if the compiler rejects the target.
    """
    return {part.flags: _asked(part.flags) for part in target.each if part.is_cpu}


def take_answers(answers: Mapping[Flags, Machine]) -> None:
    """Take over what another process was told."""
    _ANSWERS.update(answers)


def float_machine(task: Task, target: Target) -> Machine | Rejected:
    """The CPU that a layer over f32 or f16 is compiled for; Rejected for other types and targets."""
    if not target.is_cpu:
        return Rejected("it needs IREE's CPU pipelines")
    if any(tensor.dtype not in _FLOATS for tensor in (*task.inputs, *task.weights, *task.results)):
        return Rejected("its element types are not f32 and f16")
    return machine_of(target)


def machine_of(target: Target) -> Machine:
    """The CPU of a target.

    Raises:
        CompileError: if the compiler rejects the target.
    """
    return replace(_asked(target.flags), threads=target.threads, withheld=target.withheld)


_ANSWERS: dict[Flags, Machine] = {}


def _asked(flags: Flags) -> Machine:
    """What the compiler says; it is asked once in a process."""
    if flags not in _ANSWERS:
        _ANSWERS[flags] = _answer(flags)
    return _ANSWERS[flags]


def _answer(flags: Flags) -> Machine:
    text = translate(_ANY_CODE, flags, to="executable-configurations")
    width = re.search(r"native_vector_size = (\d+)", text)
    vector = int(width[1]) if width else _FALLBACK_VECTOR
    is_arm = "aarch64" in text
    accumulators = _ACCUMULATORS_OF_32 if vector == _AVX512_VECTOR or is_arm else _ACCUMULATORS_OF_16
    name = re.search(r'cpu = "([^"]*)"', text)
    core = core_of_aarch64(name[1] if name else "") if is_arm else replace(WIDE, vector_bytes=vector)
    return Machine(vector, accumulators, features=cpu_features(text), core=core)
