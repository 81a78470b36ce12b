"""Sartor as ONNX's own interface for runtimes sees it (``onnx.backend.base``).

    rep = sartor.backend.prepare(onnx.load("model.onnx"))
    outputs = rep.run([array])

It is for models that are run a few times: every model is compiled by IREE's stock lowering, and nothing is tuned. A
model with free dimensions becomes a module for any size where that can be made, else one for each. Where a model's
shapes depend on values of inputs (a shape, axes, sizes), or inputs are texts, it is compiled when it is run, for those
values.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, defs, helper
from onnx.backend.base import Backend, BackendRep

from sartor.codegen.ir.target import Target
from sartor.devices import CPU, KINDS
from sartor.errors import SartorError, UsageError
from sartor.frontend.stock_module import compile_stock, run_once
from sartor.frontend.target_check import runs_here
from sartor.onnx_model.graphs.graph import opset
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.preparing.prepare import resolve_interface
from sartor.onnx_model.preparing.shape_inputs import shape_inputs, with_values
from sartor.onnx_model.rewrites.control_flow.tensor_interface import (
    PackedOutput,
    Value,
    has_tensors_only,
    tensor_inputs,
)
from sartor.onnx_model.rewrites.operator_sets.fractional_corners import fractional_corners
from sartor.onnx_model.rewrites.operator_sets.normal_domains import lacks_domain, normal_domains
from sartor.open_sizes.stock import compile_any_size
from sartor.open_sizes.stock_ranges import are_within, open_shapes, ranges_with, several, sizes_of
from sartor.open_sizes.symbols import dims_of
from sartor.runtime.driver.signature import Array, plain_array
from sartor.runtime.session import Session
from sartor.settings.size_range import OpenShapes, SizeRange
from sartor.tuning.workers.calls import call, open_pool
from sartor.tuning.workers.pool import WorkerPool

__all__ = ["SartorBackend", "SartorRep", "prepare", "run_model", "run_node", "supports_device"]

_LOG = logging.getLogger(__name__)
_TARGETS = {kind.upper(): kind for kind in KINDS}
_TIMEOUT = 600.0
# What may follow a device's kind and a colon.
_FIRST = ("", "0")


@dataclass(frozen=True)
class BoundModel:
    """A model for inputs of known shapes.

    Attributes:
        model: inputs whose values decide shapes, and texts, have become constants.
        shapes: shape of each input that has free dimensions.
        feeds: the other inputs, those of sequences one by one.
        key: differs if another module is needed.
        outputs: how the outputs are made of the module's; None if they are the same.
    """

    model: ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    feeds: dict[str, Array]
    key: tuple[object, object]
    outputs: tuple[PackedOutput, ...] | None

    def write(self, path: Path) -> None:
        """Write the model as it is compiled: what ONNX Runtime computes otherwise, as ONNX does."""
        fractional_corners(self.model)
        path.write_bytes(self.model.SerializeToString())

    def packed(self, results: Sequence[Array]) -> tuple[Value, ...]:
        """The model's outputs, of those of the module."""
        if self.outputs is None:
            return tuple(results)
        names = [name for output in self.outputs for name in output.names]
        tensors = dict(zip(names, results, strict=True))
        return tuple(output.packed(tensors) for output in self.outputs)


@dataclass(frozen=True)
class _AnySize:
    """A module for any size in ranges.

    Attributes:
        ranges: by the names of dimensions.
        session: of the module; None if none can be made.
    """

    ranges: Mapping[str, SizeRange]
    session: Session | None


