"""Products by weights in blocks of 4 bits beside ONNX Runtime's MatMulNBits, alone: ratios by rows, and their means.

    python -m benchmarks.encoded.products build --threads 1 --rows 1 --rows 8 --rows 128
    python -m benchmarks.encoded.products time --threads 1

ONNX Runtime runs as on this CPU, also beside kernels for another level (``build --cpu x86-64-v3``).

Compiling takes minutes, timing seconds. All are timed in turn in one process, so that each finds its weights where
what ran between has left them.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import typer
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine
from sartor.codegen.kernels.isa.byte_pairs import BYTE_PAIRS
from sartor.codegen.kernels.isa.word_sums import PAIR_SUMS
from sartor.codegen.linking.bench_module import compile_bench, physical_signature
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockDotProduct, BlockProduct, BlockWordProduct
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module

app = typer.Typer(help=__doc__)
# Depth and columns of products of models of 0.5B to 8B parameters.
SHAPES = ("896,4864", "4864,896", "2048,512", "2048,8192", "8192,2048", "4096,4096")
ROWS = (1, 8, 128)
# By the level of ONNX Runtime that is at least as exact and no slower: f32, also for rows rounded to 16 bits, and rows
# rounded to 8 bits.
_ROUTINES: Mapping[int, tuple[BlockRoutine, ...]] = {
    0: (BlockProduct(), BlockPanels(), BlockWordProduct(), BlockWordProduct("block_word_pairs", element=PAIR_SUMS)),
    4: (BlockDotProduct(), BlockDotProduct("block_byte_pairs", element=BYTE_PAIRS)),
}
_BITS, _BLOCK = 4, 32
# Of each routine's tilings, the best guesses.
_TRIED = 2


@dataclass(frozen=True)
class Product:
    """A product, and a module with kernels of it.

    Attributes:
        depth, columns, rows: its sizes.
        layer: as the import made it.
        weights: of the layer, by name.
        codes: kernels by symbol, with the level of ONNX Runtime that computes alike.
        module: the compiled module.
    """

    depth: int
    columns: int
    rows: int
    layer: Layer
    weights: Mapping[str, Array]
    codes: Mapping[str, tuple[int, Implementation]]
    module: bytes

    @property
    def inputs(self) -> Array:
        """What is multiplied."""
        return np.random.default_rng(1).standard_normal((self.rows, self.depth)).astype(np.float32)


@app.command()
def build(
    shape: Annotated[list[str], typer.Option(help="Depth and columns, such as 896,4864; repeatable.")] = [*SHAPES],  # noqa: B006
    rows: Annotated[list[int], typer.Option(help="Rows; repeatable.")] = [*ROWS],  # noqa: B006
    threads: Annotated[int, typer.Option(help="Threads that kernels are made for.")] = 1,
    cpu: Annotated[str, typer.Option(help="The CPU, or level, that kernels are made for.")] = "host",
    directory: Annotated[Path, typer.Option(help="Where the products are kept.")] = Path("build/encoded"),
) -> None:
    """Compile the kernels of all products."""
    directory.mkdir(parents=True, exist_ok=True)
    target = replace(Target.create("cpu", cpu), threads=threads)
    for sizes in shape:
        depth, columns = map(int, sizes.split(","))
        for count in rows:
            path = directory / f"{depth}x{columns}x{count}.{threads}.pickle"
            path.write_bytes(pickle.dumps(_compiled(depth, columns, count, target)))
            print(path, flush=True)


def _compiled(depth: int, columns: int, rows: int, target: Target) -> Product:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        onnx.save(_model(depth, columns, rows, 0), path)
        imported = run_import(path, {}, None)
    if not isinstance(imported, ImportedModel):
        raise typer.BadParameter(str(imported))
    (layer,) = imported.graph.layers
    codes = dict(_kernels(layer, target))
    types = (layer.task.inputs, layer.task.weights, layer.task.results)
    lowered = lower({symbol: code for symbol, (_, code) in codes.items()}, target)
    pieces = {symbol: Piece(symbol, codes[symbol][1], code) for symbol, code in lowered.items()}
    signatures = {symbol: physical_signature(code, *types) for symbol, (_, code) in codes.items()}
    module = compile_bench(target, pieces, signatures, repeated=())
    return Product(depth, columns, rows, layer, dict(imported.weights), codes, module)


def _kernels(layer: Layer, target: Target) -> Iterator[tuple[str, tuple[int, Implementation]]]:
    for level, routines in _ROUTINES.items():
        for routine in routines:
            listed = choices_of(routine, layer.task, target)
            for number, sizes in enumerate([] if isinstance(listed, Rejected) else listed[:_TRIED]):
                code = routine.build(layer.task, sizes, target)
                if isinstance(code, Implementation):
                    yield f"{routine.name}_{number}", (level, code)


def _model(depth: int, columns: int, rows: int, level: int) -> ModelProto:
    of, random = BlockEncoding(_BITS, _BLOCK, depth, columns), np.random.default_rng(0)
    scales = (random.random(of.columns * of.blocks) * 0.01 + 0.01).astype(np.float32)
    parts: dict[str, np.ndarray] = {"w": random.integers(0, 256, of.codes.shape, dtype=np.uint8), "s": scales}
    sizes: dict[str, Any] = {"K": depth, "N": columns, "bits": _BITS, "block_size": _BLOCK, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], name="product", domain="com.microsoft", **sizes)
    given, result = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size])]
        for name, size in (("x", depth), ("y", columns))
    )
    constants = [numpy_helper.from_array(array, name) for name, array in parts.items()]
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", given, result, constants)
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


@app.command()
def time(
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    directory: Annotated[Path, typer.Option(help="Where the products are kept.")] = Path("build/encoded"),
    seconds: Annotated[float, typer.Option(help="For each product.")] = 1.0,
) -> None:
    """Show what ONNX Runtime takes divided by the fastest kernel's time, at both levels."""
    ratios: dict[tuple[int, int], list[float]] = {}
    for path in sorted(directory.glob(f"*.{threads}.pickle")):
        product: Product = pickle.loads(path.read_bytes())
        times = _times(product, threads, seconds)
        for level in {own for own, _ in product.codes.values()}:
            kernel = min((name for name, (own, _) in product.codes.items() if own == level), key=times.__getitem__)
            ratio = times[f"level {level}"] / times[kernel]
            ratios.setdefault((product.rows, level), []).append(ratio)
            sizes = f"{product.rows} rows, {product.depth} by {product.columns}"
            print(f"{sizes}, level {level}: {ratio:.2f} by {kernel}, {times[kernel] * 1e6:.0f} µs", flush=True)
    for (rows, level), found in sorted(ratios.items()):
        print(f"{rows} rows, level {level}, {threads} threads: geometric mean {_mean(found):.2f} of {len(found)}")


