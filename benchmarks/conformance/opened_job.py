"""Worker side: compile a model for any size by the open dimensions of its inputs, and run it with some sizes.

Each size above one is a symbol: what has the same size in two inputs, as the inner dimensions of a product, has one
symbol, since nothing else tells which dimensions of an operator must agree. All layers are IREE's own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import SartorError, UnsupportedModelError
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


def run_opened(model: Path, feeds: Mapping[str, Array], module: Path) -> list[Array] | WorkerError:
    """The outputs of a model that was compiled for any size, or why it was not.

    Args:
        model: the ONNX file, whose inputs have no shapes.
        feeds: its inputs, by name.
        module: where the module is written.
    """

    def shapes(sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {name: tuple(sizes.get(f"n{size}", size) for size in array.shape) for name, array in feeds.items()}

    signature = compile_symbols(model, symbols_of(feeds), shapes, module)
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
