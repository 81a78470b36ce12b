"""Find the layers that may write their result over an activation that is not read again.

A layer that adds an image to its sums and writes the result elsewhere moves three cache lines for each line of result:
it reads the image, fetches the result's line before writing, and evicts another. Written over the image it moves one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sartor.codegen.ir.layer import Layer, NetworkValue, ValueRef
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Implementation, Overwriting

_SUFFIX = "_over"


def overwriting_symbol(symbol: str) -> str:
    """The symbol of the same code with its result over an activation."""
    return symbol + _SUFFIX


def plain_name(dispatch: str) -> str:
    """The name of a dispatch without the mark of ``overwriting_symbol``."""
    symbol, separator, rest = dispatch.partition("_")
    return symbol + separator + rest.removeprefix(_SUFFIX.removeprefix("_") + "_")


def overwriting_layers(
    layers: Sequence[Layer], implementations: Mapping[str, Implementation], outputs: Sequence[NetworkValue]
) -> dict[str, Overwriting]:
    """The layers that write their result over an activation, with the code that does.

    Only the last reader of an activation may overwrite it: the layer must depend on all other readers, so that they
    have ended whatever runs concurrently. Otherwise IREE would copy the activation first. None of them may be code
    that is no kernel: what it returns may be a view of the activation, and the layer may read that too.

    Args:
        layers: in execution order.
        implementations: the chosen one of each layer, by name.
        outputs: network outputs.
    """
    readers: defaultdict[ValueRef, list[str]] = defaultdict(list)
    for layer in layers:
        for ref in layer.inputs:
            readers[ref].append(layer.name)
    order = {layer.name: index for index, layer in enumerate(layers)}
    kept = {output.source for output in outputs}
    overwriting: dict[str, Overwriting] = {}
    for layer in layers:
        code = implementations[layer.name]
        if code.overwriting is None:
            continue
        operand = code.overwriting.operand
        ref = layer.inputs[operand]
        is_free = ref not in kept and _is_written(ref, code.inputs[operand], implementations)
        others = [reader for reader in readers[ref] if reader != layer.name]
        is_seen = any(implementations[other].kernel is None for other in others)
        if is_free and not is_seen and _is_last(layer, readers[ref], layers, order):
            overwriting[layer.name] = code.overwriting
    return overwriting


def _is_last(layer: Layer, readers: list[str], layers: Sequence[Layer], order: Mapping[str, int]) -> bool:
    """Whether a layer reads a value once, and depends on all other readers.

    What comes before the first of these in the order is not looked at: a set of all that each layer depends on would
    take memory by the square of the number of layers.
    """
    others = {reader for reader in readers if reader != layer.name}
    if readers.count(layer.name) > 1 or any(order[other] > order[layer.name] for other in others):
        return False
    first = min((order[other] for other in others), default=len(order))
    seen: set[str] = set()
    pending = [layer]
    while pending:
        for ref in pending.pop().inputs:
            if ref.source is not None and ref.source not in seen and order[ref.source] >= first:
                seen.add(ref.source)
                pending.append(layers[order[ref.source]])
    return others <= seen


def _is_written(ref: ValueRef, schema: Schema, implementations: Mapping[str, Implementation]) -> bool:
    """Whether a kernel writes a value in ``schema``; code that is no kernel may return an argument, reshaped."""
    if ref.source is None:
        return False
    producer = implementations[ref.source]
    return producer.kernel is not None and producer.outputs[ref.index] == schema
