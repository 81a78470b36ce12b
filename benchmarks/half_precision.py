"""Networks in half precision beside the same ones in float32, and beside ONNX Runtime on the same files.

    python -m benchmarks.half_precision resnet50 network.onnx --levels host,x86-64-v3 --time-budget 0

Each network is written in f32, f16 and bf16, with inputs and outputs in f32, compiled for each CPU level, and timed in
turn; a file in f16 is taken as it is. Beside modules for an older CPU, ONNX Runtime is timed with its code for AVX2, in
a second run of the module (``benchmarks.older_cpu``).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
import onnx
import typer
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper, version_converter

from benchmarks.quantised.beside import HOST, timed
from benchmarks.zoo import sample_inputs, write
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import SartorError
from sartor.pipeline import compile_model
from sartor.runtime.benchmark import BLOCK, PAUSE, Samples, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session

app = typer.Typer(help=__doc__)

# Element type in ONNX and NumPy, and the largest number.
_HALVES: Mapping[str, tuple[int, type, float]] = {
    "f16": (TensorProto.FLOAT16, np.float16, 65504.0),
    "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 2.0**128 - 2.0**120),
}
# The operator set from which on convolutions and poolings may be in bf16.
_SINCE = 22
# At other addresses the same module's time differs by a few percent.
_PASSES = 3
# Older files list initializers among the inputs.
_WITHOUT_VALUES_AS_INPUTS = 4
# Scales of Resize have one type in ONNX.
_KEPT_OPERANDS = {"Resize": (1, 2), "Upsample": (1,)}


def halved(model: ModelProto, name: str) -> ModelProto:
    """A copy of a network of f32 that computes in half precision, between casts of its inputs and outputs.

    Args:
        model: without bodies of control flow.
        name: ``f16`` or ``bf16``. What lies beyond the range of f16 becomes its largest number.
    """
    kind, dtype, largest = _HALVES[name]
    copy = ModelProto()
    copy.CopyFrom(version_converter.convert_version(model, _SINCE) if kind == TensorProto.BFLOAT16 else model)
    graph = copy.graph
    kept = {
        node.input[place] for node in graph.node for place in _KEPT_OPERANDS.get(node.op_type, ()) if node.input[place:]
    }
    _retype(graph, TensorProto.FLOAT, kind, lambda array: array.clip(-largest, largest).astype(dtype), kept)
    _cast_door(graph, kind)
    return copy


def widened(model: ModelProto) -> ModelProto:
    """A copy of a network of f16, without bodies of control flow, whose numbers are all f32."""
    copy = ModelProto()
    copy.CopyFrom(model)
    _retype(copy.graph, TensorProto.FLOAT16, TensorProto.FLOAT, lambda array: array.astype(np.float32))
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return copy


def _retype(graph: GraphProto, old: int, new: int, cast: Callable[[Array], Array], kept: Collection[str] = ()) -> None:
    """Give constants and casts of one element type another one, but for the initializers in ``kept``."""
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    stored = [tensor for tensor in graph.initializer if tensor.name not in kept]
    for tensor in (*stored, *(attribute.t for attribute in attributes if attribute.HasField("t"))):
        if tensor.data_type == old:
            tensor.CopyFrom(numpy_helper.from_array(cast(numpy_helper.to_array(tensor)), tensor.name))
    for attribute in attributes:
        if attribute.name == "to" and attribute.i == old:
            attribute.i = new
    del graph.value_info[:]


def _cast_door(graph: GraphProto, kind: int) -> None:
    """Cast inputs and outputs of f32, which keep their names."""
    taken = [value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT]
    given = [value.name for value in graph.output if value.type.tensor_type.elem_type == TensorProto.FLOAT]
    half = TensorProto.DataType.Name(kind).lower()
    renamed = {name: f"{name}/{half}" for name in (*taken, *given)}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    first = [
        helper.make_node("Cast", [name], [inner := renamed[name]], name=f"{inner}/cast", to=kind) for name in taken
    ]
    last = [
        helper.make_node("Cast", [inner := renamed[name]], [name], name=f"{inner}/cast", to=TensorProto.FLOAT)
        for name in given
    ]
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)


@app.command()
def show(
    networks: Annotated[list[str], typer.Argument(help="Zoo networks, or ONNX files in f32 or f16.")],
    levels: Annotated[str, typer.Option(help="CPU levels that modules are compiled for.")] = HOST,
    time_budget: Annotated[float, typer.Option(help="Seconds of each compilation.")] = 0.0,
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    seconds: Annotated[float, typer.Option(help="Duration of the timing of a network for a level.")] = 8.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of files.")] = Path("build/half_precision"),
) -> None:
    """Compile and time; a row for each network, level and type, with ratios above 1 where Sartor's module is faster."""
    print("| network | CPU level | type | ms | f32 module / this | ONNX Runtime on this file / this |")
    print("|---|---|---|---:|---:|---:|")
    output.mkdir(parents=True, exist_ok=True)
    for network in networks:
        files = written(network, output)
        for level in levels.split(","):
            config = CompileConfig(
                target=Target.create("cpu", level),
                threads=threads,
                time_budget=time_budget,
                database=output / "tuning.db",
            )
            _report(Path(network).stem, level, _timed(files, level, config, output, seconds))


