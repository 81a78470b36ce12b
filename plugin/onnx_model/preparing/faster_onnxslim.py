"""onnxslim in less time, with the same result, but for zeros of both signs, which it takes for equal.

It compares each constant with every other one of its shape, and each node with every other one that reads the same
values. Here only those are compared that have the same key, as all that are equal do: the time grows with the model,
not with its square. It also compares a model with itself, describes what is described, and sorts what is sorted. It
imports sympy to describe models, which takes longer than to simplify most, and computes constants in threads for all
cores.
"""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

from sartor.onnx_model.graphs.graph import static_shape

_TYING = "onnxslim.core.optimization.weight_tying"
_ELIMINATION = "onnxslim.core.optimization.subexpression_elimination"
_CORE, _UTILITIES = "onnxslim.core", "onnxslim.utils"
_INFERENCE = "onnxslim.third_party.symbolic_shape_infer"
_RUNTIME = "onnxruntime"
_GRAPH = "onnxslim.third_party.onnx_graphsurgeon.ir.graph"


class _LateInference(ModuleType):
    """Stands for the module of onnxslim that infers shapes, and so imports sympy, until it infers some."""

    def __init__(self) -> None:
        super().__init__(_INFERENCE)
        self.SymbolicShapeInference = self

    def infer_shapes(self, model: ModelProto, **settings: Any) -> ModelProto:
        """Load the module and infer the shapes of a model."""
        if sys.modules.get(_INFERENCE) is self:
            del sys.modules[_INFERENCE]
        inferred: ModelProto = importlib.import_module(_INFERENCE).SymbolicShapeInference.infer_shapes(
            model, **settings
        )
        return inferred


def load_onnxslim() -> None:
    """Import onnxslim without what it infers shapes with, which is loaded once it does.

    Raises:
        ImportError: if it cannot be imported.
    """
    late = _LateInference()
    sys.modules[_INFERENCE] = late
    try:
        importlib.import_module("onnxslim")
    except ImportError:
        # Another version may want more of that module.
        del sys.modules[_INFERENCE]
        importlib.import_module("onnxslim")


@contextmanager
def comparing_by_key() -> Iterator[None]:
    """Let onnxslim compare only what may be equal, in this process."""
    tying: Any = importlib.import_module(_TYING)
    elimination: Any = importlib.import_module(_ELIMINATION)
    tie, eliminate = tying.find_and_remove_replaceable_constants, elimination.find_and_remove_replaceable_nodes

    def tie_alike(constants: Sequence[Any]) -> None:
        for alike in _buckets(constants, _constant_key):
            tie(alike)

    def eliminate_alike(nodes: Sequence[Any], *outputs: Any) -> None:
        for alike in _buckets(nodes, _node_key):
            eliminate(alike, *outputs)

    tying.find_and_remove_replaceable_constants = tie_alike
    elimination.find_and_remove_replaceable_nodes = eliminate_alike
    try:
        yield
    finally:
        tying.find_and_remove_replaceable_constants, elimination.find_and_remove_replaceable_nodes = tie, eliminate


def _buckets(items: Iterable[Any], key: Callable[[Any], Hashable]) -> list[list[Any]]:
    """Those of the same key, in their order, where there are several."""
    buckets: dict[Hashable, list[Any]] = defaultdict(list)
    for item in items:
        buckets[key(item)].append(item)
    return [alike for alike in buckets.values() if len(alike) > 1]


def _constant_key(constant: Any) -> Hashable:
    stored = constant._values
    # Not through ``constant.values``, which would also change how the constant is written.
    values = stored.load() if hasattr(stored, "load") else stored
    # Bytes, as onnxslim takes zeros of both signs for equal: what they divide is not.
    content = b"" if values.dtype.hasobject else values.tobytes()
    return tuple(stored.shape), str(stored.dtype), content


