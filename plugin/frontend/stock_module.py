"""Worker side: a model compiled by IREE's stock lowering alone, with no layer measured, and run once.

It is the short way for models that are run a few times: nothing is tuned, and no reference is computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path

from onnx import ModelProto

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.stitching import compile_unsplit
from sartor.codegen.mlir.iree_compiler import WIDE_FLAGS, bytecode, ir
from sartor.devices import is_cpu
from sartor.dialect_passes.bounded_indices import bound_indices
from sartor.errors import CompileError, SartorError, UnsupportedModelError
from sartor.frontend.onnx_import import ImportedModule, import_model
from sartor.onnx_model.preparing.check_prepared import check_doubles, has_doubles
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.load import load_model
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.runtime.session import Session
from sartor.tuning.workers.protocol import WorkerError


def compile_stock(
    model: Path,
    shapes: Mapping[str, tuple[int, ...]],
    target: Target,
    module: Path,
    *,
    without: Collection[str] = (),
) -> WorkerError | None:
    """Compile a model whole into ``module``.

    Args:
        model: ONNX file.
        shapes: static shape of each input that has free dimensions.
        target: what it is compiled for.
        module: the .vmfb to write.
        without: names of rewrites that are left out.
    """
    try:
        imported, inputs, outputs = import_stock(model, shapes, target.device, without=without)
        manifest = _manifest(model, inputs, outputs, target).to_json()
        try:
            compile_unsplit(imported.bytecode, imported.weights, target, manifest, module, flags=WIDE_FLAGS)
        except CompileError:
            # IREE's vectorisation has gaps that its lowest level of optimisation does not reach.
            flags = (*WIDE_FLAGS, "--iree-opt-level=O1")
            compile_unsplit(imported.bytecode, imported.weights, target, manifest, module, flags=flags)
    except SartorError as error:
        return WorkerError(error)
    return None


def import_stock(
    model: Path, shapes: Mapping[str, tuple[int, ...]], device: str, *, without: Collection[str] = ()
) -> tuple[ImportedModule, tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """A model as linalg on tensors, for a kind of device, and what it takes and gives.

    Raises:
        SartorError: of the kind that says what went wrong.
    """
    prepared = prepare(load_model(model), shapes, _unsimplified, without=without)
    if prepared.noise:
        raise UnsupportedModelError(
            f"the model draws random numbers ('{prepared.noise[0].name}'), for which this interface takes no seed; "
            "compile it with compile-to-vmfb, which makes them inputs of the module"
        )
    specs = [
        tuple(TensorSpec(info.name, info.dtype.name, info.shape) for info in values)
        for values in (prepared.inputs, prepared.outputs)
    ]
    if is_wide := has_doubles(prepared.model):
        check_doubles(prepared, device)
    return _bounded(import_model(prepared.model, wide=is_wide)), specs[0], specs[1]


def _bounded(imported: ImportedModule) -> ImportedModule:
    module = ir.Module.parse(imported.bytecode, ir.Context())
    bound_indices(module, imported.weights)
    return ImportedModule(bytecode(module.operation), imported.weights)


def run_once(
    module: Path, feeds: Mapping[str, Array], device: str, signature: Signature | None = None
) -> list[Array] | WorkerError:
    """Run a module on arrays, in a process that may crash over it, by a ``signature`` if it tells none."""
    threads = 1 if is_cpu(device) else None
    try:
        with Session(module, device=device, threads=threads, signature=signature) as session:
            return [output.copy() for output in session.run(None, feeds)]
    except SartorError as error:
        return WorkerError(error)


def _unsimplified(model: ModelProto) -> tuple[str, ...]:
    """Replace ``simplify`` by no operation, because it takes longer than the rest and only speeds up the module."""
    return ()


def _manifest(model: Path, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], target: Target) -> Manifest:
    return Manifest(
        model=model.name,
        model_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
        entry=ENTRY,
        inputs=inputs,
        outputs=outputs,
        devices=(target.device,),
        levels=(target.architecture,),
        sartor_version=version("sartor"),
        iree_version=version("iree-base-compiler"),
        plan={},
    )