def written(network: str, folder: Path) -> dict[str, Path]:
    """The files of a network by type, f32 first; ``network`` is one of the zoo, or an ONNX file."""
    given = Path(network)
    if given.suffix != ".onnx":
        files = {"f32": write(network, folder)}
    else:
        model = onnx.load(given)
        stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        for value in [value for value in model.graph.input if value.name in stored]:
            model.graph.input.remove(value)
        model.ir_version = max(model.ir_version, _WITHOUT_VALUES_AS_INPUTS)
        is_half = TensorProto.FLOAT16 in stored.values()
        files = {"f32": folder / f"{given.stem}.f32.onnx", **({"f16": given} if is_half else {})}
        onnx.save(widened(model) if is_half else model, files["f32"])
    whole = onnx.load(files["f32"])
    for name in [name for name in _HALVES if name not in files]:
        files[name] = folder / f"{given.stem}.{name}.onnx"
        onnx.save(halved(whole, name), files[name])
    return files


@dataclass(frozen=True)
class _Times:
    """Seconds of a module, and ONNX Runtime's time relative to it; None where it has no kernels."""

    seconds: float
    runtime: float | None


def _timed(
    files: Mapping[str, Path], level: str, config: CompileConfig, folder: Path, seconds: float
) -> dict[str, _Times]:
    """Times by type."""
    whole = sample_inputs(onnx.load(files["f32"]))
    feeds = {name: _as_taken(file, whole) for name, file in files.items()}
    modules = {name: folder / f"{file.stem}.{level}.vmfb" for name, file in files.items()}
    references: dict[str, Callable[[], object]] = {}
    beside: dict[str, float] = {}
    for name, file in files.items():
        compile_model(file, modules[name], config)
        if (reference := _runtime(file, config.threads, feeds[name])) is None:
            continue
        if level == HOST:
            references[f"ort:{name}"] = reference
        else:
            found = timed(modules[name], file, level, config.threads)
            beside[name] = found["onnxruntime"].milliseconds / found["sartor"].milliseconds
    medians = _medians(modules, feeds, references, config.threads, seconds)
    beside |= {name: medians[f"ort:{name}"] / medians[name] for name in files if f"ort:{name}" in medians}
    return {name: _Times(medians[name], beside.get(name)) for name in files}


def _medians(
    modules: Mapping[str, Path],
    feeds: Mapping[str, Mapping[str, Array]],
    references: Mapping[str, Callable[[], object]],
    threads: int,
    seconds: float,
) -> dict[str, float]:
    """The middle one of several passes' medians, each of modules that were loaded anew."""
    passes: list[dict[str, float]] = []
    for _ in range(_PASSES):
        runs = {
            name: partial(Session(module, threads=threads).run, None, feeds[name]) for name, module in modules.items()
        }
        samples: dict[str, Samples] = time_interleaved(
            {**runs, **references}, min_rounds=8, min_seconds=seconds / _PASSES, block=BLOCK, pause=PAUSE
        )
        passes.append({name: each.median for name, each in samples.items()})
    return {name: statistics.median(each[name] for each in passes) for name in passes[0]}


def _as_taken(file: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of f32 in the types that a file takes."""
    types = {
        value.name: value.type.tensor_type.elem_type for value in onnx.load(file, load_external_data=False).graph.input
    }
    return {name: array.astype(helper.tensor_dtype_to_np_dtype(types[name])) for name, array in feeds.items()}


def _runtime(file: Path, threads: int, feeds: Mapping[str, Array]) -> Callable[[], object] | None:
    """ONNX Runtime on a file; None if it has no kernels for the type."""
    try:
        run = partial(OnnxRuntimeReference(file, threads=threads, is_timed=True), feeds)
        run()
    except SartorError:
        return None
    return run


def _report(network: str, level: str, times: Mapping[str, _Times]) -> None:
    for name in ("f32", *_HALVES):
        mine = times[name]
        beside = "" if mine.runtime is None else f"{mine.runtime:.2f}"
        print(
            f"| {network} | {level} | {name} | {mine.seconds * 1e3:.2f} | {times['f32'].seconds / mine.seconds:.3f} | "
            f"{beside} |",
            flush=True,
        )


if __name__ == "__main__":
    app()
