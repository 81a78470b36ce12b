"""Makes tensors of inputs and outputs that are sequences or optionals, once the inputs' elements are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, ValueInfoProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.graph import Array, GraphEditor
from sartor.onnx_model.rewrites.control_flow.resolve_sequences import Elements, Maybe, known_value

Value = Array | list[Array] | None


@dataclass(frozen=True)
class PackedOutput:
    """How an output of a model is made of tensors.

    Attributes:
        names: the tensors; none for an optional without content.
        is_list: whether they are elements of a sequence.
    """

    names: tuple[str, ...]
    is_list: bool = False

    def packed(self, tensors: Mapping[str, Array]) -> Value:
        """The output, of tensors by name."""
        arrays = [tensors[name] for name in self.names]
        return arrays if self.is_list else next(iter(arrays), None)


def has_tensors_only(model: ModelProto) -> bool:
    """Whether no input or output is a sequence or optional."""
    values = (*model.graph.input, *model.graph.output)
    return not any(value.type.WhichOneof("value") in ("sequence_type", "optional_type") for value in values)


def tensor_inputs(model: ModelProto, given: Mapping[str, Any]) -> dict[str, Array]:
    """Make a model's inputs tensors, in place: ``<input>/<index>`` for an element of a sequence.

    Args:
        model: the model.
        given: for each input an array, for a sequence a list of arrays, for an optional None or its content.

    Returns:
        Arrays by name of the tensors.

    Raises:
        UsageError: if a value is not of the input's kind.
    """
    inputs = _Inputs()
    for value in model.graph.input:
        if value.name in given:
            inputs.add(value.name, value.type, given[value.name])
        else:
            inputs.values.append(value)
    copies = [ValueInfoProto.FromString(value.SerializeToString()) for value in inputs.values]
    nodes = [*inputs.nodes, *(NodeProto.FromString(node.SerializeToString()) for node in model.graph.node)]
    del model.graph.input[:], model.graph.node[:]
    model.graph.input.extend(copies)
    model.graph.node.extend(nodes)
    return inputs.feeds


@dataclass
class _Inputs:
    values: list[ValueInfoProto] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)

    def add(self, name: str, kind: TypeProto, given: Any) -> None:
        case = kind.WhichOneof("value")
        if case == "optional_type":
            self._add_optional(name, kind.optional_type.elem_type, given)
        elif case == "sequence_type":
            self._add_sequence(name, kind.sequence_type.elem_type, given)
        elif given is None or isinstance(given, (list, tuple, dict)):
            raise UsageError(f"input '{name}' is a tensor, but a value of another kind is given")
        else:
            self.feeds[name] = np.asarray(given)
            self.values.append(helper.make_value_info(name, kind))

    def _add_inner(self, name: str, kind: TypeProto, given: Any) -> None:
        """Add an element or a content. The shape is the tensor's own, as the model may declare another for all."""
        if kind.HasField("tensor_type") and isinstance(given, np.ndarray):
            kind = helper.make_tensor_type_proto(kind.tensor_type.elem_type, given.shape)
        self.add(name, kind, given)

    def _add_optional(self, name: str, kind: TypeProto, given: Any) -> None:
        content = [] if given is None else [f"{name}/content"]
        if content:
            self._add_inner(content[0], kind, given)
        self.nodes.append(helper.make_node("Optional", content, [name], name=name, type=None if content else kind))

    def _add_sequence(self, name: str, kind: TypeProto, given: Any) -> None:
        if not isinstance(given, (list, tuple)):
            raise UsageError(f"input '{name}' is a sequence, so a list of arrays has to be given for it")
        names = [f"{name}/{index}" for index in range(len(given))]
        for inner, element in zip(names, given, strict=True):
            self._add_inner(inner, kind, element)
        if names:
            self.nodes.append(helper.make_node("SequenceConstruct", names, [name], name=name))
        else:
            dtype = kind.tensor_type.elem_type
            self.nodes.append(helper.make_node("SequenceEmpty", [], [name], name=name, dtype=dtype))


def tensor_outputs(model: ModelProto) -> tuple[PackedOutput, ...]:
    """Make a model's outputs tensors, in place, after ``resolve_sequences``: ``<output>/<index>`` for an element.

    Returns:
        How each output is made of these tensors.

    Raises:
        UnsupportedModelError: if the elements of an output are known only when the model runs.
    """
    editor = GraphEditor(model.graph)
    packed, values, nodes = [], [], editor.nodes
    for value in model.graph.output:
        output = _found(value, editor)
        if output is None:
            packed.append(PackedOutput((value.name,)))
            values.append(ValueInfoProto.FromString(value.SerializeToString()))
            continue
        names = [editor.fresh(f"{value.name}/{index}") for index in range(len(output.names))]
        packed.append(PackedOutput(tuple(names), output.is_list))
        for source, name in zip(output.names, names, strict=True):
            values.append(helper.make_value_info(name, editor.type(source) or TypeProto()))
            nodes.append(helper.make_node("Identity", [source], [name], name=editor.fresh_node(name)))
    del model.graph.output[:]
    model.graph.output.extend(values)
    editor.set_nodes(nodes)
    return tuple(packed)


def _found(value: ValueInfoProto, editor: GraphEditor) -> PackedOutput | None:
    """The tensors of an output, by their own names; None if it is a tensor."""
    if value.type.WhichOneof("value") not in ("sequence_type", "optional_type"):
        return None
    known = known_value(value.name, editor)
    if isinstance(known, Maybe):
        if not known.content:
            return PackedOutput(())
        if _is_tensor(known.content, editor):
            return PackedOutput((known.content,))
        known = known_value(known.content, editor)
    if isinstance(known, Elements):
        return PackedOutput(known.names, is_list=True)
    raise UnsupportedModelError(
        f"output '{value.name}' is a sequence or optional whose elements are known only when the model runs; "
        "return its elements as tensors"
    )


def _is_tensor(name: str, editor: GraphEditor) -> bool:
    type_of_value = editor.type(name)
    return type_of_value is not None and type_of_value.HasField("tensor_type")
