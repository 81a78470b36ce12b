"""Routines: ways to compute a layer. A routine answers whether it applies, and writes the code if it does.

A routine is found by its descriptor ``device:dtype/op.algorithm{parameters}`` (SoftNeuro, section III-A).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

from sartor.codegen.digest import digest
from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.packing import Packing
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.descriptor import write_descriptor
from sartor.codegen.ir.variants.traits import PLAIN_TRAITS, DescribedVariant, Traits

Parameters = Mapping[str, tuple[int, ...] | int]

_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_OP_NAMES = {
    LayerKind.CONVOLUTION: "conv2d",
    LayerKind.DEPTHWISE: "depthwise",
    LayerKind.CONTRACTION: "matmul",
    LayerKind.POOLING: "pool",
    LayerKind.RECURRENCE: "recurrence",
    LayerKind.TOLERANT: "map",
    LayerKind.FIXED: "block",
    LayerKind.FUSED: "fused",
}

OPERATIONS = tuple(_OP_NAMES.values())
"""What descriptors call the kinds of layers."""


@dataclass(frozen=True)
class Rejected:
    """A routine does not apply; ``reason`` is shown by ``sartor routines``."""

    reason: str


def required(answer: _Answer | Rejected) -> _Answer:
    """An answer, for code that goes no further without it.

    Raises:
        RejectionError: if it is a rejection; ``choices_of`` and ``variant_of`` return that as a value again.
    """
    if isinstance(answer, Rejected):
        raise RejectionError(answer.reason)
    return answer


class KernelSource(Protocol):
    """A kernel whose code is emitted on demand."""

    @property
    def identity(self) -> str:
        """A text that determines the kernel's code."""

    def executables(self) -> tuple[str, ...]:
        """Text of its ``hal.executable`` ops."""


class Overwriting(Protocol):
    """Code, emitted on demand, that writes its result over one of its activations."""

    @property
    def operand(self) -> int:
        """Position of the overwritten activation, which has the schema of the result."""

    def implementation(self) -> Implementation:
        """The code."""


@dataclass(frozen=True)
class Implementation:
    """Code for a layer.

    Attributes:
        body: one ``util.func public @layer`` over activations, then packed weights, then a ``RANGE`` for each of
            ``ranges``, then an ``index`` for each of ``symbols``.
        inputs: schema of each activation.
        outputs: schema of each result.
        packings: for each weight, how it is packed.
        ranges: the ranges that the code takes, as ``ranges_of`` gives them: positions of activations, None for results.
        kernel: the kernel that the body dispatches, emitted on demand; such a body is not lowered any further.
        needs: CPU features, by LLVM's names, that the operating system has to grant.
        overwriting: the same code with its result written over an activation; None if that is not possible.
        step: scale that the range of the result must have; None if any scale will do.
        symbols: the sizes that the code takes when it runs.
    """

    body: str
    inputs: tuple[Schema, ...]
    outputs: tuple[Schema, ...]
    packings: tuple[Packing, ...]
    ranges: tuple[int | None, ...] = ()
    kernel: KernelSource | None = None
    needs: tuple[str, ...] = ()
    overwriting: Overwriting | None = None
    step: float | None = None
    symbols: tuple[Symbol, ...] = ()

    @property
    def output(self) -> Schema:
        """Schema of the first result. The others have the same layout, or ONNX's if that does not fit them."""
        return self.outputs[0]

    @cached_property
    def digest(self) -> str:
        """Hash of all that is emitted: MLIR, schemas and packings, and the kernel's identity in place of its MLIR."""
        packings = "|".join(map(str, self.packings))
        kernel = (self.kernel.identity,) if self.kernel else ()
        return digest(self.body, *map(str, (*self.inputs, *self.outputs)), packings, *kernel)


@dataclass(frozen=True)
class Variant:
    """A routine with its parameters, on one task.

    Attributes:
        descriptor: ``cpu:f32/conv2d.tiled{vector=7,64}``; unique within the task.
        device: where it runs.
        dtype: element type that it computes in.
        implementation: its code.
        traits: traits of its routine.
        routine: name of its routine.
        parameters: parameters of its routine, as pairs of name and value.
    """

    descriptor: str
    device: str
    dtype: str
    implementation: Implementation
    traits: Traits = PLAIN_TRAITS
    routine: str = ""
    parameters: tuple[tuple[str, tuple[int, ...] | int], ...] = ()

    @property
    def described(self) -> DescribedVariant:
        """The variant without its code."""
        numbers = {name: value for name, value in self.parameters if isinstance(value, int)}
        return DescribedVariant(self.descriptor, self.routine, self.dtype, self.traits, numbers)


def implementations_of(variants: Mapping[str, Variant]) -> dict[str, Implementation]:
    """The code of variants."""
    return {name: variant.implementation for name, variant in variants.items()}


