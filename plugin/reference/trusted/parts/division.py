"""Divides a graph into what ONNX Runtime runs, and single nodes that something else computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.graphs.walk import describe_node, subgraphs
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.element_types import body_input_types, infer_types
from sartor.reference.trusted.oracles.table import NARROW_FLOATS, definition_of, deviates, is_evaluated
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference

# Kernels read the values of such operands when they are made: axes, shapes, scales.
_VALUES_READ = 1024
_NOT_IMPLEMENTED = "Could not find an implementation"


class Trust(Enum):
    """Who computes a node."""

    RUNTIME = auto()
    DEFINITION = auto()
    WIDENED = auto()
    BODIES = auto()
    EVALUATOR = auto()


@dataclass
class Watch:
    """What nodes that something else than ONNX Runtime computes read and compute, in the order they run.

    Attributes:
        calls: None while nobody wants to know, as arrays take memory.
    """

    calls: list[tuple[Call, list[Array]]] | None = None


@dataclass(frozen=True)
class Surroundings:
    """What nodes of a graph and of graphs inside it have in common.

    Attributes:
        versions: of operator sets, by domain.
        ir_version: of the model.
        constants: weights of the graph and of graphs around it.
        folder: of the files that hold weights which are not inside.
        refused: names of nodes that ONNX Runtime loads, and then fails to run.
        trials: whether ONNX Runtime has kernels for kinds of nodes that were tried.
        watch: told what nodes compute.
    """

    versions: Mapping[str, int]
    ir_version: int
    constants: Mapping[str, TensorProto]
    folder: Path | None = None
    refused: frozenset[str] = frozenset()
    trials: dict[bytes, str] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)


class UncoveredError(UnsupportedModelError):
    """Nobody is trusted with a node."""


class Division:
    """Who computes which node of a graph.

    Args:
        graph: nodes are sorted and have names.
        types: element types of the values around the graph and of its inputs.
        around: of the graph.

    Attributes:
        trust: for each node of the graph.
        types: also of the values that it computes.

    Raises:
        UncoveredError: if nobody is trusted with a node.
        UnsupportedModelError: if ONNX Runtime has a kernel that refuses a node, which is not valid then.
    """

    def __init__(self, graph: GraphProto, types: Mapping[str, int], around: Surroundings) -> None:
        self.types = dict(types)
        self._around = around
        infer_types(graph, self.types, around.versions)
        self.trust = [self._of(node) for node in graph.node]

    def _of(self, node: NodeProto) -> Trust:
        if any(True for _ in subgraphs(node)):
            return Trust.BODIES if self._has_others(node) else Trust.RUNTIME
        given = [self.types.get(name) for name in node.input]
        if deviates(node, given):
            return Trust.DEFINITION
        refusal = "it fails there" if node.name in self._around.refused else self._refusal(node, self.types)
        if not refusal:
            return Trust.RUNTIME
        if definition_of(node) is not None:
            return Trust.DEFINITION
        if not NARROW_FLOATS.isdisjoint(given) and not self._refusal(node, _widened(self.types)):
            return Trust.WIDENED
        if _NOT_IMPLEMENTED not in refusal:
            raise UnsupportedModelError(f"ONNX Runtime cannot load the model: {describe_node(node)}: {refusal}")
        if is_evaluated(node):
            return Trust.EVALUATOR
        raise UncoveredError(
            f"{describe_node(node)} has no reference that results can be checked by: ONNX Runtime refuses it, as "
            f"{refusal}, and Sartor knows no definition of it"
        )

    def _has_others(self, node: NodeProto) -> bool:
        """Whether a body of a control-flow node has a node that ONNX Runtime does not compute."""
        given = body_input_types(node, self.types)
        return any(
            trust is not Trust.RUNTIME
            for body in subgraphs(node)
            for trust in Division(body, {**self.types, **named_types(body, given)}, self._around).trust
        )

    def _refusal(self, node: NodeProto, types: Mapping[str, int]) -> str:
        """Why ONNX Runtime does not load a node alone; empty if it does, or an operand is no tensor."""
        names = list(dict.fromkeys(name for name in node.input if name))
        if any(name not in types for name in names):
            return ""
        alone = self._alone(node, names, types)
        key = _kind(node, alone)
        if key not in self._around.trials:
            self._around.trials[key] = _refused(alone)
        return self._around.trials[key]

    def _alone(self, node: NodeProto, names: list[str], types: Mapping[str, int]) -> ModelProto:
        graph = GraphProto(name="one", node=[node])
        for name in names:
            tensor = self._around.constants.get(name)
            is_read = tensor is not None and math.prod(tensor.dims) <= _VALUES_READ
            if tensor is not None and is_read and not tensor.external_data and tensor.data_type == types[name]:
                graph.initializer.append(tensor)
            else:
                graph.input.append(helper.make_tensor_value_info(name, types[name], None))
        graph.output.extend(helper.make_value_info(name, TypeProto()) for name in node.output if name)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._around.versions.items()]
        return ModelProto(ir_version=self._around.ir_version, opset_import=opsets, graph=graph)


def named_types(body: GraphProto, given: list[int | None]) -> dict[str, int]:
    """Types of a body's inputs, as far as they are known."""
    pairs = zip(body.input, given, strict=False)
    return {value.name: kind for value, kind in pairs if kind is not None}


def _widened(types: Mapping[str, int]) -> dict[str, int]:
    return {name: int(TensorProto.FLOAT) if kind in NARROW_FLOATS else kind for name, kind in types.items()}


def _refused(alone: ModelProto) -> str:
    try:
        OnnxRuntimeReference(alone.SerializeToString(), threads=1, optimises=False, cuts=False)
    except UnsupportedModelError as error:
        return str(error).partition(": ")[2] or str(error)
    return ""


def _kind(node: NodeProto, alone: ModelProto) -> bytes:
    """What nodes that ONNX Runtime loads alike have in common: all but the names."""
    return b"\0".join(_parts_of_kind(node, alone))


def _parts_of_kind(node: NodeProto, alone: ModelProto) -> Iterator[bytes]:
    yield f"{node.domain} {node.op_type}".encode()
    yield from (attribute.SerializeToString() for attribute in node.attribute)
    names = list(dict.fromkeys(name for name in node.input if name))
    yield repr([names.index(name) if name else -1 for name in node.input]).encode()
    yield repr([bool(name) for name in node.output]).encode()
    known = {value.name: value.type.SerializeToString() for value in alone.graph.input}
    known |= {tensor.name: tensor.raw_data or tensor.SerializeToString() for tensor in alone.graph.initializer}
    yield from (known[name] for name in names)
