"""Layers and tasks: what is computed, apart from how."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np

from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.dims import Dim, Extent, Symbol, at_most
from sartor.codegen.ir.sizes.fit import Fit

_NUMPY: dict[str, Any] = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": ml_dtypes.bfloat16,
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "ui8": "uint8",
    "i1": "bool",
}

BF16, F16, F32, F64 = "bf16", "f16", "f32", "f64"
I8, I32, I64 = "i8", "i32", "i64"
ELEMENT_TYPES = tuple(_NUMPY)
"""MLIR's names of the types that tensors may have."""

VIEW = "!hal.buffer_view"
"""The type of what stands for a tensor of open size in functions."""

ENTRY = "main_graph"
"""The function that runs the network, in every module."""

PLAIN = 64
"""Integers that are no indices are drawn from ``range(PLAIN)``."""


@dataclass(frozen=True)
class TensorType:
    """A tensor type.

    Attributes:
        shape: its sizes; of those that are known only when it runs, the largest that they may be.
        dtype: MLIR's element type, for example ``f32``.
        dims: its sizes with what those follow from that are known only when it runs; None if all are known.
    """

    shape: tuple[int, ...]
    dtype: str
    dims: tuple[Dim, ...] | None = None

    def __str__(self) -> str:
        """The type in MLIR."""
        sizes = (f"{size}x" if isinstance(size, int) else "?x" for size in self.dims or self.shape)
        return f"tensor<{''.join(sizes)}{self.dtype}>"

    @staticmethod
    def of_dims(dims: Sequence[Dim], dtype: str) -> TensorType:
        """The type with these sizes."""
        is_open = any(isinstance(dim, Extent) for dim in dims)
        return TensorType(at_most(dims), dtype, tuple(dims) if is_open else None)

    @property
    def open_dims(self) -> tuple[Extent, ...]:
        """The sizes that are known only when it runs, in order."""
        return tuple(dim for dim in self.dims or () if isinstance(dim, Extent))

    def at(self, sizes: Mapping[str, int]) -> TensorType:
        """The type for sizes of the symbols, by their names."""
        shape = tuple(dim if isinstance(dim, int) else dim.at(sizes) for dim in self.dims or self.shape)
        return TensorType(shape, self.dtype)

    @property
    def is_f32(self) -> bool:
        """Whether its elements are of the type that kernels compute in."""
        return self.dtype == F32

    @property
    def is_f64(self) -> bool:
        """Whether its elements are of the type that no kernel computes in."""
        return self.dtype == F64

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        """The numpy type of the same element.

        Raises:
            KeyError: if numpy has no such type.
        """
        dtype: np.dtype[np.generic] = np.dtype(_NUMPY[self.dtype])
        return dtype

    @property
    def bytes(self) -> int:
        return self.elements * (self.numpy_dtype.itemsize if self.dtype in _NUMPY else 4)

    @staticmethod
    def of(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> TensorType:
        """The type of numpy arrays of this shape and type; an element type that MLIR lacks keeps numpy's name."""
        names = {np.dtype(kind).name: short for short, kind in _NUMPY.items()}
        return TensorType(shape, names.get(dtype.name, dtype.name))

    @staticmethod
    def parse(text: str) -> TensorType:
        """Read ``tensor<1x3xf32>``.

        Raises:
            RejectionError: if a dimension is dynamic or the type carries an encoding.
        """
        *sizes, dtype = text.removeprefix("tensor<").removesuffix(">").split("x")
        try:
            return TensorType(tuple(int(size) for size in sizes), dtype)
        except ValueError:
            raise RejectionError(f"{text} is no tensor of known sizes") from None


class LayerKind(StrEnum):
    """Kind of a layer's root op; routines accept or reject a task by it."""

    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise"
    CONTRACTION = "contraction"
    POOLING = "pooling"
    RECURRENCE = "recurrence"
    TOLERANT = "tolerant"
    FIXED = "fixed"
    FUSED = "fused"


@dataclass(frozen=True)
class Stage:
    """A task within a fused one.

    Attributes:
        task: what it computes.
        inputs: for each activation of the stage its position in the fused task; None for the previous stage's result.
    """

    task: Task
    inputs: tuple[int | None, ...]


@dataclass(frozen=True)
class Task:
    """A class of layers that are equal up to the values of their weights.

    Attributes:
        key: hash of the computation.
        kind: what the root op is.
        body: one private ``util.func @layer`` over activations, then weights.
        inputs: types of the activations.
        weights: types of the weights, in ONNX layout.
        results: types of the results.
        stages: the tasks that a fused task computes in turn, their weights in the same order; empty for other tasks.
        opened: the same computation for sizes that are known only when it runs, which ``inputs`` and ``results`` name;
            ``body`` is that for the largest. None if all sizes are known.
    """

    key: str
    kind: LayerKind
    body: str
    inputs: tuple[TensorType, ...]
    weights: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    stages: tuple[Stage, ...] = ()
    opened: OpenedTask | None = None

    @property
    def tensors(self) -> tuple[TensorType, ...]:
        """The types of activations, weights and results."""
        return (*self.inputs, *self.weights, *self.results)


@dataclass(frozen=True)
class OpenedTask:
    """A task for sizes that are known only when it runs.

    Attributes:
        fit: the symbols that its sizes follow from, and their values in ``twin``.
        body: one ``util.func public @layer`` over activations, then weights, then the symbols' values as ``index``.
        twin: the task with other sizes than the largest, all of them known. Code in which both agree, but for extents
            that it takes when it runs, is code for all sizes.
        ends: positions of weights that are tables of which a call reads the end, and not the beginning.
    """

    fit: Fit
    body: str
    twin: Task
    ends: tuple[int, ...] = ()

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols whose values the code takes, in order."""
        return self.fit.symbols


def task_key(body: str, *differences: str) -> str:
    """Hash of a task's code, and of further texts that distinguish it from tasks with the same code."""
    return hashlib.sha256("\0".join((body, *differences)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ValueRef:
    """A tensor in the graph: result ``index`` of layer ``source``, or network input ``index`` if ``source`` is None."""

    source: str | None
    index: int


@dataclass(frozen=True)
class Layer:
    """One use of a task in the network.

    Attributes:
        name: unique, after the root's ONNX node.
        nodes: ONNX nodes computed here.
        task: what is computed.
        inputs: where each activation comes from.
        weights: name of each weight.
    """

    name: str
    nodes: tuple[str, ...]
    task: Task
    inputs: tuple[ValueRef, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True)
class Fusion:
    """Layers that one fused layer may replace.

    Attributes:
        layer: the fused layer.
        members: names of the layers that it replaces, one for each stage of its task.
    """

    layer: Layer
    members: tuple[str, ...]


@dataclass(frozen=True)
class NetworkValue:
    """A network input or output.

    Attributes:
        name: ONNX's.
        type: type that the module computes with, integers being signless as in MLIR.
        dtype: numpy's name of the element type that callers pass.
        source: where an output comes from; None for an input, and for an output that is a constant.
        constant: name of the weight that an output is, if it depends on no input.
    """

    name: str
    type: TensorType
    dtype: str
    source: ValueRef | None = None
    constant: str | None = None