@runtime_checkable
class Storing(Protocol):
    """A routine that may store activations and results in another element type than ONNX's."""

    @property
    def storage(self) -> str | None:
        """The element type, None for ONNX's."""


@runtime_checkable
class Rounding(Protocol):
    """A routine that may round what it multiplies to another type, while values keep theirs in memory."""

    @property
    def arithmetic(self) -> str | None:
        """The type that is multiplied, None for that of the values."""


class Named(Protocol):
    """Something that a descriptor can name."""

    @property
    def name(self) -> str:
        """The algorithm in descriptors."""


class Routine(Named, Protocol):
    """One way to compute layers."""

    @property
    def traits(self) -> Traits:
        """Facts about all its variants, for choosing among them."""

    def parameters(self, task: Task, target: Target) -> list[Parameters] | Rejected:
        """Parameter sets worth trying, best guess first, or why the routine does not apply; see ``choices_of``.

        Raises:
            RejectionError: if what it is made of rejects the task.
        """

    def build(self, task: Task, parameters: Parameters, target: Target) -> Implementation | Rejected:
        """Code for one parameter set, or why it cannot be written after all; see ``variant_of``.

        Raises:
            RejectionError: as for ``parameters``.
        """


def dtype_of(task: Task) -> str:
    """The element type a task computes in: that of its first floating-point tensor, else of its result."""
    types = [*task.results, *task.inputs]
    floats = [tensor.dtype for tensor in types if tensor.dtype in ("f32", "f16", "bf16", "f64")]
    return floats[0] if floats else types[0].dtype


def computes_in(routine: Named, task: Task) -> str:
    """The element type that a routine computes a task in."""
    arithmetic = routine.arithmetic if isinstance(routine, Rounding) else None
    storage = routine.storage if isinstance(routine, Storing) else None
    return arithmetic or storage or dtype_of(task)


def describe(routine: Named, task: Task, parameters: Parameters, target: Target) -> str:
    """The descriptor of a variant."""
    dtype, operation = computes_in(routine, task), _OP_NAMES[task.kind]
    return write_descriptor(target.device, dtype, operation, routine.name, parameters)


def choices_of(routine: Routine, task: Task, target: Target) -> list[Parameters] | Rejected:
    """The parameter sets of a routine for a task, best guess first; the reason if there are none."""
    if task.opened is not None and not routine.traits.opens:
        return Rejected("it has no code for sizes that are known only when it runs")
    return _without_fault(lambda: routine.parameters(task, target), routine.name, task)


def variants_of(routine: Routine, task: Task, target: Target) -> Iterator[Variant | Rejected]:
    """Every variant of a routine on a task; a ``Rejected`` wherever there is none."""
    choices = choices_of(routine, task, target)
    if isinstance(choices, Rejected):
        yield choices
        return
    for parameters in choices:
        yield variant_of(routine, task, parameters, target)


def variant_of(routine: Routine, task: Task, parameters: Parameters, target: Target) -> Variant | Rejected:
    """The variant of a routine for one of its parameter sets; the reason if there is none."""
    built = _without_fault(lambda: routine.build(task, parameters, target), routine.name, task)
    if isinstance(built, Rejected):
        return built
    return Variant(
        *(describe(routine, task, parameters, target), target.device, computes_in(routine, task), built),
        traits=routine.traits,
        routine=routine.name,
        parameters=tuple(parameters.items()),
    )


def _without_fault(answer: Callable[[], _Answer], name: str, task: Task) -> _Answer | Rejected:
    """What a routine answers. A fault of its own is said to be one, and costs this candidate, not the compilation."""
    try:
        return answer()
    except RejectionError as error:
        return Rejected(error.reason)
    except ValueError as error:
        note_fault(name, task, error)
        return Rejected(f"it failed by a fault of its own, {error}")


def note_fault(name: str, task: Task, error: ValueError) -> None:
    """Tell the user that a routine failed on a layer by a fault of its own."""
    _LOG.warning(
        "the routine %s failed on the layer %s by a fault of its own, and is left out: please report it",
        *(name, task.key),
        exc_info=error,
    )


def pair(value: tuple[int, ...] | int) -> tuple[int, int]:
    """A parameter that is two numbers.

    Raises:
        TypeError: if it is one number.
    """
    if isinstance(value, int):
        raise TypeError(f"{value} is not a pair")
    first, second = value
    return first, second


def integers(value: tuple[int, ...] | int) -> tuple[int, ...]:
    """A parameter that is several numbers.

    Raises:
        TypeError: if it is one number.
    """
    if isinstance(value, int):
        raise TypeError(f"{value} is not several numbers")
    return value


def integer(value: tuple[int, ...] | int) -> int:
    """A parameter that is one number.

    Raises:
        TypeError: if it is several.
    """
    if not isinstance(value, int):
        raise TypeError(f"{value} is not a single number")
    return value
