"""A layer that is one kernel, whose code is emitted only when it is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Protocol, Self, runtime_checkable

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.analysis.rounded_result import step_of
from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import RANGE, Schema, physical_types, ranges_of
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, KernelSource, Overwriting, Parameters, Rejected
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.executable import Kernel
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.emit.workgroup_counts import check_groups
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.codegen.source_digest import source_digest
from sartor.devices import CPU

# To wake another thread takes 5 to 50 microseconds. A core does about so much in a second.
_SHORT, _OPERATIONS_PER_SECOND, _BYTES_PER_SECOND = 10e-6, 1.5e11, 1.5e11
_KERNEL = "kernel"


class KernelCode(Protocol):
    """The code of a kernel."""

    @property
    def groups(self) -> tuple[int, int, int]:
        """Number of workgroups in each dimension."""

    @property
    def lanes(self) -> int:
        """Elements of a vector."""

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code."""


@runtime_checkable
class OverwritingCode(KernelCode, Protocol):
    """Code that may write its result over one of its arguments."""

    @property
    def tied(self) -> int | None:
        """Position of the buffer that the result is written over; None if it has memory of its own."""

    def over(self) -> OverwritingCode | None:
        """The same code with its result written over an argument; None if a number would be read after it was
        overwritten."""


@runtime_checkable
class ThreadCode(KernelCode, Protocol):
    """Code of one thread on a GPU."""

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""


@dataclass(frozen=True)
class KernelParts:
    """The parts of a layer that depend on its kernel.

    Attributes:
        code: what the kernel computes.
        workspace: type of further memory that it needs; None for none.
        factor: position of the buffer that is multiplied by filters; None if the kernel is no contraction.
    """

    code: KernelCode
    workspace: TensorType | None = None
    factor: int | None = None


@dataclass(frozen=True)
class KernelLayer:
    """A layer that one kernel computes.

    Attributes:
        task: the layer.
        rewrites: rewrites of its stages, whose ops the code refers to, and whose packings the weights have.
        inputs: schema of each activation.
        output: schema of the result.
        code: what the kernel computes.
        workspace: type of further memory that the kernel needs; None for none.
        needs: CPU features that the operating system has to grant, by LLVM's names.
        factor: position of the argument that is multiplied by filters; None if the kernel is no contraction.
        flags: type of memory that is zero when the kernel starts, by which its workgroups tell each other how far they
            are; None for none.
    """

    task: Task
    rewrites: tuple[Rewrite, ...]
    inputs: tuple[Schema, ...]
    output: Schema
    code: KernelCode
    workspace: TensorType | None = None
    needs: tuple[str, ...] = ()
    factor: int | None = None
    flags: TensorType | None = None

    @staticmethod
    def of(
        task: Task,
        rewrite: Rewrite,
        inputs: tuple[Schema, ...],
        output: Schema,
        parts: KernelParts,
        needs: tuple[str, ...] = (),
    ) -> KernelLayer:
        """A layer of one stage."""
        return KernelLayer(task, (rewrite,), inputs, output, parts.code, parts.workspace, needs, parts.factor)

    @property
    def packings(self) -> tuple[Packing, ...]:
        """The packing of each weight."""
        return tuple(packing for rewrite in self.rewrites for packing in rewrite.packings)

    @property
    def kernel(self) -> Kernel:
        """Interface of the kernel."""
        task = self.task
        reads = physical_types(task.inputs, self.inputs)
        reads += [packing.type_of(weight) for weight, packing in zip(task.weights, self.packings, strict=True)]
        reads += [RANGE] * len(self.ranges)
        results = [self.output.physical(task.results[0]), *([self.workspace] if self.workspace else [])]
        threads = self.code.threads if isinstance(self.code, ThreadCode) else None
        groups, lanes = self.code.groups, self.code.lanes
        flags, symbols = self.flags, self.symbols
        own = self.tied, threads, flags, symbols, _little(task) if symbols and self.output.device == CPU else 0
        return Kernel(_KERNEL, tuple(reads), tuple(results), groups, lanes, *own)

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The sizes that the kernel takes when it runs."""
        return () if self.task.opened is None else self.task.opened.symbols

    @property
    def groups(self) -> tuple[tuple[int, int, int], ...]:
        """Number of workgroups in each dimension, of each kernel."""
        return (self.code.groups,)

    @property
    def tied(self) -> int | None:
        """Position of the activation that the result is written over; None if it has memory of its own."""
        return self.code.tied if isinstance(self.code, OverwritingCode) else None

    @property
    def overwriting(self) -> KernelLayer | None:
        """The layer with its result written over an activation of the same type; None if the code cannot do that, or
        its sizes are known only when it runs."""
        if self.symbols:
            return None
        code = self.code.over() if isinstance(self.code, OverwritingCode) else None
        if code is None or code.tied is None or code.tied >= len(self.inputs):
            return None
        kernel = self.kernel
        return replace(self, code=code) if kernel.reads[code.tied] == kernel.results[0] else None

    @property
    def ranges(self) -> tuple[int | None, ...]:
        """The ranges that the kernel takes: positions of activations, None for the result."""
        return ranges_of((*self.task.inputs, self.task.results[0]), (*self.inputs, self.output))

    @property
    def step(self) -> float | None:
        """The step that the layer rounds its result to, if that is stored in 8 bits; it has to be the scale of its
        range."""
        return step_of(self.task) if None in self.ranges else None

    def write(self, asm: Assembler, memories: Sequence[ir.Value], group: tuple[Index, Index, Index]) -> None:
        """Emit one workgroup's code; ranges are removed from the buffers, as the code knows activations, weights,
        results."""
        given = len(self.inputs) + len(self.packings)
        ranges = memories[given : given + len(self.ranges)]
        rest = [*memories[:given], *memories[given + len(ranges) :]]
        for position, numbers in zip(self.ranges, ranges, strict=True):
            if position is None:
                asm.quantise(rest[given], numbers, self.step)
            else:
                asm.quantise(rest[position], numbers)
        self.code.write(asm, rest, group)

    def executables(self, target: Target) -> tuple[str, ...]:
        """Text of the layer's ``hal.executable``.

        Raises:
            RejectionError: if it is not valid.
        """
        return (self.kernel.executable(target, self.write),)

    @property
    def body(self) -> str:
        """The layer's function, which dispatches the kernel."""
        kernel = self.kernel
        names = [f"%a{index}" for index in range(len(kernel.reads))]
        typed = [f"{name}: {read}" for name, read in zip(names, kernel.reads, strict=True)]
        arguments = ", ".join([*typed, *(f"%s{index}: index" for index in range(len(self.symbols)))])
        result = kernel.results[0]
        return "\n".join(
            [
                f"util.func public @layer({arguments}) -> {result} {{",
                f"  {kernel.dispatch(names)}",
                f"  util.return {'%r#0' if self.workspace or self.flags else '%r'} : {result}",
                "}",
            ]
        )

    def implementation(self, kernel: KernelSource, overwriting: Overwriting | None = None) -> Implementation:
        """The layer's code, whose body dispatches ``kernel``."""
        return Implementation(
            body=self.body,
            inputs=self.inputs,
            outputs=(self.output,),
            packings=self.packings,
            ranges=self.ranges,
            kernel=kernel,
            needs=self.needs,
            overwriting=overwriting,
            step=self.step,
            symbols=self.symbols,
        )