class SartorRep(BackendRep):
    """A model that is compiled when it is first run, and again for values that decide shapes, and texts, and for shapes
    where no module takes any size.

    Args:
        model: the model.
        target: what it is compiled for.
        threads: CPU workers; None for one per physical core, or those with which the module is fastest.
    """

    def __init__(self, model: ModelProto, target: Target, threads: int | None = None) -> None:
        constants = {tensor.name for tensor in model.graph.initializer}
        self._model = model
        self._has_tensors_only = has_tensors_only(model)
        self._target = target
        self._threads = threads
        self._inputs = [value for value in model.graph.input if value.name not in constants]
        texts = {value.name for value in self._inputs if value.type.tensor_type.elem_type == TensorProto.STRING}
        self._deciding = (frozenset(shape_inputs(model)) | texts) - constants
        self._sessions: dict[object, Session] = {}
        self._any_size: dict[object, _AnySize] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: an array per input in the model's order, arrays by name, or the array of the only input. Of an input
                that is a sequence, a list of arrays; of an optional, its content or None.
            kwargs: none are known.

        Returns:
            An array per output, in the model's order; a list for a sequence, None for an empty optional.

        Raises:
            SartorError: of the kind that says what went wrong.
        """
        bound = self.bind(inputs)
        if not bound.model.graph.output:
            # All outputs are empty sequences or optionals.
            return bound.packed([])
        session = self._session_of_any(bound)
        if session is None:
            if bound.key not in self._sessions:
                with _compiling:
                    # Another thread may have compiled it meanwhile.
                    if bound.key not in self._sessions:
                        self._sessions[bound.key] = self._compiled(bound)
            session = self._sessions[bound.key]
        return bound.packed(session.run(None, bound.feeds))

    def bind(self, inputs: Any) -> BoundModel:
        """The model for the shapes of inputs, and the values that decide shapes.

        Args:
            inputs: as for ``run``.

        Raises:
            UsageError: if an input is missing or not known.
            UnsupportedModelError: if one is not a tensor, or elements of an output are known only when it runs.
        """
        model, given = self._with_tensors(self._given(inputs))
        values = {name: array for name, array in given.items() if name in self._deciding}
        feeds = {name: array for name, array in given.items() if name not in self._deciding}
        shapes = {value.name: feeds[value.name].shape for value in model.graph.input if _is_open(value, feeds)}
        bound = with_values(model, values)
        outputs = None if self._has_tensors_only else resolve_interface(bound, shapes)
        return BoundModel(bound, shapes, feeds, _key(feeds, values), outputs)

    def _with_tensors(self, given: Mapping[str, Any]) -> tuple[ModelProto, dict[str, Array]]:
        """The model with tensors in place of inputs that are sequences or optionals, and their arrays."""
        if self._has_tensors_only:
            return self._model, {name: _tensor(name, value) for name, value in given.items()}
        model = ModelProto()
        model.CopyFrom(self._model)
        return model, tensor_inputs(model, given)

    def _given(self, inputs: Any) -> dict[str, Any]:
        names = [value.name for value in self._inputs]
        if isinstance(inputs, Mapping):
            given = dict(inputs)
        else:
            values = list(inputs) if isinstance(inputs, Sequence) else [inputs]
            if len(values) > len(names):
                raise UsageError(f"{len(values)} inputs are given, but the model has {len(names)}")
            given = dict(zip(names, values, strict=False))
        if unknown := [name for name in given if name not in names]:
            raise UsageError(f"the model has no input '{unknown[0]}'; its inputs are {names}")
        if missing := [name for name in names if name not in given]:
            raise UsageError(f"no value is given for the input '{missing[0]}'")
        return {name: given[name] for name in names}

    def _session_of_any(self, bound: BoundModel) -> Session | None:
        """The session of a module for any size that takes the shapes; None if there is none, and none can be made.

        Dimensions of one element have that size in it.
        """
        if not bound.shapes or not self._target.is_cpu or not self._has_tensors_only:
            return None
        declared = dims_of(bound.model)
        sizes = sizes_of(declared, {name: array.shape for name, array in bound.feeds.items()})
        if sizes is None or not (free := several(sizes)):
            return None
        key = _key_of_any(bound), frozenset(free)
        with _compiling:
            known = self._any_size.get(key, _AnySize({}, None))
            if key not in self._any_size or (known.session is not None and not are_within(free, known.ranges)):
                ranges = ranges_with(declared, free, known.ranges)
                known = _AnySize(ranges, self._compiled_for(bound, open_shapes(declared, ranges)))
                self._any_size[key] = known
        return known.session

    def _compiled_for(self, bound: BoundModel, shapes: OpenShapes) -> Session | None:
        """Compile the model for ranges of sizes, and run it once as ``_compiled``; None if that cannot be done."""
        with _worker() as worker, _files(("model.onnx", "model.vmfb")) as (source, module):
            bound.write(source)
            arguments = {"model": source, "shapes": shapes, "module": module}
            try:
                signature = call(worker, compile_any_size, arguments, "compiling the model for any size", _TIMEOUT)
                running = {"module": module, "feeds": bound.feeds, "device": CPU, "signature": signature}
                call(worker, run_once, running, "running the module", _TIMEOUT)
            except SartorError as error:
                _LOG.info("the model is compiled for each size: %s", error)
                return None
            return Session(module, signature=signature, threads=self._threads)

    def _compiled(self, bound: BoundModel) -> Session:
        """Compile the model, and run it once where a crash ends only a worker."""
        with _worker() as worker, _files(("model.onnx", "model.vmfb")) as (source, module):
            bound.write(source)
            arguments = {"model": source, "shapes": bound.shapes, "target": self._target, "module": module}
            call(worker, compile_stock, arguments, "compiling the model", _TIMEOUT)
            running = {"module": module, "feeds": bound.feeds, "device": self._target.device}
            call(worker, run_once, running, "running the module", _TIMEOUT)
            return Session(module, device=self._target.device, threads=self._threads)


def _with_domains(model: ModelProto) -> ModelProto:
    """The model with ONNX Runtime's operators in its domain, where ONNX does not look for them."""
    version = opset(model)
    if not any(lacks_domain(node, version) for node in nodes(model)):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    normal_domains(copy)
    return copy


