"""DPRS for a net whose exact tables do not fit into memory: some variables are fixed to the values of a good plan.

The rest is solved exactly, so the result is no worse than that plan. For a lower bound, every table chooses its own
value for the fixed variables (the relaxation of mini-buckets; Dechter and Rish, "Mini-buckets: a general scheme for
bounded inference", 2003).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sartor.codegen.ir.schema import Schema
from sartor.errors import InfeasibleError
from sartor.tuning.selection.elimination.elimination import Factor
from sartor.tuning.selection.heuristics.greedy import everything, greedy_picks, supported
from sartor.tuning.selection.problem.indexed import IndexedProblem, Mask


def incumbent(model: IndexedProblem) -> list[int]:
    """The best of several greedy plans: one over all choices, and for each schema one that prefers to write it.

    Raises:
        InfeasibleError: if no plan exists.
    """
    return min(_greedy_plans(model), key=model.value)


def fix(factors: Sequence[Factor], values: Mapping[int, int]) -> list[Factor]:
    """The factors with some variables fixed to given values."""
    return [factor if values.keys().isdisjoint(factor.scope) else _fixed(factor, values) for factor in factors]


def relax(factors: Sequence[Factor], variables: Sequence[int]) -> list[Factor]:
    """The factors, each minimised separately over ``variables``: their sum is nowhere above the original."""
    return [_relaxed(factor, frozenset(variables)) for factor in factors]


def _greedy_plans(model: IndexedProblem) -> Iterator[list[int]]:
    yield greedy_picks(model, supported(model, everything(model)))
    for schema in dict.fromkeys(schema for layer in model.layers for schema in layer.outputs):
        try:
            yield greedy_picks(model, supported(model, _writing(model, schema)))
        except InfeasibleError:
            continue


def _writing(model: IndexedProblem, schema: Schema) -> list[Mask]:
    """For each layer a mask of the options that write ``schema``, or of all options if none does."""
    masks = everything(model)
    for mask, layer in zip(masks, model.layers, strict=True):
        if schema in layer.outputs:
            mask &= layer.output_of == layer.outputs.index(schema)
    return masks


def _fixed(factor: Factor, values: Mapping[int, int]) -> Factor:
    index = tuple(values.get(axis, slice(None)) for axis in factor.scope)
    return replace(factor, scope=_without(factor.scope, values), table=factor.table[index])


def _relaxed(factor: Factor, variables: frozenset[int]) -> Factor:
    axes = tuple(position for position, axis in enumerate(factor.scope) if axis in variables)
    return replace(factor, scope=_without(factor.scope, variables), table=factor.table.min(axis=axes))


def _without(scope: Sequence[int], gone: Mapping[int, int] | frozenset[int]) -> tuple[int, ...]:
    return tuple(axis for axis in scope if axis not in gone)
