"""Every routine computes what candidate 0 computes, in the layouts and from the packed weights it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.codegen.bench_module import EXPORT_PREFIX, bench_module, physical_signature
from sartor.codegen.dispatches import lower
from sartor.codegen.iree_compiler import compile_module
from sartor.codegen.layer import Layer, Task, TensorType
from sartor.codegen.layouts import IMAGE_RANK, image_layout
from sartor.codegen.packing import Packing
from sartor.codegen.routine import Implementation, Rejected, Variant, variants_of
from sartor.codegen.routines import ROUTINES
from sartor.codegen.routines.im2col_matmul import Im2colMatmul
from sartor.codegen.routines.winograd import Winograd
from sartor.codegen.stitch import Piece
from sartor.codegen.target import Target
from sartor.front_job import Front, run_front
from sartor.runtime.device import open_device
from sartor.runtime.device_array import from_view, upload
from sartor.runtime.iree_runtime import Program
from sartor.runtime.module import open_module
from sartor.runtime.signature import Array, TensorSpec
from tests.codegen.routines.layer_cases import MAKERS, all_cases, half_cases

HOST = Target.create("cpu")
CASES = (*all_cases().names, *half_cases().names)

# Every parameter set is tried on these, only the first one on the others: compiling them takes most of the time.
THOROUGH = ("conv3x3_residual", "conv1x1_residual", "linear_gelu")
PATCHES = ("conv3x3_stride_asymmetric", "conv1x1_batch", "half_conv3x3")
WINOGRAD = ("conv3x3_residual", "conv3x3_batch", "conv3x3_odd_channels")

# Sums in another order; Winograd's sums have terms larger than their result. Products of f16 are added up in f32 and
# rounded to f16 once, or twice where a bias follows.
_MAX_ERROR = {"f32": 1e-5, "winograd": 1e-3, "f16": 2 * 2.0**-10}


@dataclass(frozen=True)
class Subject:
    """One layer with candidate 0 and all the code that must agree with it."""

    layer: Layer
    weights: Mapping[str, Array]
    implementations: Mapping[str, Implementation]


def _layers(folder: Path) -> Iterator[tuple[Layer, Front]]:
    for name, make in MAKERS.items():
        path = folder / f"{name}.onnx"
        onnx.save(make(), path)
        front = run_front(path, {}, None)
        assert isinstance(front, Front), front
        for layer in front.graph.layers:
            yield layer, front


def _subject(layer: Layer, front: Front) -> Subject:
    found: dict[str, Implementation] = {}
    for routine in ROUTINES:
        variants = [each for each in variants_of(routine, layer.task, HOST) if isinstance(each, Variant)]
        kept = variants if layer.name in THOROUGH else variants[:1]
        found |= {each.descriptor.partition(".")[2]: each.implementation for each in kept}
    if layer.name in WINOGRAD:
        tiles = (2, 4, 6) if layer.name in THOROUGH else (4,)
        found |= {f"winograd{{tile={tile}}}": _winograd(layer.task, tile, HOST) for tile in tiles}
    if layer.name == WINOGRAD[0]:
        found["winograd of IREE"] = _winograd(layer.task, 6, Target.create("vulkan"))
    if layer.name in PATCHES:
        built = Im2colMatmul().build(layer.task, {}, Target.create("vulkan"))
        assert isinstance(built, Implementation), built
        found["im2col_matmul"] = built
    return Subject(layer, front.weights, found)


def _winograd(task: Task, tile: int, target: Target) -> Implementation:
    built = Winograd().build(task, {"tile": tile}, target)
    assert isinstance(built, Implementation), built
    return built


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    """Every layer by the name of its case."""
    return {layer.name: _subject(layer, front) for layer, front in _layers(tmp_path_factory.mktemp("cases"))}


@pytest.fixture(scope="module")
def program(subjects: dict[str, Subject]) -> Program:
    """One module that runs all code of all subjects."""
    symbols = {
        _symbol(name, each): (subject, each) for name, subject in subjects.items() for each in subject.implementations
    }
    implementations = {symbol: subject.implementations[each] for symbol, (subject, each) in symbols.items()}
    codes = lower(implementations, HOST)
    pieces = {symbol: Piece(symbol, implementations[symbol], code) for symbol, code in codes.items()}
    signatures = {symbol: _signature(subject, each) for symbol, (subject, each) in symbols.items()}
    module = open_module(compile_module(bench_module(HOST, pieces, signatures), HOST.flags, start="flow"))
    return Program(module.native, "contract", open_device("cpu", 1), {})


def _symbol(case: str, implementation: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in f"s_{case}_{implementation}")


def _signature(subject: Subject, implementation: str) -> tuple[list[TensorType], list[TensorType]]:
    task = subject.layer.task
    return physical_signature(subject.implementations[implementation], task.inputs, task.weights, task.results)


def _run(program: Program, subject: Subject, name: str, inputs: list[Array]) -> Array:
    """The layer's result, in ONNX's layout."""
    code, task = subject.implementations[name], subject.layer.task
    arguments = [
        _physical(array, tensor, layout) for array, tensor, layout in zip(inputs, task.inputs, code.inputs, strict=True)
    ]
    arguments += [
        packing.apply(subject.weights[weight])
        for weight, packing in zip(subject.layer.weights, code.packings, strict=True)
    ]
    views = [upload(np.ascontiguousarray(each), program.device).view for each in arguments]
    (result,) = program.invoke(EXPORT_PREFIX + _symbol(subject.layer.name, name), views)
    (tensor,) = _signature(subject, name)[1]
    spec = TensorSpec("result", tensor.numpy_dtype.name, tensor.shape)
    return _logical(from_view(result, program.device, spec).to_host(), task.results[0], code.output)


def _steps(tensor: TensorType, layout: str) -> Packing:
    return image_layout(layout).packing(tensor) if len(tensor.shape) == IMAGE_RANK else Packing()


def _physical(array: Array, tensor: TensorType, layout: str) -> Array:
    return _steps(tensor, layout).apply(array)


def _logical(array: Array, tensor: TensorType, layout: str) -> Array:
    places = _steps(tensor, layout).apply(np.arange(tensor.elements).reshape(tensor.shape))
    result = np.empty(tensor.elements, array.dtype)
    result[places.ravel()] = array.ravel()
    return result.reshape(tensor.shape)


def _inputs(task: Task) -> list[Array]:
    random = np.random.default_rng(2)
    return [random.standard_normal(each.shape).astype(each.numpy_dtype) for each in task.inputs]


@pytest.mark.parametrize("case", CASES)
def test_every_variant_computes_the_layer(case: str, subjects: dict[str, Subject], program: Program) -> None:
    subject = subjects[case]
    inputs = _inputs(subject.layer.task)
    expected = _run(program, subject, "stock", inputs).astype(np.float64)
    scale = np.abs(expected).max()
    assert scale > 0
    errors = {
        name: float(np.abs(_run(program, subject, name, inputs) - expected).max() / scale)
        for name in subject.implementations
    }
    dtype = subject.layer.task.inputs[0].dtype
    bounds = {name: _MAX_ERROR["winograd" if name.startswith("winograd") else dtype] for name in errors}
    assert {name: error for name, error in errors.items() if not error <= bounds[name]} == {}


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("conv3x3_residual", {"tiled", "winograd", "nhwc", "nchwc", "im2col"}),
        ("conv3x3_batch", {"tiled", "nhwc", "nchwc", "im2col"}),
        ("conv1x1_residual", {"tiled", "nhwc", "nchwc", "im2col"}),
        ("conv1x1_odd_channels", {"tiled", "nhwc", "im2col"}),
        ("depthwise5x5_batch", {"tiled", "nhwc", "nchwc"}),
        ("linear_gelu", {"tiled", "mmt4d", "transposed"}),
        ("linear_one_row", {"tiled", "mmt4d", "transposed"}),
        ("gemm", {"tiled", "mmt4d", "transposed"}),
        ("attention", {"tiled"}),
        ("max_pool", {"nhwc", "nchwc"}),
        ("half_conv3x3", {"tiled", "nhwc", "nchwc", "im2col"}),
        ("half_linear", {"tiled", "mmt4d", "transposed"}),
    ],
)
def test_layers_have_the_candidates_that_suit_them(case: str, names: set[str], subjects: dict[str, Subject]) -> None:
    task = subjects[case].layer.task
    accepting = {
        routine.name
        for routine in ROUTINES
        if any(isinstance(each, Variant) for each in variants_of(routine, task, HOST))
    }
    assert accepting == {"stock", *names}


def test_a_refusal_says_why(subjects: dict[str, Subject]) -> None:
    for device in ("cpu", "vulkan", "cuda"):
        for subject in subjects.values():
            for routine in ROUTINES:
                for answer in variants_of(routine, subject.layer.task, Target.create(device)):
                    assert not isinstance(answer, Rejected) or len(answer.reason.split()) >= 4, answer


def test_no_cpu_tiles_reach_another_device(subjects: dict[str, Subject]) -> None:
    target = Target.create("vulkan")
    for subject in subjects.values():
        for routine in ROUTINES:
            for answer in variants_of(routine, subject.layer.task, target):
                assert isinstance(answer, Rejected) or "iree_cpu" not in answer.implementation.body
                assert isinstance(answer, Rejected) or routine.name not in ("tiled", "mmt4d", "im2col", "nchwc")


def test_descriptors_are_unique_within_a_task(subjects: dict[str, Subject]) -> None:
    for subject in subjects.values():
        answers = [each for routine in ROUTINES for each in variants_of(routine, subject.layer.task, HOST)]
        descriptors = [each.descriptor for each in answers if isinstance(each, Variant)]
        assert len(descriptors) == len(set(descriptors))
        assert descriptors[0].endswith(".stock")


def test_the_list_names_every_routine_of_the_folder() -> None:
    folder = Path(import_module("sartor.codegen.routines").__file__ or "").parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    listed = {type(routine).__module__.rpartition(".")[2] for routine in ROUTINES}
    assert listed == files
    assert type(ROUTINES[0]).__name__ == "Stock"
