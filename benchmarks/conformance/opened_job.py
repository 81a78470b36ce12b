"""Worker side: compile a model for any size by the open dimensions of its inputs, and run it with some sizes.

Each size above one is a symbol: what has the same size in two inputs, as the inner dimensions of a product, has one
symbol, since nothing else tells which dimensions of an operator must agree. All layers are IREE's own code.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.sizes.fit import twin_sizes
from sartor.errors import SartorError, UnsupportedModelError
from sartor.onnx_model.graphs.evaluator_errors import EVALUATOR_ERRORS
from sartor.open_sizes.stock import compile_symbols
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.tuning.workers.protocol import WorkerError

# Of a range of fewer sizes the imports would not tell sizes from constants.
_LEAST_RANGE = 11


def symbols_of(feeds: Mapping[str, Array]) -> tuple[Symbol, ...]:
    """A symbol for each size above one, from half of that size to about twice; all have other largest sizes.

    Of less than half of a size a slice or a window may have nothing to take.
    """
    sizes = sorted({size for array in feeds.values() for size in array.shape if size > 1})
    return tuple(Symbol(f"n{size}", -(-size // 2), _LEAST_RANGE + 2 * size) for size in sizes)


def taken_symbols(model: ModelProto, feeds: Mapping[str, Array]) -> tuple[Symbol, ...]:
    """As ``symbols_of``, as many as ONNX's own evaluator takes other sizes for: attributes, and constants, fix others.

    Args:
        model: whose inputs have no shapes.
        feeds: its inputs, by name.
    """
    symbols = symbols_of(feeds)
    sets = (chosen for count in range(len(symbols), 0, -1) for chosen in itertools.combinations(symbols, count))
    return next((chosen for chosen in sets if _is_taken(model, feeds, chosen)), ())


def _is_taken(model: ModelProto, feeds: Mapping[str, Array], symbols: Sequence[Symbol]) -> bool:
    """Whether ONNX's evaluator computes a model where these sizes are others, of which inputs are repeated.

    It computes none of images without the package that decodes them.
    """
    others = {symbol.name: size for symbol, size in zip(symbols, twin_sizes(symbols), strict=True)}
    given = {
        name: np.resize(array, [others.get(f"n{size}", size) for size in array.shape]) for name, array in feeds.items()
    }
    try:
        ReferenceEvaluator(model).run(None, given)
    except (*EVALUATOR_ERRORS, ImportError):
        return False
    return True


def run_opened(
    model: Path, feeds: Mapping[str, Array], symbols: tuple[Symbol, ...], module: Path
) -> list[Array] | WorkerError:
    """The outputs of a model that was compiled for any size, or why it was not.

    Args:
        model: the ONNX file, whose inputs have no shapes.
        feeds: its inputs, by name.
        symbols: the sizes that are open.
        module: where the module is written.
    """

    def shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {name: tuple(sizes.get(f"n{size}", size) for size in array.shape) for name, array in feeds.items()}

    signature = compile_symbols(model, symbols, shapes, module)
    if isinstance(signature, WorkerError):
        return signature
    if any(spec.name not in feeds for spec in signature.inputs):
        return WorkerError(UnsupportedModelError("it draws numbers at random, which only a manifest tells sessions"))
    try:
        return Session(module, signature=signature, threads=1).run(
            None, {spec.name: feeds[spec.name] for spec in signature.inputs}
        )
    except SartorError as error:
        return WorkerError(error)
