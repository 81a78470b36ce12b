"""Fused kernels in the selection problem.

A fused kernel is chosen for all its members or for none. Values between its members have a schema of their own, which
no other choice has and no adapt converts, so that solvers keep the members together without any notion of fusion. The
first member has the cost of the kernel, the others cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import Fusion
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.variants.routine import Variant
from sartor.dialect_passes.fuse_layers import apply_fusions
from sartor.dialect_passes.split_layers import apply_childnets
from sartor.tuning.cost_tables.childnet_choices import names_childnet
from sartor.tuning.selection.problem.cost import Cost
from sartor.tuning.selection.problem.problem import Choice
from sartor.tuning.selection.problem.selection import Assignment, Selection

_INSIDE = "inside "


def is_inside(schema: Schema) -> bool:
    """Whether a schema is that of a value within a fused kernel."""
    return schema.layout.startswith(_INSIDE)


def member_choices(fusion: Fusion, whole: Choice) -> dict[str, Choice]:
    """The choice that stands for a fused kernel at each of its members, by the member's name."""
    name = _named_for(fusion.layer.name) + whole.name
    inner = Schema(whole.output.device, whole.output.dtype, _INSIDE + name)
    stages = fusion.layer.task.stages
    choices = {}
    for index, (member, stage) in enumerate(zip(fusion.members, stages, strict=True)):
        inputs = tuple(inner if input_ is None else whole.inputs[input_] for input_ in stage.inputs)
        output = whole.output if index == len(stages) - 1 else inner
        own = replace(whole, name=name, inputs=inputs, output=output)
        choices[member] = own if index == 0 else Choice(name, inputs, output, Cost())
    return choices


def _named_for(label: str) -> str:
    """Prefix of the names of choices that represent a fused kernel; no descriptor has a space after its device."""
    return f"{label}: "


def chosen_layers(
    graph: LayerGraph, variants: Mapping[str, tuple[Variant, ...]], selection: Selection | Assignment
) -> tuple[LayerGraph, dict[str, Variant]]:
    """The graph with the fused layers and the children that were selected, and the variant of each of its layers."""
    names = {name: choice.name for name, choice in selection.choices.items()}
    fused = {
        fusion.layer.name: names[fusion.members[0]].removeprefix(_named_for(fusion.layer.name))
        for fusion in graph.fusions
        if names[fusion.members[0]].startswith(_named_for(fusion.layer.name))
    }
    children = {
        childnet.layer: chosen_layers(childnet.graph, variants, selection.childnets[childnet.layer])
        for childnet in graph.childnets
        if names_childnet(names[childnet.layer], childnet)
    }
    applied = apply_fusions(graph, fused)
    chosen = {
        layer.name: _named(variants[layer.task.key], fused.get(layer.name) or names[layer.name])
        for layer in applied.layers
        if layer.name not in children
    }
    for _, inner in children.values():
        chosen |= inner
    expanded = apply_childnets(applied, {name: inner for name, (inner, _) in children.items()})
    return expanded, {layer.name: chosen[layer.name] for layer in expanded.layers}


def _named(variants: tuple[Variant, ...], descriptor: str) -> Variant:
    return next(variant for variant in variants if variant.descriptor == descriptor)
