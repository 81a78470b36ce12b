"""Worker side: compile a model for any size by the open dimensions of its inputs, and run it with some sizes.

Each size above one is a symbol: what has the same size in two inputs, as the inner dimensions of a product, has one
symbol, since nothing else tells which dimensions of an operator must agree. All layers are IREE's own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.codegen.ir.target import Target
from sartor.codegen.routines import ROUTINES
from sartor.costing.listing import list_candidates
from sartor.errors import SartorError, UnsupportedModelError
from sartor.frontend.import_job import get_going, run_import
from sartor.onnx_model.preparing.faster_onnxslim import load_onnxslim
from sartor.open_sizes.importing import Imported, opened_graph
from sartor.open_sizes.rounded_windows import rounded_file
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from sartor.tuning.workers.protocol import WorkerError

# Of a range of fewer sizes the imports would not tell sizes from constants.
_LEAST_RANGE = 11


def symbols_of(feeds: Mapping[str, Array]) -> tuple[Symbol, ...]:
    """A symbol for each size above one, from half of that size to about twice; all have other largest sizes.

    Of less than half of a size a slice or a window may have nothing to take.
    """
    sizes = sorted({size for array in feeds.values() for size in array.shape if size > 1})
    return tuple(Symbol(f"n{size}", -(-size // 2), _LEAST_RANGE + 2 * size) for size in sizes)


def run_opened(model: Path, feeds: Mapping[str, Array], module: Path) -> list[Array] | WorkerError:
    """The outputs of a model that was compiled for any size, or why it was not.

    Args:
        model: the ONNX file, whose inputs have no shapes.
        feeds: its inputs, by name.
        module: where the module is written.
    """
    symbols = symbols_of(feeds)
    rounded = rounded_file(model, module.parent / "rounded")
    if isinstance(rounded, WorkerError):
        return rounded
    model = rounded.path or model
    fits = Fit.of(symbols), Fit.of_small(symbols)
    most = {symbol.name: symbol.most for symbol in symbols}
    networks: list[Imported] = []
    # What simplifies a model is a process of its own, for each import: a copy of this one need not load it again.
    load_onnxslim()
    for sizes in (most, *(fit.twin_sizes for fit in fits)):
        get_going()
        shapes = {name: tuple(sizes.get(f"n{size}", size) for size in array.shape) for name, array in feeds.items()}
        imported = run_import(model, shapes, None, is_open=True)
        if isinstance(imported, WorkerError):
            return imported
        networks.append((imported.graph, imported.weights))
    opened = opened_graph(networks, fits, module.with_suffix(".bin"))
    if isinstance(opened, WorkerError):
        return opened
    graph, weights, _ = opened
    if any(value.name not in feeds for value in graph.inputs):
        return WorkerError(UnsupportedModelError("it draws numbers at random, which only a manifest tells sessions"))
    target = Target.create("cpu")
    try:
        variants = list_candidates(graph, ROUTINES[:1], target).variants
        chosen = {layer.name: variants[layer.task.key][0] for layer in graph.layers}
        build_net(SplitNetwork(graph, chosen), weights, target, "", NetFiles(module, None))
        session = Session(module, signature=net_signature((graph.inputs, graph.outputs)), threads=1)
        return session.run(None, {value.name: feeds[value.name] for value in graph.inputs})
    except SartorError as error:
        return WorkerError(error)