def _mean(ratios: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def _times(product: Product, threads: int, seconds: float) -> dict[str, float]:
    """Lower quartiles of the time of each kernel and of ONNX Runtime's levels, in seconds; results are compared."""
    feeds = {"x": product.inputs}
    calls: dict[str, Callable[[], object]] = {}
    right: Array | None = None
    for level in _ROUTINES:
        session = _session(product, level, threads)
        calls[f"level {level}"] = partial(session.run, None, feeds)
        right = session.run(None, feeds)[0] if right is None else right
    program = Program(open_module(product.module).native, "products", open_device("cpu", threads), {})
    for name, (level, code) in product.codes.items():
        packed = [
            packing.apply(product.weights[weight])
            for weight, packing in zip(product.layer.weights, code.packings, strict=True)
        ]
        views = [upload(np.ascontiguousarray(each), program.device).view for each in (product.inputs, *packed)]
        calls[name] = partial(program.invoke, EXPORT_PREFIX + name, views)
        (view,) = program.invoke(EXPORT_PREFIX + name, views)
        found = from_view(view, program.device, TensorSpec("y", "float32", (product.rows, product.columns))).to_host()
        _check(name, found, right, 1e-4 if level == 0 else 3e-2)
    samples = time_interleaved(calls, min_rounds=3, min_seconds=seconds)
    return {name: sample.quantile(0.25) for name, sample in samples.items()}


def _session(product: Product, level: int, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    content = _model(product.depth, product.columns, product.rows, level).SerializeToString()
    return onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])


def _check(name: str, found: Array, right: Array | None, allowed: float) -> None:
    if right is None or np.abs(found - right).max() > allowed * np.abs(right).max():
        raise typer.BadParameter(f"{name} is wrong")


if __name__ == "__main__":
    app()
