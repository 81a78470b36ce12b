"""Builds the code of every routine for the layers of the cases, and runs it in the layouts it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sartor.codegen.ir.layer import Fusion, Layer, Task, TensorType
from sartor.codegen.ir.layouts import layout_packing
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.bench_module import bench_module, compile_bench, physical_signature
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.mlir.iree_compiler import inlined, translate
from sartor.frontend.imported_model import ImportedModel
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module
from tests.codegen.routines.layer_cases import MAKERS, Maker
from tests.emulated import EmulatedProgram
from tests.importing import imported_model

Signature = tuple[list[TensorType], list[TensorType]]
Found = Mapping[str, tuple[Layer, Mapping[str, Array]]]
"""Layers with their models' weights, by name."""


@dataclass(frozen=True)
class Subject:
    """One layer and the code that computes it, by a name for each; and what ``inputs`` give, if that is known."""

    layer: Layer
    weights: Mapping[str, Array]
    implementations: Mapping[str, Implementation]
    expected: Array | None = None

    @property
    def task(self) -> Task:
        return self.layer.task

    def signature(self, name: str) -> Signature:
        """Types in memory of what one implementation takes and gives."""
        task = self.task
        return physical_signature(self.implementations[name], task.inputs, task.weights, task.results)

    def symbol(self, name: str) -> str:
        """A name for one implementation that is an identifier."""
        return "".join(each if each.isalnum() else "_" for each in f"s_{self.layer.name}_{name}")

    def inputs(self) -> list[Array]:
        """Random activations."""
        random = np.random.default_rng(2)
        return [random.standard_normal(each.shape).astype(each.numpy_dtype) for each in self.task.inputs]


def layers(makers: Mapping[str, Maker] = MAKERS) -> Iterator[tuple[Layer, Mapping[str, Array]]]:
    """Every layer of the models, with the weights of its model."""
    for imported in _fronts(makers):
        for layer in imported.graph.layers:
            yield layer, imported.weights


def fused_layers(makers: Mapping[str, Maker]) -> Iterator[tuple[Fusion, Mapping[str, Array]]]:
    """Every pair of layers of the models that may be fused, with the weights of its model."""
    for imported in _fronts(makers):
        for fusion in imported.graph.fusions:
            yield fusion, imported.weights


def _fronts(makers: Mapping[str, Maker]) -> Iterator[ImportedModel]:
    # Layers of half precision, as GPUs compute them, and CPUs beside one.
    return (imported_model(make(), widens=False) for make in makers.values())


def results_by_onnx_runtime(
    imported: ImportedModel, rounded: Callable[[Array], Array] = lambda array: array
) -> dict[str, Array]:
    """Results of layers on rounded ``Subject.inputs``, by name: of those that read inputs of the model and give an
    output."""
    graph, feeds = imported.graph, {**imported.samples}
    layers = [each for each in graph.layers if all(ref.source is None for ref in each.inputs)]
    for layer in layers:
        for ref, array in zip(layer.inputs, Subject(layer, {}, {}).inputs(), strict=True):
            feeds[graph.inputs[ref.index].name] = rounded(array)
    reference = ReferenceModel(imported.path, threads=1)
    found = dict(zip(reference.output_names, reference(feeds), strict=True))
    names = {each.name for each in layers}
    sources = {output.name: output.source.source for output in graph.outputs if output.source is not None}
    return {source: found[name] for name, source in sources.items() if source in names}


def compiled(subjects: Mapping[str, Subject], target: Target) -> bytes:
    """One module with all code of all subjects.

    Nothing here times it: what repeats each piece for that takes a third of the compilation.
    """
    return compile_bench(target, *_pieces(subjects, target), repeated=())


def translated(subjects: Mapping[str, Subject], target: Target) -> str:
    """All code of all subjects as text, in the device's own instructions: SPIR-V for Vulkan."""
    text = bench_module(target, *_pieces(subjects, target), repeated=())
    return translate(inlined(text), target.flags, start="flow", to="executable-targets")


def _pieces(subjects: Mapping[str, Subject], target: Target) -> tuple[dict[str, Piece], dict[str, Signature]]:
    """The code of all subjects, and what it takes and gives, by symbol."""
    symbols = {each.symbol(name): (each, name) for each in subjects.values() for name in each.implementations}
    implementations = {symbol: each.implementations[name] for symbol, (each, name) in symbols.items()}
    codes = lower(implementations, target)
    pieces = {symbol: Piece(symbol, implementations[symbol], code) for symbol, code in codes.items()}
    return pieces, {symbol: each.signature(name) for symbol, (each, name) in symbols.items()}


def load(subjects: Mapping[str, Subject], target: Target, threads: int | None = None) -> Program:
    """The module, ready to run with so many workers, by default one for each core."""
    return opened(compiled(subjects, target), target, threads)


def opened(content: bytes, target: Target, threads: int | None = None) -> Program:
    """A compiled module, ready to run with so many workers, by default one for each core."""
    return Program(open_module(content).native, "contract", open_device(target.device, threads), {})


def run(program: Program | EmulatedProgram, subject: Subject, name: str, inputs: list[Array]) -> Array:
    """The layer's result, in ONNX's layout, as one implementation computes it."""
    code, task = subject.implementations[name], subject.task
    arguments = [
        schema.packing(tensor).apply(array)
        for array, tensor, schema in zip(inputs, task.inputs, code.inputs, strict=True)
    ]
    arguments += [
        packing.apply(subject.weights[weight])
        for weight, packing in zip(subject.layer.weights, code.packings, strict=True)
    ]
    (tensor,) = subject.signature(name)[1]
    found = called(program, EXPORT_PREFIX + subject.symbol(name), arguments, tensor)
    return _logical(found, task.results[0], code.output.layout)


def called(program: Program | EmulatedProgram, function: str, arguments: list[Array], result: TensorType) -> Array:
    """What a function of a module gives, here or under emulation."""
    if isinstance(program, EmulatedProgram):
        return program.emulator.run(program.module, function, arguments, result)
    views = [upload(each, program.device).view for each in arguments]
    (found,) = program.invoke(function, views)
    return from_view(found, program.device, TensorSpec("result", result.numpy_dtype.name, result.shape)).to_host()


def relative_errors(program: Program | EmulatedProgram, subject: Subject) -> dict[str, float]:
    """Largest difference of each implementation from what is expected, or from candidate 0, relative to the largest
    output."""
    inputs = subject.inputs()
    right = run(program, subject, "stock", inputs) if subject.expected is None else subject.expected
    expected = right.astype(np.float64)
    scale = np.abs(expected).max()
    assert scale > 0
    return {
        name: float(np.abs(run(program, subject, name, inputs) - expected).max() / scale)
        for name in subject.implementations
    }


def _logical(array: Array, tensor: TensorType, layout: str) -> Array:
    """An array in ``layout`` in ONNX's layout and element type."""
    places = layout_packing(tensor, layout).apply(np.arange(tensor.elements).reshape(tensor.shape))
    result = np.empty(tensor.elements, tensor.numpy_dtype)
    result[places.ravel()] = array.ravel().astype(tensor.numpy_dtype)
    return result.reshape(tensor.shape)
