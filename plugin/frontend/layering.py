"""Imports a prepared model, folds its weights, and splits it into layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import NetworkValue, TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.iree_compiler import compile_module, flags_for, ir, mark_double, run_passes
from sartor.codegen.mlir.operations import symbol
from sartor.devices import CPU, CUDA
from sartor.dialect_passes.bounded_indices import bound_indices
from sartor.dialect_passes.constants import fold_narrowed
from sartor.dialect_passes.double_interface import keep_double_interface
from sartor.dialect_passes.dump import Dumper, bytecode
from sartor.dialect_passes.fold_weights import fold_weights
from sartor.dialect_passes.form_layers import form_layers
from sartor.dialect_passes.fuse_layers import Attends, find_fusions
from sartor.dialect_passes.split_layers import find_childnets
from sartor.dialect_passes.tied_tables import tie_tables
from sartor.errors import UnsupportedModelError
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.onnx_import import import_model
from sartor.onnx_model.graphs.names import naming_origins
from sartor.onnx_model.graphs.prepared import PreparedModel, TensorInfo
from sartor.onnx_model.preparing.check_prepared import check_doubles, has_doubles
from sartor.onnx_model.preparing.undecided import with_advice
from sartor.policies import Double
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module
from sartor.tuning.workers.shared_arrays import StoredArrays


def evaluate(text: str, arrays: Sequence[np.ndarray], results: Sequence[TensorType]) -> list[Array]:
    """Run ``@fold`` of a module on arrays, on one thread of this machine; ``results`` are its result types."""
    device = open_device(CPU, 1)
    module = open_module(compile_module(text, (*Target.create(CPU).flags, *flags_for(text))))
    program = Program(module.native, "constant folding", device, {})
    views = program.invoke("fold", [upload(array, device).view for array in arrays])
    specs = [TensorSpec("folded", tensor.numpy_dtype.name, tensor.shape) for tensor in results]
    return [from_view(view, device, spec).to_host().copy() for view, spec in zip(views, specs, strict=True)]


# Weights that were folded into others are no longer needed, and would be stored in every module.
_CLEAN = "builtin.module(util.func(canonicalize,cse),symbol-dce)"
_PASSABLE = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class Splitting:
    """What decides how layers are split: the target, and requests."""

    target: Target
    asked: AskedChildren


@dataclass(frozen=True)
class Layered:
    """A network as layers.

    Attributes:
        graph: its layers.
        weights: those that a layer or the unsplit module refers to.
        unsplit: the module before it was split into layers, as bytecode.
    """

    graph: LayerGraph
    weights: Mapping[str, np.ndarray]
    unsplit: bytes


def layered_model(
    prepared: PreparedModel, dumper: Dumper, splitting: Splitting, directory: Path | None, double: Double
) -> Layered:
    """Import a prepared model, fold its weights, and split it into layers."""
    is_wide = double is Double.F64 and has_doubles(prepared.model)
    if is_wide:
        check_doubles(prepared, splitting.target.device, "leave --double f64 out, or cast around it to float32")
    try:
        imported = import_model(prepared.model, wide=is_wide)
    except UnsupportedModelError as error:
        raise naming_origins(with_advice(error, prepared.model), prepared.described) from None
    context = ir.Context()
    module = ir.Module.parse(imported.bytecode, context)
    passed = [[info.name for info in values] for values in (prepared.inputs, prepared.outputs)]
    if not is_wide:
        keep_double_interface(module, *passed)
    if is_wide or any(info.dtype == np.float64 for info in (*prepared.inputs, *prepared.outputs)):
        mark_double(module)
    dumper.write("import", module)
    fold_narrowed(module)
    fold_weights(module, imported.weights, evaluate)
    bound_indices(module, imported.weights)
    run_passes(module, _CLEAN)
    tie_tables(module, imported.weights)
    dumper.write("fold-weights", module)
    unsplit = bytecode(module)
    layers = form_layers(module, list(map(_value, prepared.inputs)), list(map(_value, prepared.outputs)))
    fused = find_fusions(layers, _attends(splitting.target))
    graph, parts = find_childnets(fused, imported.weights, splitting.target, splitting.asked or None)
    used = _used(graph, module)
    weights = {name: array for name, array in {**imported.weights, **parts}.items() if name in used}
    return Layered(graph, _stored(weights, directory), unsplit)


def without_layers(prepared: PreparedModel, directory: Path | None) -> Layered:
    """The inputs and outputs alone, of a model that files are compared with, and none is made of."""
    inputs, outputs = (tuple(map(_value, values)) for values in (prepared.inputs, prepared.outputs))
    return Layered(LayerGraph((), inputs, outputs), _stored({}, directory), b"")


def _stored(weights: Mapping[str, np.ndarray], directory: Path | None) -> Mapping[str, np.ndarray]:
    return weights if directory is None else StoredArrays.write(directory / "weights.bin", weights)


def _attends(target: Target) -> Attends:
    """What kernels of attention a target has."""
    if CUDA in target.devices:
        return Attends.KEYS
    return Attends.ALL if CPU in target.devices else Attends.NONE


def _value(info: TensorInfo) -> NetworkValue:
    """An input or output as ONNX declares it. Integers have no sign in IREE's types, only in its operations.

    Raises:
        UnsupportedModelError: if the module stores the tensor in another type.
    """
    if info.dtype.name not in _PASSABLE:
        raise UnsupportedModelError(
            f"'{info.name}' is of type {info.dtype.name}, which IREE 3.13 changes on the way in; "
            f"cast it inside the model from one of {', '.join(_PASSABLE)}"
        )
    signless = np.dtype(info.dtype.name.removeprefix("u"))
    return NetworkValue(info.name, TensorType.of(info.shape, signless), info.dtype.name)


def _used(graph: LayerGraph, module: ir.Module) -> set[str]:
    """Weights that a layer or the whole module still refers to."""
    loads = {symbol(view.operation) for view in module.body.operations if view.operation.name == "util.global"}
    return loads | {name for layer in graph.all_layers() for name in layer.weights}