class KernelRoutine(Protocol):
    """A routine whose variants are kernels."""

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""

    def layer(self, task: Task, parameters: Parameters, target: Target) -> KernelLayer:
        """The kernel for one parameter set.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """


@dataclass(frozen=True)
class DeferredKernel:
    """All that is needed to emit a kernel.

    Attributes:
        routine: emits it.
        task: what it computes.
        parameters: parameters of the routine.
        target: what it is compiled for.
        sources: digest of the source of the routine and of what that imports.
        overwrites: whether its result is written over an activation.
    """

    routine: KernelRoutine
    task: Task
    parameters: tuple[tuple[str, tuple[int, ...] | int], ...]
    target: Target
    sources: str
    overwrites: bool = False

    @classmethod
    def of(cls, routine: KernelRoutine, task: Task, parameters: Parameters, target: Target) -> Self:
        """The kernel of a routine, with the digest of its current source."""
        return cls(routine, task, tuple(parameters.items()), target, source_digest(*modules_of(routine)))

    @property
    def identity(self) -> str:
        """All that determines the code, including the source of the routine."""
        kernel = f"{self.sources} {self.routine} {self.task.key} {self.parameters} {self.target.key}"
        return f"{kernel} overwriting" if self.overwrites else kernel

    def layer(self) -> KernelLayer:
        """The layer that the kernel computes.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        layer = self.routine.layer(self.task, dict(self.parameters), self.target)
        chosen = layer.overwriting if self.overwrites else layer
        if chosen is None:
            raise RejectionError("the result cannot be written over an activation")
        return chosen

    def executables(self) -> tuple[str, ...]:
        """Text of the kernel's ``hal.executable``.

        Raises:
            RejectionError: if it is not valid.
        """
        return self.layer().executables(self.target)


@dataclass(frozen=True)
class OverwritingKernel:
    """A kernel's implementation with the result written over an activation.

    Attributes:
        operand: position of the activation.
        kernel: emits the code.
    """

    operand: int
    kernel: DeferredKernel

    def implementation(self) -> Implementation:
        """The code, with the same arguments and results as without overwriting.

        Raises:
            RejectionError: if there is no kernel for the layer.
        """
        return self.kernel.layer().implementation(self.kernel)


def modules_of(routine: object) -> tuple[str, ...]:
    """Modules of a routine and of the routines that it wraps, which its own module need not import."""
    wrapped = [getattr(routine, field.name) for field in fields(routine)] if is_dataclass(routine) else []
    inner = [name for part in wrapped if is_dataclass(part) for name in modules_of(part)]
    return tuple(dict.fromkeys((type(routine).__module__, *inner)))


def build_kernel(
    routine: KernelRoutine, task: Task, parameters: Parameters, target: Target
) -> Implementation | Rejected:
    """The implementation of a task by a kernel routine, or why there is none."""
    try:
        layer = routine.layer(task, parameters, target)
        for groups in layer.groups:
            check_groups(groups, target)
    except RejectionError as error:
        return Rejected(error.reason)
    kernel = DeferredKernel.of(routine, task, parameters, target)
    overwriting, over = layer.overwriting, None
    if overwriting is not None and overwriting.tied is not None:
        over = OverwritingKernel(overwriting.tied, replace(kernel, overwrites=True))
    return layer.implementation(kernel, over)


def _little(task: Task) -> int:
    """Elements of the result that a thread computes in a time that is too short to be shared.

    Where operations for an element grow with sizes, they are those of the largest.
    """
    elements = max(1, task.results[0].elements)
    moved = sum(tensor.bytes for tensor in (*task.inputs, *task.results))
    seconds = operation_count(task) / _OPERATIONS_PER_SECOND + moved / _BYTES_PER_SECOND
    return round(_SHORT * elements / max(seconds, 1e-12))
