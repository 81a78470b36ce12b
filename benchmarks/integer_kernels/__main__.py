"""Times the kernels for 8-bit integers on CPUs without VNNI, layer by layer, beside f32 and the instruction's peak.

    python -m benchmarks.integer_kernels resnet50 --cpu x86-64-v3
    python -m benchmarks.integer_kernels resnet50 mobilenet_v2 --layers '3x3, *14x14*' --guesses 4 --record

The code for a level without VNNI runs on any CPU that has AVX2. Layers are those of the float network with 8 bits
permitted, so ranges are those of random samples; the kernels are those of quantised networks. Results are compared
with those of the kernels in f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.integer_kernels.peak import peak_products
from benchmarks.integer_kernels.tile import tile_limits
from benchmarks.record.circumstances import circumstances
from benchmarks.record.computed import Cell, Computed
from benchmarks.record.results import RESULTS
from benchmarks.selection.results import markdown
from benchmarks.zoo import NETWORKS, write
from sartor.codegen.analysis.convolution import convolution_of
from sartor.codegen.analysis.matmul import product_shape
from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.ir.layer import Layer, LayerKind, Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, Variant, variants_of
from sartor.codegen.kernels.isa.word_pairs import WordPairElement
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.layer_costs import make_tuner
from sartor.errors import DeviceError
from sartor.frontend.loading import import_network, open_workspace
from sartor.policies import Precision
from sartor.progress import silent
from sartor.tuning.cost_tables.roofline import Limit
from sartor.tuning.measuring.benchmark_case import BenchmarkCase
from sartor.tuning.measuring.tuner import Tuner
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store

_KINDS = (LayerKind.CONVOLUTION, LayerKind.CONTRACTION)

app = typer.Typer(help=__doc__)


@dataclass(frozen=True)
class Row:
    """A layer's rates, in 10⁹ multiply-adds a second.

    Attributes:
        layer: what it computes.
        layers: how many of the network's layers are equal.
        kernel: the fastest one for 8 bits.
        microseconds: its time.
        rate: its multiply-adds.
        of_products: part of the rate of the instruction alone, in percent.
        of_sums: part of the rate of the instruction with the addition that each product needs, in percent.
        single: rate of the fastest kernel in f32, whose method may need fewer multiply-adds.
    """

    layer: str
    layers: int
    kernel: str
    microseconds: float
    rate: float
    of_products: float
    of_sums: float
    single: float


@dataclass(frozen=True)
class Peak:
    """The instruction's rate alone, and with additions, in operations per second."""

    products: float
    sums: float


def described(task: Task) -> str:
    """What a convolution or product computes."""
    convolution = convolution_of(task)
    if convolution is not None:
        channels, depth, *taps = convolution.filter.shape
        *_, height, width = convolution.result.shape
        stride = f" stride {convolution.strides[0]}" if convolution.strides != (1, 1) else ""
        beside = ", residual" if len(task.inputs) > 1 else ""
        return f"{taps[0]}x{taps[1]}{stride}, {depth} to {channels}, {height}x{width}{beside}"
    shape = product_shape(task)
    return task.key if isinstance(shape, Rejected) else f"{shape.rows or 1}x{shape.depth} by {shape.columns}"


def of_integers(variant: Variant) -> bool:
    """Whether a variant multiplies pairs and stores what it computes in 8 bits."""
    return isinstance(variant.traits.instruction, WordPairElement) and variant.implementation.output.dtype == "i8"


def of_floats(variant: Variant) -> bool:
    """Whether a variant is a kernel in f32."""
    code = variant.implementation
    return code.kernel is not None and variant.dtype == "f32" and variant.traits.precision is None


def row_of(layer: Layer, layers: int, known: Mapping[Variant, Measurement], peak: Peak) -> Row:
    """The rates of a layer by the measurements of its variants.

    Raises:
        DeviceError: if a variant does not compile or gives a wrong result, or none was measured.
    """
    for variant, found in known.items():
        if found.status is not Status.OK:
            raise DeviceError(f"{variant.descriptor} of '{layer.name}': {found.status}, {found.message}")
    integers, floats = (
        sorted((found.time, variant.descriptor) for variant, found in known.items() if belongs(variant))
        for belongs in (of_integers, of_floats)
    )
    if not integers or not floats:
        raise DeviceError(f"no kernel of '{layer.name}' was measured")
    operations, (seconds, kernel) = operation_count(layer.task), integers[0]
    rate = operations / seconds
    return Row(
        *(described(layer.task), layers, kernel, 1e6 * seconds, rate / 2e9),
        of_products=100 * rate / peak.products,
        of_sums=100 * rate / peak.sums,
        single=operations / floats[0][0] / 2e9,
    )


