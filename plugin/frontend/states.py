"""Which inputs and outputs of a model are states: those that the user declares, and those that exporters name so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto

from sartor.codegen.ir.states import CachePair, StatePair
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.onnx_model.graphs.prepared import TensorInfo
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.states.state_names import is_cache, is_state_pair
from sartor.policies import StatePolicy
from sartor.runtime.driver.bound_input import Bindings, Number, typed, values_text
from sartor.runtime.driver.counts import counted_axis
from sartor.runtime.driver.state import State

_MOST_SHOWN = 8
_SCATTER = "iree_linalg_ext.scatter"
_BY_CALLER = "pass it through the caller, with --no-state or without this --state"


@dataclass(frozen=True)
class DeclaredStates:
    """The states that a user declares, before the model is prepared.

    Attributes:
        pairs: names of outputs and of inputs.
        starts: what inputs begin with, as ``--bind`` or the model gives it.
        bindings: the user's bindings of other inputs.
    """

    pairs: tuple[tuple[str, str], ...] = ()
    starts: Mapping[str, tuple[Number, ...]] = field(default_factory=dict)
    bindings: Bindings = field(default_factory=dict)

    @staticmethod
    def of(model: ModelProto, policy: StatePolicy, bindings: Bindings) -> DeclaredStates:
        """Find the names of a loaded model, and take default values of states out of it, which would be constants.

        Raises:
            UsageError: if a name is unknown or in two states.
        """
        inputs, outputs = ([value.name for value in values] for values in (model.graph.input, model.graph.output))
        pairs = [pair for pattern in policy.declared for pair in pattern.pairs(outputs, inputs)]
        for kind, names in (("output", [pair[0] for pair in pairs]), ("input", [pair[1] for pair in pairs])):
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise UsageError(f"--state names the {kind} '{twice}' twice; a state is one output and one input")
        states = {name for _, name in pairs}
        starts = {**_defaults(model, states), **{name: binding for name, binding in bindings.items() if name in states}}
        others = {name: values for name, values in bindings.items() if name not in states}
        return DeclaredStates(tuple(pairs), starts, others)


def _defaults(model: ModelProto, states: set[str]) -> dict[str, tuple[Number, ...]]:
    """The default values of inputs, which the model then has no more."""
    tensors = [tensor for tensor in model.graph.initializer if tensor.name in states]
    for tensor in tensors:
        model.graph.initializer.remove(tensor)
    return {tensor.name: tuple(to_array(tensor).ravel().tolist()) for tensor in tensors}


def states_of(
    declared: DeclaredStates, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], policy: StatePolicy
) -> tuple[State, ...]:
    """The states of a prepared model, in the order of its inputs.

    Raises:
        UsageError: if a declared one has another shape or type as an input than as an output, or no elements, or its
            start does not fit.
    """
    known = {info.name: info for info in outputs}
    by_input = {info.name: info for info in inputs}
    pairs = {input: output for output, input in declared.pairs}
    for name, output in pairs.items():
        _check(by_input[name], known[output], declared.starts.get(name))
    if policy.finds:
        pairs |= _found(inputs, outputs, pairs)
    return tuple(
        State(info.name, pairs[info.name], _start(declared.starts.get(info.name, ())))
        for info in inputs
        if info.name in pairs
    )


def state_pairs(imported: ImportedModel) -> tuple[StatePair, ...]:
    """The positions of a model's states among its inputs and outputs, and what they begin with."""
    inputs, outputs = ([value.name for value in values] for values in (imported.graph.inputs, imported.graph.outputs))
    return tuple(
        StatePair(inputs.index(state.input), outputs.index(state.output), _array(state, imported))
        for state in imported.states
    )


def cache_pairs(imported: ImportedModel) -> tuple[CachePair, ...]:
    """The positions of a model's caches among its inputs and outputs."""
    inputs, outputs = ([value.name for value in values] for values in (imported.graph.inputs, imported.graph.outputs))
    return tuple(CachePair(inputs.index(cache.input), outputs.index(cache.output)) for cache in imported.caches)


def writes_rows(imported: ImportedModel) -> bool:
    """Whether a layer writes some rows of a state, so that code of layers leaves it where it is."""
    made = {state.output for state in imported.states}
    sources = {value.source.source for value in imported.graph.outputs if value.name in made and value.source}
    return any(layer.name in sources and _SCATTER in layer.task.body for layer in imported.graph.layers)


def _array(state: State, imported: ImportedModel) -> np.ndarray | None:
    (value,) = (input_ for input_ in imported.graph.inputs if input_.name == state.input)
    array = typed(state.start, np.dtype(value.dtype)) if state.start else None
    return None if array is None else array.reshape(value.type.shape)


def _found(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], declared: Mapping[str, str]) -> dict[str, str]:
    """Further states, by the names that exporters give: each input with the only output that may be its successor.

    A single number is no state, caches are kept all or none, and an input is left for what calls are about.
    """
    taken, counted = set(declared.values()), {axis.output for axis in map(counted_axis, _names(outputs)) if axis}
    pairs: dict[str, str] = {}
    for info in inputs:
        fitting = [
            other.name
            for other in outputs
            if is_state_pair(info.name, other.name)
            and (other.shape, other.dtype) == (info.shape, info.dtype)
            and other.name not in counted
        ]
        is_free = info.name not in declared and len(fitting) == 1 and fitting[0] not in taken
        if is_free and np.prod(info.shape, dtype=int) > 1:
            pairs[info.name] = fitting[0]
    once = list(pairs.values())
    kept = {name: output for name, output in pairs.items() if once.count(output) == 1}
    names = _names(inputs)
    if any(is_cache(name) and name not in kept and name not in declared for name in names):
        kept = {name: output for name, output in kept.items() if not is_cache(name)}
    return kept if declared or len(kept) < len(names) else {}


def _names(values: Sequence[TensorInfo]) -> list[str]:
    return [value.name for value in values]


def _check(input: TensorInfo, output: TensorInfo, start: tuple[Number, ...] | None) -> None:
    both = f"output '{output.name}' is {_shown(output)} and input '{input.name}' is {_shown(input)}"
    if (input.shape, input.dtype) != (output.shape, output.dtype):
        axes = _differing(input.shape, output.shape)
        if input.dtype == output.dtype and len(axes) == 1:
            raise UsageError(
                f"{both}: they differ in size along axis {axes[0]}, and a state that grows cannot be kept between "
                f"calls yet; {_BY_CALLER}"
            )
        raise UsageError(f"{both}: a state has one shape and type; {_BY_CALLER}")
    if not all(input.shape):
        raise UsageError(f"{both}: a state without elements keeps nothing; {_BY_CALLER}")
    if start is not None and (len(start) != np.prod(input.shape, dtype=int) or typed(start, input.dtype) is None):
        shown = values_text(start[:_MOST_SHOWN]) + (", …" if len(start) > _MOST_SHOWN else "")
        raise UsageError(
            f"the start {shown} of state '{input.name}' is no value of {_shown(input)}; give a finite number for each "
            "element with --bind"
        )


def _differing(one: Sequence[int], other: Sequence[int]) -> list[int]:
    if len(one) != len(other):
        return []
    return [axis for axis, (size, another) in enumerate(zip(one, other, strict=True)) if size != another]


def _shown(info: TensorInfo) -> str:
    return f"{info.dtype.name}[{', '.join(map(str, info.shape))}]"


def _start(values: tuple[Number, ...]) -> tuple[Number, ...]:
    return values if any(values) else ()
