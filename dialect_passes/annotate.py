"""Ask every routine about every task, and write the answers into the module of layers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Layer, Task, TensorType, ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters, Rejected, Routine, Variant, variant_of, variants_of
from sartor.dialect_passes.form_layers import LAYER_SYMBOL


@dataclass(frozen=True)
class Rejection:
    """Why a routine does not apply to a task."""

    task: str
    routine: str
    reason: str


@dataclass(frozen=True)
class Candidates:
    """Answers of the routines.

    Attributes:
        variants: by task key, candidate 0 first.
        rejections: in the order they were given.
    """

    variants: Mapping[str, tuple[Variant, ...]]
    rejections: tuple[Rejection, ...]

    def __add__(self, other: Candidates) -> Candidates:
        """The answers for the same tasks on two devices."""
        joined = {key: (*found, *other.variants[key]) for key, found in self.variants.items()}
        return Candidates(joined, (*self.rejections, *other.rejections))


Skip = Callable[[Task, Sequence[Variant], Routine], bool]
"""Whether a routine need not be asked about a task, given the variants that were found for it."""


def never(_: Task, __: Sequence[Variant], ___: Routine) -> bool:
    """Skips no routine."""
    return False


Further = Callable[[Task, Sequence[Variant], Target], Sequence[Parameters]]
"""Parameters that a routine did not name, given its variants of a task."""


def nothing_further(_: Task, __: Sequence[Variant], ___: Target) -> Sequence[Parameters]:
    """No parameters."""
    return ()


Narrow = Callable[[Task, Routine, Sequence[Parameters], Target], Sequence[Parameters]]
"""Those of a routine's parameters for a task whose code is worth writing, if it is not needed to judge them."""


def all_of(_: Task, __: Routine, parameters: Sequence[Parameters], ___: Target) -> Sequence[Parameters]:
    """All parameters."""
    return parameters


def annotate(
    graph: LayerGraph,
    routines: Sequence[Routine],
    target: Target,
    fused: Sequence[Routine] = (),
    skip: Skip = never,
    further: Further = nothing_further,
    narrow: Narrow = all_of,
) -> Candidates:
    """Variants of every task of the graph.

    Args:
        graph: the network.
        routines: asked in this order.
        target: what code is for.
        fused: asked about fused tasks instead.
        skip: decides which routines are skipped.
        further: adds variants with other parameters to those that a routine names.
        narrow: leaves out parameters before code is written for them.
    """
    variants: dict[str, tuple[Variant, ...]] = {}
    rejections: list[Rejection] = []
    for key, task in graph.tasks().items():
        found: list[Variant] = []
        for routine in fused if task.stages else routines:
            if skip(task, found, routine):
                continue
            if routine is not routines[0] and _is_empty(task):
                rejections.append(Rejection(key, routine.name, "a tensor of it has no elements"))
                continue
            if routine is not routines[0] and _has_doubles(task):
                rejections.append(Rejection(key, routine.name, "a tensor of it is of float64"))
                continue
            own: list[Variant] = []
            for answer in variants_of(routine, task, target, narrow):
                if isinstance(answer, Rejected):
                    rejections.append(Rejection(key, routine.name, answer.reason))
                else:
                    own.append(answer)
            others = [variant_of(routine, task, each, target) for each in further(task, own, target)]
            found += [*own, *(each for each in others if isinstance(each, Variant))]
        variants[key] = _distinct(found)
    return Candidates(variants, tuple(rejections))


def _is_empty(task: Task) -> bool:
    """Whether any tensor of a task has no elements, so that tiles and vectors would be empty."""
    return any(not each.elements for each in (*task.inputs, *task.weights, *task.results))


def _has_doubles(task: Task) -> bool:
    """Whether a task reads or computes float64, for which no kernel is written."""
    return any(each.dtype == "f64" for each in (*task.inputs, *task.weights, *task.results))


def _distinct(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Drop variants that emit the same code as an earlier one."""
    first: dict[tuple[object, ...], Variant] = {}
    for each in variants:
        code = each.implementation
        first.setdefault((code.body, code.inputs, code.output, code.packings, code.kernel), each)
    return tuple(first.values())


def annotated_module(graph: LayerGraph, candidates: Candidates) -> str:
    """The outlined module: one function per layer with its task and candidates, and the function that calls them."""
    functions = [_function(layer, candidates.variants[layer.task.key]) for layer in graph.layers]
    return "\n".join(["module {", *functions, _main(graph), "}"])


def _function(layer: Layer, variants: Sequence[Variant]) -> str:
    nodes = ", ".join(_quoted(each) for each in layer.nodes)
    listed = ", ".join(f"{_quoted(each.descriptor)}" for each in variants)
    attributes = (
        f'sartor.kind = "{layer.task.kind}", sartor.task = "{layer.task.key}", '
        f"sartor.nodes = [{nodes}], sartor.candidates = [{listed}]"
    )
    head, brace, body = layer.task.body.partition(" {\n")
    head = head.replace(f"util.func public @{LAYER_SYMBOL}(", f"util.func private @{_quoted(layer.name)}(", 1)
    return f"{head} attributes {{{attributes}}}{brace}{body}"


def _main(graph: LayerGraph) -> str:
    names: dict[ValueRef, str] = {ValueRef(None, index): f"%in{index}" for index in range(len(graph.inputs))}
    arguments = [f"%in{index}: {each.type}" for index, each in enumerate(graph.inputs)]
    weights = _weights(graph)
    arguments += [f"%w{index}: {tensor}" for index, tensor in enumerate(weights.values())]
    order = {name: f"%w{index}" for index, name in enumerate(weights)}
    lines = [_call(index, layer, names, order) for index, layer in enumerate(graph.layers)]
    results = [names[each.source] if each.source else order[each.constant or ""] for each in graph.outputs]
    types = ", ".join(str(each.type) for each in graph.outputs)
    returned = f"  util.return {', '.join(results)} : {types}"
    head = f"util.func public @main_graph({', '.join(arguments)}) -> ({types}) {{"
    return "\n".join([head, *lines, returned, "}"])


def _weights(graph: LayerGraph) -> dict[str, TensorType]:
    read = {
        name: tensor for layer in graph.layers for name, tensor in zip(layer.weights, layer.task.weights, strict=True)
    }
    return read | {each.constant: each.type for each in graph.outputs if each.constant is not None}


def _call(index: int, layer: Layer, names: dict[ValueRef, str], weights: Mapping[str, str]) -> str:
    task: Task = layer.task
    operands = [names[ref] for ref in layer.inputs] + [weights[name] for name in layer.weights]
    types = ", ".join(str(each) for each in (*task.inputs, *task.weights))
    results = ", ".join(map(str, task.results))
    many = f":{len(task.results)}" if len(task.results) > 1 else ""
    for position in range(len(task.results)):
        names[ValueRef(layer.name, position)] = f"%v{index}#{position}" if many else f"%v{index}"
    return f"  %v{index}{many} = util.call @{_quoted(layer.name)}({', '.join(operands)}) : ({types}) -> ({results})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
