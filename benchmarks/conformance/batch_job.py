"""Worker side: compile many small models as one module, which takes little longer than one model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.stitching import compile_unsplit
from sartor.codegen.mlir.iree_compiler import WIDE_FLAGS, ir
from sartor.codegen.mlir.operations import symbol
from sartor.dialect_passes.dump import bytecode
from sartor.errors import SartorError
from sartor.frontend.onnx_import import ImportedModule
from sartor.frontend.stock_module import compile_stock, import_stock, run_once
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, Signature, check_array
from sartor.runtime.module import open_module
from sartor.tuning.workers.protocol import WorkerError


@dataclass(frozen=True)
class Case:
    """A model to run once.

    Attributes:
        model: the ONNX file.
        shapes: shapes of inputs with dynamic dimensions, by name.
        feeds: the model's inputs by name.
    """

    model: Path
    shapes: Mapping[str, tuple[int, ...]]
    feeds: Mapping[str, Array]


@dataclass(frozen=True)
class _Imported:
    number: int
    module: ImportedModule
    signature: Signature
    feeds: Mapping[str, Array]


def run_batch(cases: Sequence[Case], target: Target, module: Path) -> list[list[Array] | WorkerError | None]:
    """Return for each model its outputs, the error of its import, or None if it does not compile or run."""
    tried = [_imported(number, case, target) for number, case in enumerate(cases)]
    found: list[list[Array] | WorkerError | None] = [each if isinstance(each, WorkerError) else None for each in tried]
    device = open_device(target.device, threads=1 if target.device == "cpu" else None)
    for imported, outputs in _run([each for each in tried if isinstance(each, _Imported)], target, module, device):
        found[imported.number] = outputs
    return found


def run_alone(case: Case, target: Target, module: Path) -> list[Array] | WorkerError:
    """Return a model's outputs, or the error of its import, compilation or run."""
    failed = compile_stock(case.model, case.shapes, target, module)
    return failed or run_once(module, case.feeds, target.device)


def _imported(number: int, case: Case, target: Target) -> _Imported | WorkerError:
    try:
        imported, inputs, outputs = import_stock(case.model, case.shapes, target.device)
    except SartorError as error:
        return WorkerError(error)
    return _Imported(number, imported, Signature(f"t{number}_{ENTRY}", inputs, outputs), case.feeds)


def _run(
    cases: Sequence[_Imported], target: Target, module: Path, device: NativeDevice
) -> list[tuple[_Imported, list[Array]]]:
    """Compile models as one module, or in halves if that fails; return those that ran, with their outputs."""
    if not cases:
        return []
    try:
        joined = _joined(cases)
        compile_unsplit(joined.bytecode, joined.weights, target, "", module, flags=WIDE_FLAGS)
        # Loaded once for all models: a driver for GPUs compiles the whole module when it is loaded.
        program = _loaded(module, device)
    except SartorError:
        if len(cases) == 1:
            return []
        half = len(cases) // 2
        return [*_run(cases[:half], target, module, device), *_run(cases[half:], target, module, device)]
    tried = [(case, _outputs(case, program)) for case in cases]
    return [(each, outputs) for each, outputs in tried if outputs is not None]


def _loaded(module: Path, device: NativeDevice) -> Program:
    found = open_module(module)
    return Program(found.native, found.label, device, {})


def _outputs(case: _Imported, program: Program) -> list[Array] | None:
    try:
        for spec in case.signature.inputs:
            check_array(spec, case.feeds[spec.name].dtype, case.feeds[spec.name].shape)
        views = [upload(case.feeds[spec.name], program.device).view for spec in case.signature.inputs]
        results = program.invoke(case.signature.entry, views)
        specs = zip(results, case.signature.outputs, strict=True)
        return [from_view(view, program.device, spec).to_host().copy() for view, spec in specs]
    except SartorError:
        return None


def _joined(cases: Sequence[_Imported]) -> ImportedModule:
    """Return one module with all functions and weights; the model's number prefixes their names."""
    context = ir.Context()
    weights: dict[str, np.ndarray] = {}
    with context, ir.Location.unknown(context):
        joined = ir.Module.create()
        for case in cases:
            module = _renamed(ir.Module.parse(case.module.bytecode), f"t{case.number}_")
            for view in list(module.body.operations):
                operation = view.operation
                operation.detach_from_parent()
                joined.body.append(operation)
            weights |= {f"t{case.number}_{name}": array for name, array in case.module.weights.items()}
        return ImportedModule(bytecode(joined), weights)


def _renamed(module: ir.Module, prefix: str) -> ir.Module:
    names = [symbol(view.operation) for view in module.body.operations]
    text = str(module)
    for name in names:
        text = re.sub(rf"@{re.escape(name)}(?![\w$.])", f"@{prefix}{name}", text)
    return ir.Module.parse(text)
