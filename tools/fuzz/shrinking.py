"""Shrinking of failures: remove outputs, nodes and forced variants as long as the failure stays the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx
from onnx import ModelProto, TensorProto, ValueInfoProto

from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from tools.fuzz.failures import Failure

Fails = Callable[[Failure], Failure | None]
"""Runs a failure's model and plan again; returns the new failure, or None if there is none or a different one."""


def shrunk(failure: Failure, fails: Fails, attempts: int = 60) -> Failure:
    """Return the smallest failure found within a number of attempts."""
    left = attempts
    improved = True
    while improved and left:
        improved = False
        for smaller in _smaller(failure):
            left -= 1
            found = fails(smaller)
            if found is not None:
                failure, improved = found, True
                break
            if not left:
                break
    return failure


def _smaller(failure: Failure) -> Iterator[Failure]:
    """Yield smaller candidates, the largest reductions first."""
    model = ModelProto.FromString(failure.model)
    for each in (*_fewer_outputs(model), *_earlier_outputs(model), *_later_inputs(model)):
        yield replace(failure, model=each.SerializeToString())
    forced = failure.forced or {}
    for layer in forced:
        yield replace(failure, forced={name: each for name, each in forced.items() if name != layer})


def _copy(model: ModelProto) -> ModelProto:
    copy = ModelProto()
    copy.CopyFrom(model)
    return copy


def _pruned(model: ModelProto) -> ModelProto:
    """Remove nodes, weights and inputs that no output depends on, and return the model."""
    drop_unused(model)
    read = {name for node in model.graph.node for name in node.input}
    kept = [each for each in model.graph.input if each.name in read]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def _with_outputs(model: ModelProto, outputs: list[ValueInfoProto]) -> ModelProto:
    copy = _copy(model)
    del copy.graph.output[:]
    copy.graph.output.extend(outputs)
    return _pruned(copy)


def _fewer_outputs(model: ModelProto) -> Iterator[ModelProto]:
    """Yield the model with each of its outputs alone."""
    if len(model.graph.output) > 1:
        for each in model.graph.output:
            yield _with_outputs(model, [each])


def _types(model: ModelProto) -> dict[str, ValueInfoProto]:
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    return {each.name: each for each in (*inferred.value_info, *inferred.output)}


def _earlier_outputs(model: ModelProto) -> Iterator[ModelProto]:
    """Yield the model with an operand of its last node as the output."""
    if len(model.graph.output) != 1:
        return
    types, last = _types(model), model.graph.output[0]
    producer = next((node for node in model.graph.node if last.name in node.output), None)
    for name in producer.input if producer is not None else ():
        # Integers rounded from floats may differ by one although the floats are right.
        if name in types and _is_real(types[name]) >= _is_real(last):
            yield _with_outputs(model, [types[name]])


def _is_real(value: ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16)


def _later_inputs(model: ModelProto) -> Iterator[ModelProto]:
    """Yield the model with a node's results as inputs, last nodes first; nodes with model outputs are skipped."""
    types, outputs = _types(model), {each.name for each in model.graph.output}
    for index, node in reversed(list(enumerate(model.graph.node))):
        if outputs & set(node.output) or not all(name in types for name in node.output if name):
            continue
        copy = _copy(model)
        del copy.graph.node[index]
        copy.graph.input.extend(types[name] for name in node.output if name)
        yield _pruned(copy)