def _node_key(node: Any) -> Hashable:
    """Return a key that is equal for nodes that may replace each other; omitted inputs are ignored."""
    read = tuple(
        _constant_key(input_) if hasattr(input_, "_values") else input_.name
        for input_ in node.inputs
        if not input_.is_empty()
    )
    plain = ((name, _plain(value)) for name, value in node.attrs.items())
    return node.op, node.domain, frozenset(plain), read


def _plain(value: Any) -> Hashable:
    """An attribute, floats with their sign; tensors and graphs are left to be compared."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, float):
        return repr(value)
    return value if isinstance(value, (int, str, bytes)) else None


@contextmanager
def skipping_settled() -> Iterator[None]:
    """Let onnxslim skip what changes nothing, in this process."""
    core: Any = importlib.import_module(_CORE)
    utilities: Any = importlib.import_module(_UTILITIES)
    graph_class: Any = importlib.import_module(_GRAPH).Graph
    checked, inferred, toposort = utilities.check_point, core.shape_infer, graph_class.toposort

    def sort(graph: Any, *given: Any, **named: Any) -> Any:
        return _sorted(graph) or toposort(graph, *given, **named)

    utilities.check_point = lambda model: _CheckPoint(model, checked)
    core.shape_infer = lambda model: model if _is_described(model) else inferred(model)
    graph_class.toposort = sort
    try:
        yield
    finally:
        utilities.check_point, core.shape_infer, graph_class.toposort = checked, inferred, toposort


@contextmanager
def folding_in_one_thread() -> Iterator[None]:
    """Let onnxslim compute constants in one thread, in this process: ONNX Runtime starts one for each core, even where
    only one may be used, each of which spins, and time of a processor is limited for all of them together."""
    runtime: Any = importlib.import_module(_RUNTIME)
    session, options = runtime.InferenceSession, runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def open_session(model: Any, *given: Any, **named: Any) -> Any:
        return session(model, *given, **named if given else {"sess_options": options, **named})

    runtime.InferenceSession = open_session
    try:
        yield
    finally:
        runtime.InferenceSession = session


class _CheckPoint:
    """A model between two rounds. Only models that are not written alike are compared as graphs, which takes long."""

    def __init__(self, model: ModelProto, graph: Callable[[ModelProto], Any]) -> None:
        self._written = _written(model)
        self._model = ModelProto.FromString(model.SerializeToString())
        self._graph = graph

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _CheckPoint):
            return NotImplemented
        return self._written == other._written or bool(self._graph(self._model) == other._graph(other._model))

    __hash__ = None  # type: ignore[assignment]


def _written(model: ModelProto) -> tuple[object, ...]:
    """What a graph is made of; the order of types and constants does not matter."""
    graph = model.graph
    ordered = [
        _bytes(container) for container in (graph.node, graph.input, graph.output, model.opset_import, model.functions)
    ]
    return (*ordered, *(frozenset(_bytes(values)) for values in (graph.value_info, graph.initializer)))


def _bytes(messages: Iterable[Message]) -> list[bytes]:
    return [message.SerializeToString(deterministic=True) for message in messages]


def _is_described(model: ModelProto) -> bool:
    """Whether all shapes of a model are known, so that inference finds nothing."""
    graph = model.graph
    values = {value.name: value.type for value in (*graph.value_info, *graph.input, *graph.output)}
    known = {name for name, kind in values.items() if static_shape(kind) is not None and kind.tensor_type.elem_type}
    return all(name in known for node in graph.node for name in node.output if name)


def _sorted(graph: Any) -> Any:
    """The graph, with its nodes by their distance from its inputs, if every node is behind those that it reads, and
    none has a body; None otherwise."""
    if graph.functions or any(True for _ in graph.subgraphs()):
        return None
    levels: dict[int, int] = {}
    for node in graph.nodes:
        makers = [id(maker) for tensor in node.inputs for maker in tensor.inputs]
        if any(maker not in levels for maker in makers):
            return None
        levels[id(node)] = 1 + max((levels[maker] for maker in makers), default=-1)
    graph.nodes = sorted(graph.nodes, key=lambda node: levels[id(node)])
    return graph
