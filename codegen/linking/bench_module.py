"""A module that exports pieces one by one, so that they can be run and timed alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.schema import RANGE, physical_types
from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.linking.names import EXPORT_PREFIX, REPEAT_PREFIX, REPEATS
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import module_header
from sartor.codegen.mlir.executables import CodeStore, TranslatedApart
from sartor.codegen.mlir.iree_compiler import compile_made, compile_module, inlined, inlined_module


def physical_signature(
    implementation: Implementation,
    inputs: tuple[TensorType, ...],
    weights: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> tuple[list[TensorType], list[TensorType]]:
    """Types in memory of all arguments (activations, packed weights, ranges) and of the results."""
    arguments = physical_types(inputs, implementation.inputs)
    arguments += [packing.type_of(weight) for weight, packing in zip(weights, implementation.packings, strict=True)]
    arguments += [RANGE] * len(implementation.ranges)
    return arguments, physical_types(results, implementation.outputs)


def compile_bench(
    target: Target,
    pieces: Mapping[str, Piece],
    signatures: Mapping[str, tuple[list[TensorType], list[TensorType]]],
    *,
    repeated: Collection[str] | None = None,
    store: CodeStore | None = None,
) -> bytes:
    """A .vmfb that exports every piece; see ``bench_module``.

    The pieces are inlined first, because IREE copies the arguments of functions that it does not inline. Their code is
    taken from ``store``, or put there for the networks that it will be part of.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    text = bench_module(target, pieces, signatures, repeated=repeated)
    if not target.is_cpu:
        return compile_module(inlined(text), target.flags, start="flow")
    apart = TranslatedApart(target.flags, store)
    return compile_made(partial(inlined_module, text), target.flags, start="flow", apart=apart)


def bench_module(
    target: Target,
    pieces: Mapping[str, Piece],
    signatures: Mapping[str, tuple[list[TensorType], list[TensorType]]],
    *,
    repeated: Collection[str] | None = None,
) -> str:
    """Flow-level MLIR that exports every piece as ``run_<symbol>``, and as ``repeat_<symbol>``.

    The latter takes the arguments of ``REPEATS`` calls and makes them one after the other, like the layers of a
    network; by default IREE would run independent calls concurrently. All calls have the same open sizes.

    Args:
        target: what the module is compiled for.
        pieces: by symbol.
        signatures: argument and result types of each piece, by symbol.
        repeated: symbols of which ``repeat_<symbol>`` is exported; None for all. Only short pieces need it, and its
            eight calls take a sixth of a compilation.
    """
    attributes, devices = module_header(target)
    parts = [f"module attributes {{{attributes}}} {{", devices]
    for symbol, piece in pieces.items():
        parts.append(piece.code.text)
        parts += [
            _wrapper(prefix + symbol, piece, calls, *signatures[symbol])
            for prefix, calls in ((EXPORT_PREFIX, 1), (REPEAT_PREFIX, REPEATS))
            if calls == 1 or repeated is None or symbol in repeated
        ]
    return "\n".join([*parts, "}"])


def _wrapper(name: str, piece: Piece, calls: int, arguments: list[TensorType], results: list[TensorType]) -> str:
    """A function that calls a piece ``calls`` times, each time with other arguments.

    Behind these it takes a tensor for each symbol of the piece, of one dimension, which has the symbol's size.
    """
    taken, made = len(arguments), len(results)
    symbols = piece.implementation.symbols
    sizes = SizeText({symbol: f"%symbol{index}" for index, symbol in enumerate(symbols)})
    given = "\n".join(
        f"  %symbol{index} = hal.buffer_view.dim<%n{index} : !hal.buffer_view>[0] : index"
        for index in range(len(symbols))
    )
    numbers = [f"%symbol{index}" for index in range(len(symbols))]
    names = [*(f"%a{index}" for index in range(calls * taken)), *(f"%n{index}" for index in range(len(symbols)))]
    views = ", ".join(f"{name}: !hal.buffer_view" for name in names)
    returned = ", ".join(["!hal.buffer_view"] * (calls * made))
    imports = "\n".join(
        f"  %t{index} = hal.tensor.import %a{index} : !hal.buffer_view -> {sizes.typed(arguments[index % taken])}"
        for index in range(calls * taken)
    )
    many = f":{made}" if made > 1 else ""
    types, kinds = ", ".join([*map(str, arguments), *["index"] * len(symbols)]), ", ".join(map(str, results))
    body = "\n".join(
        f"  %r{call}{many} = util.call @{piece.symbol}"
        f"({', '.join([*(f'%t{call * taken + index}' for index in range(taken)), *numbers])}) : ({types}) -> ({kinds})"
        for call in range(calls)
    )
    exports = "\n".join(
        f"  %o{call * made + index} = hal.tensor.export %r{call}{f'#{index}' if many else ''} : "
        f"{sizes.typed(result)} -> !hal.buffer_view"
        for call in range(calls)
        for index, result in enumerate(results)
    )
    values = ", ".join(f"%o{index}" for index in range(calls * made))
    computed = "".join(f"  {line}\n" for line in sizes.lines)
    before = f"{given}\n{computed}" if symbols else ""
    return f"""util.func public @{name}({views}) -> ({returned}) attributes {{iree.abi.stub}} {{
{before}{imports}
{body}
{exports}
  util.return {values} : {returned}
}}"""