def peak_of(tuner: Tuner, target: Target, threads: int) -> Peak:
    """The instruction's rates on this machine.

    Raises:
        DeviceError: if they cannot be measured.
    """
    limits = [peak_products(target, threads, additions=number) for number in (0, 1)]
    measured = tuner.measure([limit.case for limit in limits])
    return Peak(*(_rate(limit, measured) for limit in limits))


def _rate(limit: Limit, measured: Mapping[str, Mapping[str, Measurement]]) -> float:
    rate = limit.per_second(measured)
    if rate is None:
        raise DeviceError("the rate of the instruction for pairs cannot be measured on this machine")
    return rate


def rows(network: str, config: CompileConfig, layers: str, guesses: int) -> Iterator[Row]:
    """Time the layers of a network that are multiplied by pairs.

    Args:
        network: of the zoo, or an ONNX file.
        config: the target and threads.
        layers: glob of what layers compute, as rows show it.
        guesses: variants of each routine that are timed, best guess first.

    Raises:
        SartorError: if the network cannot be imported, or a kernel fails.
    """
    with open_workspace(config.target, config.jobs) as (pool, work), Store.in_memory() as store:
        model = write(network, work) if network in NETWORKS else Path(network)
        imported = import_network(model, config.importing, pool, silent, work)
        tuner = make_tuner(store, pool, config.target, silent, work)
        peak = peak_of(tuner, config.target, config.threads)
        named: dict[str, list[Layer]] = {}
        for layer in imported.graph.layers:
            named.setdefault(layer.task.key, []).append(layer)
        for layer, *equal in named.values():
            if layer.task.kind not in _KINDS or not fnmatchcase(described(layer.task), layers):
                continue
            chosen = list(_chosen(layer.task, config.target, guesses))
            if any(map(of_integers, chosen)):
                yield row_of(layer, 1 + len(equal), _measured(layer.task, chosen, tuner), peak)


def _chosen(task: Task, target: Target, guesses: int) -> Iterator[Variant]:
    """The best guesses of each routine, those in f32 first, by which the others are checked."""
    for belongs in (of_floats, of_integers):
        for routine in routines_for(["i8"]):
            found = (variant for variant in variants_of(routine, task, target) if isinstance(variant, Variant))
            yield from islice(filter(belongs, found), guesses)


def _measured(task: Task, variants: Sequence[Variant], tuner: Tuner) -> dict[Variant, Measurement]:
    case = BenchmarkCase(task.key, task.inputs, task.weights, task.results, tuple(variants))
    known = tuner.measure([case])[task.key]
    return {variant: known[variant.descriptor] for variant in variants if variant.descriptor in known}


def tile_rates(config: CompileConfig) -> dict[tuple[str, str], float]:
    """The innermost loops' rates, in 10⁹ multiply-adds a second, by method and tile.

    Raises:
        SartorError: if one cannot be measured.
    """
    with open_workspace(config.target, config.jobs) as (pool, work), Store.in_memory() as store:
        limits = tile_limits(config.target, config.threads)
        tuner = make_tuner(store, pool, config.target, silent, work)
        measured = tuner.measure([limit.case for limit in limits.values()])
        return {name: _rate(limit, measured) / 2e9 for name, limit in limits.items()}


@app.command()
def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Zoo networks, or ONNX files.")] = None,
    cpu: Annotated[str, typer.Option(help="What code is for: a CPU without VNNI.")] = "x86-64-v3",
    layers: Annotated[str, typer.Option(help="Glob of what layers compute, as rows show it.")] = "*",
    guesses: Annotated[int, typer.Option(min=1, help="Variants of each routine that are timed.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Threads of kernels.")] = 1,
    recorded: Annotated[bool, typer.Option("--record", help="Record what the document shows.")] = False,
    tiles: Annotated[bool, typer.Option("--tiles", help="Time the innermost loops alone, and no layers.")] = False,
) -> None:
    """Time the layers, and print the table."""
    now = circumstances(Path.cwd(), "benchmarks.integer_kernels") if recorded else None
    config = CompileConfig(Target.create("cpu", cpu), threads=threads, precision=Precision.INT8)
    if tiles:
        for (method, tile), rate in tile_rates(config).items():
            print(f"{method}, {tile}: {rate:.1f}")
        return
    found: list[Row] = []
    for network in networks or ["resnet50"]:
        for row in rows(network, config, layers, guesses):
            print(row, flush=True)
            found.append(row)
    print(f"\n{markdown(found)}")
    if now is not None:
        columns = ("layer", "times", "kernel", "µs", "10⁹/s", "of products, %", "of products with sums, %", "f32")
        shown: list[tuple[Cell, ...]] = [(*vars(each).values(),) for each in found]
        source = f"kernels for {cpu} timed beside each other"
        print(Computed("integer-kernels", now, source, columns, tuple(shown)).save(RESULTS))


if __name__ == "__main__":
    app()
