"""A module that exports pieces one by one, so that they can be run and timed alone."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.codegen.dispatches import module_header
from sartor.codegen.iree_compiler import compile_module, inlined
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import physical_type
from sartor.codegen.routine import Implementation
from sartor.codegen.stitch import Piece
from sartor.codegen.target import Target

EXPORT_PREFIX = "run_"


def physical_signature(
    implementation: Implementation,
    inputs: tuple[TensorType, ...],
    weights: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
) -> tuple[list[TensorType], list[TensorType]]:
    """Types in memory of all arguments (activations, then packed weights) and of the results."""
    arguments = [physical_type(each, layout) for each, layout in zip(inputs, implementation.inputs, strict=True)]
    arguments += [packing.type_of(each) for each, packing in zip(weights, implementation.packings, strict=True)]
    return arguments, [physical_type(each, implementation.output) for each in results]


def compile_bench(
    target: Target, pieces: Mapping[str, Piece], signatures: Mapping[str, tuple[list[TensorType], list[TensorType]]]
) -> bytes:
    """A .vmfb that exports every piece as ``run_<symbol>``; see ``bench_module``.

    The pieces are inlined first: IREE copies what it passes to a function that it does not see into.

    Raises:
        CompileError: with IREE's diagnostic.
    """
    return compile_module(inlined(bench_module(target, pieces, signatures)), target.flags, start="flow")


def bench_module(
    target: Target, pieces: Mapping[str, Piece], signatures: Mapping[str, tuple[list[TensorType], list[TensorType]]]
) -> str:
    """Flow-level MLIR that exports every piece as ``run_<symbol>``.

    Args:
        target: what the module is compiled for.
        pieces: by symbol.
        signatures: argument and result types of each piece, by symbol.
    """
    attributes, devices = module_header(target)
    parts = [f"module attributes {{{attributes}}} {{", devices]
    for symbol, piece in pieces.items():
        parts += [piece.code.text, _wrapper(symbol, *signatures[symbol])]
    return "\n".join([*parts, "}"])


def _wrapper(symbol: str, arguments: list[TensorType], results: list[TensorType]) -> str:
    views = ", ".join(f"%a{index}: !hal.buffer_view" for index in range(len(arguments)))
    returned = ", ".join(["!hal.buffer_view"] * len(results))
    imports = "\n".join(
        f"  %t{index} = hal.tensor.import %a{index} : !hal.buffer_view -> {each}"
        for index, each in enumerate(arguments)
    )
    many = f":{len(results)}" if len(results) > 1 else ""
    exports = "\n".join(
        f"  %o{index} = hal.tensor.export %r{f'#{index}' if many else ''} : {each} -> !hal.buffer_view"
        for index, each in enumerate(results)
    )
    operands = ", ".join(f"%t{index}" for index in range(len(arguments)))
    types = ", ".join(map(str, arguments))
    return f"""util.func public @{EXPORT_PREFIX}{symbol}({views}) -> ({returned}) attributes {{iree.abi.stub}} {{
{imports}
  %r{many} = util.call @{symbol}({operands}) : ({types}) -> ({", ".join(map(str, results))})
{exports}
  util.return {", ".join(f"%o{index}" for index in range(len(results)))} : {returned}
}}"""
