"""Write the candidates of each layer into the module of layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, Task, TensorType, ValueRef
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.ir.variants.routine import Variant
from sartor.dialect_passes.form_layers import LAYER_SYMBOL


def annotated_module(graph: LayerGraph, candidates: Candidates) -> str:
    """The outlined module: one function per layer with its task and candidates, and the function that calls them."""
    functions = [_function(layer, candidates.variants[layer.task.key]) for layer in graph.layers]
    return "\n".join(["module {", *functions, _main(graph), "}"])


def _function(layer: Layer, variants: Sequence[Variant]) -> str:
    nodes = ", ".join(_quoted(node) for node in layer.nodes)
    listed = ", ".join(f"{_quoted(variant.descriptor)}" for variant in variants)
    attributes = (
        f'sartor.kind = "{layer.task.kind}", sartor.task = "{layer.task.key}", '
        f"sartor.nodes = [{nodes}], sartor.candidates = [{listed}]"
    )
    head, brace, body = layer.task.body.partition(" {\n")
    head = head.replace(f"util.func public @{LAYER_SYMBOL}(", f"util.func private @{_quoted(layer.name)}(", 1)
    return f"{head} attributes {{{attributes}}}{brace}{body}"


def _main(graph: LayerGraph) -> str:
    names: dict[ValueRef, str] = {ValueRef(None, index): f"%in{index}" for index in range(len(graph.inputs))}
    arguments = [f"%in{index}: {value.type}" for index, value in enumerate(graph.inputs)]
    weights = _weights(graph)
    arguments += [f"%w{index}: {tensor}" for index, tensor in enumerate(weights.values())]
    order = {name: f"%w{index}" for index, name in enumerate(weights)}
    lines = [_call(index, layer, names, order) for index, layer in enumerate(graph.layers)]
    results = [names[output.source] if output.source else order[output.constant or ""] for output in graph.outputs]
    types = ", ".join(str(output.type) for output in graph.outputs)
    returned = f"  util.return {', '.join(results)} : {types}"
    head = f"util.func public @main_graph({', '.join(arguments)}) -> ({types}) {{"
    return "\n".join([head, *lines, returned, "}"])


def _weights(graph: LayerGraph) -> dict[str, TensorType]:
    read = {
        name: tensor for layer in graph.layers for name, tensor in zip(layer.weights, layer.task.weights, strict=True)
    }
    return read | {output.constant: output.type for output in graph.outputs if output.constant is not None}


def _call(index: int, layer: Layer, names: dict[ValueRef, str], weights: Mapping[str, str]) -> str:
    task: Task = layer.task
    operands = [names[ref] for ref in layer.inputs] + [weights[name] for name in layer.weights]
    types = ", ".join(str(tensor) for tensor in (*task.inputs, *task.weights))
    results = ", ".join(map(str, task.results))
    many = f":{len(task.results)}" if len(task.results) > 1 else ""
    for position in range(len(task.results)):
        names[ValueRef(layer.name, position)] = f"%v{index}#{position}" if many else f"%v{index}"
    return f"  %v{index}{many} = util.call @{_quoted(layer.name)}({', '.join(operands)}) : ({types}) -> ({results})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