class SartorBackend(Backend):
    """ONNX's interface; ``device`` is ``CPU``, ``CUDA`` or ``VULKAN``."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> SartorRep:
        """A model ready to be run.

        Args:
            model: the model.
            device: the device.
            kwargs: ``threads``, the number of CPU workers.

        Raises:
            UsageError: if the device is not known, or the model is no ``ModelProto``.
            onnx.checker.ValidationError: if the model is not valid ONNX.
        """
        if not isinstance(model, ModelProto):
            raise UsageError(f"the model is {type(model).__name__}, expected an onnx.ModelProto; onnx.load reads one")
        super().prepare(_with_domains(model), device, **kwargs)
        return SartorRep(model, _target(device), kwargs.get("threads"))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """``prepare`` and ``run`` in one."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Run one operator on arrays.

        Args:
            node: the operator.
            inputs: an array per input that the node names; of an input that it names twice, one will do.
            device: the device.
            outputs_info: element type and shape of each output; by default they are inferred.
            kwargs: ``opset_version``, by default the newest, and those of ``prepare``.

        Raises:
            UsageError: if the number of arrays is another.
            SartorError: as ``SartorRep.run``.
        """
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        version = kwargs.pop("opset_version", defs.onnx_opset_version())
        arrays = _arrays(node, list(inputs))
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        graph = helper.make_graph([node], node.op_type, given, _results(node, outputs_info))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return SartorRep(model, _target(device), kwargs.get("threads")).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether this machine has such a device."""
        kind, _, number = str(device).partition(":")
        return number in _FIRST and _is_present(kind)


prepare = SartorBackend.prepare
run_model = SartorBackend.run_model
run_node = SartorBackend.run_node
supports_device = SartorBackend.supports_device


# All models share one pool, and a pool does one thing at a time.
_compiling = threading.Lock()


