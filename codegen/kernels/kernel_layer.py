"""A layer that is one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sartor.codegen.draft import Draft
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.assembler import Assembler, Index
from sartor.codegen.kernels.executable import Kernel
from sartor.codegen.kernels.nest import Nest
from sartor.codegen.layouts import physical_type
from sartor.codegen.routine import Implementation
from sartor.codegen.target import Target

_KERNEL = "kernel"


class KernelCode(Protocol):
    """What fills the loops of a nest."""

    @property
    def nest(self) -> Nest:
        """The loops."""

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""


def kernel_implementation(
    draft: Draft, inputs: tuple[str, ...], output: str, code: KernelCode, target: Target
) -> Implementation:
    """The implementation of a layer by one kernel over its arguments as they lie in memory.

    Args:
        draft: the layer; its packings are how the kernel reads the weights.
        inputs: layout of each activation.
        output: layout of the result.
        code: what the kernel computes.
        target: what it is compiled for.

    Raises:
        ValueError: if the kernel cannot be written.
    """
    task, packings = draft.task, draft.packings
    reads = [physical_type(each, layout) for each, layout in zip(task.inputs, inputs, strict=True)]
    reads += [packing.type_of(each) for each, packing in zip(task.weights, packings, strict=True)]
    result = physical_type(task.results[0], output)
    kernel = Kernel(_KERNEL, tuple(reads), result, code.nest.groups, code.nest.lanes)
    names = [f"%a{index}" for index in range(len(reads))]
    arguments = ", ".join(f"{name}: {each}" for name, each in zip(names, reads, strict=True))
    body = "\n".join(
        [
            f"util.func public @layer({arguments}) -> {result} {{",
            f"  {kernel.dispatch(names, '%r')}",
            f"  util.return %r : {result}",
            "}",
        ]
    )
    executable = kernel.executable(target, code.write)
    return Implementation(body, inputs, output, tuple(packings), (executable,))
