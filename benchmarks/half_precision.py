"""Networks in half precision beside the same ones in float32, and beside ONNX Runtime on the same files.

    python -m benchmarks.half_precision resnet50 mobilenet_v2 --levels host,x86-64-v3 --time-budget 0

Each network is written in f32, f16 and bf16, with inputs and outputs in f32, compiled for each CPU level, and timed in
turn. ONNX Runtime runs the code of this machine whatever the level, and is timed for ``host`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import ml_dtypes
import numpy as np
import onnx
import typer
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper, version_converter

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
_HOST = "host"
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
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in kept:
            narrow: Array = numpy_helper.to_array(tensor).clip(-largest, largest).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(narrow, tensor.name))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
    del graph.value_info[:]
    _cast_door(graph, kind)
    return copy


def _cast_door(graph: GraphProto, kind: int) -> None:
    """Cast inputs and outputs of f32, which keep their names."""
    taken = [value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT]
    given = [value.name for value in graph.output if value.type.tensor_type.elem_type == TensorProto.FLOAT]
    renamed = {name: f"{name}/half" for name in (*taken, *given)}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    first = [helper.make_node("Cast", [name], [renamed[name]], name=f"{name}/cast", to=kind) for name in taken]
    last = [
        helper.make_node("Cast", [renamed[name]], [name], name=f"{name}/cast", to=TensorProto.FLOAT) for name in given
    ]
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)


@app.command()
def show(
    networks: Annotated[list[str], typer.Argument(help="Zoo networks.")],
    levels: Annotated[str, typer.Option(help="CPU levels that modules are compiled for.")] = _HOST,
    time_budget: Annotated[float, typer.Option(help="Seconds of each compilation.")] = 0.0,
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    seconds: Annotated[float, typer.Option(help="Duration of the timing of a network for a level.")] = 8.0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of files.")] = Path("build/half_precision"),
) -> None:
    """Compile and time; a row for each network, level and type, with ratios above 1 where Sartor's module is faster."""
    print("| network | CPU level | type | ms | f32 module / this | ONNX Runtime on this file / this |")
    print("|---|---|---|---:|---:|---:|")
    for network in networks:
        files = _written(network, output)
        for level in levels.split(","):
            config = CompileConfig(
                target=Target.create("cpu", level),
                threads=threads,
                time_budget=time_budget,
                database=output / "tuning.db",
            )
            _report(network, level, _timed(files, level, config, output, seconds))


def _written(network: str, folder: Path) -> dict[str, Path]:
    """The files of a network by type."""
    whole = write(network, folder)
    files = {"f32": whole}
    for name in _HALVES:
        files[name] = folder / f"{network}.{name}.onnx"
        onnx.save(halved(onnx.load(whole), name), files[name])
    return files


def _timed(
    files: Mapping[str, Path], level: str, config: CompileConfig, folder: Path, seconds: float
) -> dict[str, Samples]:
    """Times of the modules by type, and of ONNX Runtime by ``ort:<type>`` where it has kernels."""
    feeds = sample_inputs(onnx.load(files["f32"]))
    runs: dict[str, Callable[[], object]] = {}
    for name, file in files.items():
        module = folder / f"{file.stem}.{level}.vmfb"
        compile_model(file, module, config)
        runs[name] = partial(Session(module, threads=config.threads).run, None, feeds)
        if level == _HOST and (reference := _runtime(file, config.threads, feeds)) is not None:
            runs[f"ort:{name}"] = reference
    samples: dict[str, Samples] = time_interleaved(runs, min_rounds=8, min_seconds=seconds, block=BLOCK, pause=PAUSE)
    return samples


def _runtime(file: Path, threads: int, feeds: Mapping[str, Array]) -> Callable[[], object] | None:
    """ONNX Runtime on a file; None if it has no kernels for the type."""
    try:
        run = partial(OnnxRuntimeReference(file, threads=threads, is_timed=True), feeds)
        run()
    except SartorError:
        return None
    return run


def _report(network: str, level: str, samples: Mapping[str, Samples]) -> None:
    for name in ("f32", *_HALVES):
        mine, other = samples[name].median, samples.get(f"ort:{name}")
        beside = f"{other.median / mine:.2f}" if other else ""
        print(
            f"| {network} | {level} | {name} | {mine * 1e3:.2f} | {samples['f32'].median / mine:.3f} | {beside} |",
            flush=True,
        )


if __name__ == "__main__":
    app()