@cache
def _workers() -> tuple[WorkerPool, Path]:
    """One worker for all models, and a folder; both last as long as the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(open_pool(1))


@contextmanager
def _worker() -> Iterator[WorkerPool]:
    """The worker of all models; after use by another thread than the main one it is ended.

    The kernel kills a worker when the thread that started it ends, which may be while another thread uses it.
    """
    pool, _ = _workers()
    try:
        yield pool
    finally:
        if threading.current_thread() is not threading.main_thread():
            pool.close()


def _begin_anew() -> None:
    """In a forked process: a thread that stayed with the parent may hold the lock, and workers answer the parent."""
    global _compiling
    _compiling = threading.Lock()
    _workers.cache_clear()


os.register_at_fork(after_in_child=_begin_anew)

_numbers = itertools.count()


@contextmanager
def _files(names: Sequence[str]) -> Iterator[list[Path]]:
    """Paths of these names in a folder of their own, which is gone at the end with all that is beside them."""
    folder = _workers()[1] / f"backend{next(_numbers)}"
    folder.mkdir()
    try:
        yield [folder / name for name in names]
    finally:
        shutil.rmtree(folder)


@cache
def _is_present(kind: str) -> bool:
    return kind in _TARGETS and runs_here(_target(kind))


def _target(device: str) -> Target:
    kind, _, number = str(device).partition(":")
    if kind not in _TARGETS:
        raise UsageError(f"'{device}' is no device, choose among {', '.join(_TARGETS)}")
    if number not in _FIRST:
        raise UsageError(f"models run on the first device of a kind only, choose '{kind}' instead of '{device}'")
    return Target.create(_TARGETS[kind])


def _tensor(name: str, value: Any) -> Array:
    if value is None or isinstance(value, (list, tuple, dict)):
        raise UsageError(f"input '{name}' is given as {type(value).__name__}; pass an array of its tensor")
    return plain_array(value, f"input '{name}'")


def _key(feeds: Mapping[str, Array], values: Mapping[str, Array]) -> tuple[object, object]:
    types = tuple((name, array.dtype.str, array.shape) for name, array in feeds.items())
    return types, tuple((name, array.dtype.str, array.shape, array.tobytes()) for name, array in values.items())


def _key_of_any(bound: BoundModel) -> object:
    """Differs if another module for any size is needed."""
    _, values = bound.key
    return tuple((name, array.dtype.str, array.ndim) for name, array in bound.feeds.items()), values


def _is_open(value: Any, passed: Mapping[str, Array]) -> bool:
    """Whether an input's shape has to be bound: the model leaves a dimension free, or it has no elements."""
    tensor = value.type.tensor_type
    if value.name not in passed or not value.type.HasField("tensor_type"):
        return False
    return not tensor.HasField("shape") or any(dim.dim_value <= 0 for dim in tensor.shape.dim)


def _arrays(node: NodeProto, inputs: Sequence[Any]) -> dict[str, Array]:
    """The array of each input that a node names."""
    names = [name for name in node.input if name]
    distinct = list(dict.fromkeys(names))
    if len(inputs) not in (len(names), len(distinct)):
        raise UsageError(f"{len(inputs)} inputs are given, but the node '{node.name}' ({node.op_type}) has {names}")
    fed = names if len(inputs) == len(names) else distinct
    return {name: plain_array(inputs[fed.index(name)], f"input '{name}'") for name in distinct}


def _results(node: NodeProto, outputs_info: Any) -> list[Any]:
    names = [name for name in node.output if name]
    if outputs_info is None:
        return [helper.make_value_info(name, TypeProto()) for name in names]
    if len(outputs_info) != len(names):
        raise UsageError(f"outputs_info describes {len(outputs_info)} outputs, the node has {names}")
    types = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype, _ in outputs_info]
    return [
        helper.make_tensor_value_info(name, element, shape)
        for name, element, (_, shape) in zip(names, types, outputs_info, strict=True)
    ]
