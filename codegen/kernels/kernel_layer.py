"""A layer that is one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sartor.codegen.draft import Draft
from sartor.codegen.iree_compiler import ir
from sartor.codegen.kernels.assembler import Assembler, Index
from sartor.codegen.kernels.executable import Kernel
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import physical_type
from sartor.codegen.routine import Implementation
from sartor.codegen.target import Target

_KERNEL = "kernel"


class KernelCode(Protocol):
    """What a kernel does."""

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""

    @property
    def lanes(self) -> int:
        """Elements of a vector."""

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""


def kernel_implementation(
    draft: Draft,
    inputs: tuple[str, ...],
    output: str,
    code: KernelCode,
    target: Target,
    workspace: TensorType | None = None,
) -> Implementation:
    """The implementation of a layer by one kernel over its arguments as they lie in memory.

    Args:
        draft: the layer; its packings are how the kernel reads the weights.
        inputs: layout of each activation.
        output: layout of the result.
        code: what the kernel computes.
        target: what it is compiled for.
        workspace: memory that the kernel needs besides.

    Raises:
        ValueError: if the kernel cannot be written.
    """
    task, packings = draft.task, draft.packings
    reads = [physical_type(each, layout) for each, layout in zip(task.inputs, inputs, strict=True)]
    reads += [packing.type_of(each) for each, packing in zip(task.weights, packings, strict=True)]
    result = physical_type(task.results[0], output)
    kernel = Kernel(_KERNEL, tuple(reads), (result, *([workspace] if workspace else [])), code.groups, code.lanes)
    names = [f"%a{index}" for index in range(len(reads))]
    arguments = ", ".join(f"{name}: {each}" for name, each in zip(names, reads, strict=True))
    body = "\n".join(
        [
            f"util.func public @layer({arguments}) -> {result} {{",
            f"  {kernel.dispatch(names)}",
            f"  util.return {'%r#0' if workspace else '%r'} : {result}",
            "}",
        ]
    )
    executable = kernel.executable(target, code.write)
    return Implementation(body, inputs, output, tuple(packings), (executable,))
