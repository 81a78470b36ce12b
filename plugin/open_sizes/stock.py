"""Worker side: a model for any size by IREE's stock code alone, with no layer measured and no size checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.target import Target
from sartor.codegen.routines import ROUTINES
from sartor.costing.listing import list_candidates
from sartor.devices import CPU
from sartor.errors import SartorError, UnsupportedModelError
from sartor.frontend.import_job import get_going, run_import
from sartor.onnx_model.preparing.faster_onnxslim import load_onnxslim
from sartor.open_sizes.importing import Imported, opened_graph
from sartor.open_sizes.rounded_windows import rounded_file
from sartor.open_sizes.same_pads import check_multiples, needed_multiples
from sartor.open_sizes.size_branches import check_branches
from sartor.open_sizes.symbols import OpenDims, declared_dims
from sartor.policies import Double
from sartor.runtime.driver.signature import Signature
from sartor.settings.size_range import OpenShapes
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError

Shapes = Mapping[str, tuple[int, ...]]


def compile_any_size(model: Path, shapes: OpenShapes, module: Path) -> Signature | WorkerError:
    """Compile a model for the CPU; returns what it takes and gives.

    Args:
        model: ONNX file.
        shapes: of inputs with free dimensions, whose sizes are ranges.
        module: the .vmfb to write.
    """
    if (refused := check_branches(model)) is not None:
        return refused
    declared = declared_dims(model)
    if isinstance(declared, WorkerError):
        return declared
    try:
        dims = OpenDims(declared, shapes)
        needed = needed_multiples(model, frozenset(dims.sides))
        if isinstance(needed, WorkerError):
            return needed
        check_multiples(needed, dims.sides)
    except SartorError as error:
        return WorkerError(error)
    return compile_symbols(model, dims.symbols, dims.shapes, module, double=Double.F64, is_confirmed=True)


def compile_symbols(
    model: Path,
    symbols: tuple[Symbol, ...],
    shapes: Callable[[Mapping[str, int]], Shapes],
    module: Path,
    *,
    double: Double = Double.F32,
    is_confirmed: bool = False,
) -> Signature | WorkerError:
    """Compile a model of symbols for the CPU; returns what it takes and gives.

    Args:
        model: ONNX file.
        symbols: the sizes that callers choose.
        shapes: the shapes of the inputs for sizes of the symbols.
        module: the .vmfb to write.
        double: the type in which float64 is computed.
        is_confirmed: whether a model is refused of which small sizes do not confirm each layer, as nobody compares what
            it gives.
    """
    rounded = rounded_file(model, module.parent / "rounded")
    if isinstance(rounded, WorkerError):
        return rounded
    fits = Fit.of(symbols), Fit.of_small(symbols)
    most = {symbol.name: symbol.most for symbol in symbols}
    networks: list[Imported] = []
    # What simplifies a model is a process of its own, for each import: a copy of this one need not load it again.
    load_onnxslim()
    for sizes in (most, *(fit.twin_sizes for fit in fits)):
        get_going()
        imported = run_import(rounded.path or model, shapes(sizes), None, double=double, is_open=True)
        if isinstance(imported, WorkerError):
            return imported
        networks.append((imported.graph, imported.weights))
    opened = opened_graph(networks, fits, module.with_suffix(".bin"))
    if isinstance(opened, WorkerError):
        return opened
    graph, weights, unknown = opened
    if is_confirmed and unknown:
        return WorkerError(UnsupportedModelError(f"'{unknown[0]}' is another layer where sizes are small"))
    target = Target.create(CPU)
    try:
        variants = list_candidates(graph, ROUTINES[:1], target).variants
        chosen = {layer.name: variants[layer.task.key][0] for layer in graph.layers}
        build_net(SplitNetwork(graph, chosen), weights, target, "", NetFiles(module, None))
    except SartorError as error:
        return WorkerError(error)
    return net_signature((graph.inputs, graph.outputs))
