"""Windows whose padding depends on what a size leaves when it is divided by their stride.

``auto_pad`` with SAME_UPPER or SAME_LOWER pads an even size by one less than an odd one where the stride is two. A
model is imported with a few sizes, whose padding would be that of all others. So are windows that are rounded up,
unless they were padded for any size (``rounded_windows.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from onnx import ModelProto, NodeProto

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import SartorError, UnsupportedModelError
from sartor.onnx_model.graphs.graph import attributes
from sartor.onnx_model.graphs.walk import describe_node, nodes
from sartor.onnx_model.reading.load import read_model
from sartor.open_sizes.rounded_windows import rounds_up
from sartor.tuning.workers.protocol import WorkerError

_WINDOWED = frozenset({"Conv", "ConvInteger", "QLinearConv", "AveragePool", "LpPool", "MaxPool"})
_SAME = frozenset({"SAME_UPPER", "SAME_LOWER"})


def needed_multiples(path: Path, inputs: frozenset[str]) -> dict[str, int] | WorkerError:
    """Worker side: what the sizes of these inputs have to be multiples of, by the node that needs it."""
    try:
        model, _ = read_model(path)
    except SartorError as error:
        return WorkerError(error)
    return dict(_needed(model, inputs))


def _needed(model: ModelProto, inputs: frozenset[str]) -> Iterator[tuple[str, int]]:
    divided = dict.fromkeys(inputs, 1)
    for node in nodes(model):
        taken = math.lcm(*(divided[name] for name in node.input if name in divided))
        if not any(name in divided for name in node.input):
            continue
        stride = _stride(node)
        if stride > 1 and (attributes(node).get("auto_pad") in _SAME or rounds_up(node)):
            yield describe_node(node), taken * stride
        divided |= dict.fromkeys(node.output, taken * stride)


def _stride(node: NodeProto) -> int:
    return math.lcm(*attributes(node).get("strides", [])) if node.op_type in _WINDOWED else 1


def check_multiples(needed: Mapping[str, int], sides: Mapping[str, tuple[Symbol, ...]]) -> None:
    """Refuse a model whose padding is not the same for all sizes.

    Args:
        needed: as ``needed_multiples``.
        sides: symbols of the inputs' dimensions after the first, by the name of the input.

    Raises:
        UnsupportedModelError: if a range has sizes that are no multiples of what a node needs.
    """
    together = math.lcm(*needed.values())
    for node, multiple in needed.items():
        for name, symbols in sides.items():
            for symbol in (side for side in symbols if side.multiple % multiple):
                raise UnsupportedModelError(
                    f"{node} pads by what a size leaves when it is divided by a stride (auto_pad, ceil_mode), and "
                    f"'{symbol.name}' of '{name}' may leave anything: give it multiples of {together}, as "
                    f"{_range(symbol, together)}, or the sizes that occur, as {symbol.least}|{symbol.most}"
                )


def _range(symbol: Symbol, multiple: int) -> str:
    step = math.lcm(symbol.multiple, multiple)
    least = -(-symbol.least // step) * step
    return f"{least}..{max(least, symbol.most // step * step)}:{step}"
