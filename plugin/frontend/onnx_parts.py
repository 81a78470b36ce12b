"""Cuts a long model into consecutive parts, as IREE's lowering of ONNX takes time that grows faster than the model.

What crosses a cut must keep its meaning if the importer does not see where it comes from: tensors of known shape in
types that IREE passes unchanged. Small integers may be sizes, which the importer follows to their source, and are not
cut.

Beginnings of a model also show for which node it is refused.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from sartor.onnx_model.graphs.graph import static_shape
from sartor.onnx_model.graphs.walk import names_read

# A part takes about half a second in addition. Each of 6,000 nodes takes six times as long as each of 1,000.
PART_NODES = 1000
_PASSED = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL)
_MAY_BE_SIZES = (TensorProto.INT32, TensorProto.INT64)
# Sizes, axes and steps are vectors with an element for each dimension.
_MOST_SIZES = 64


def cut_into_parts(model: ModelProto, nodes: int = PART_NODES) -> list[ModelProto]:
    """Consecutive parts of a model that compute what it computes, each from results of earlier ones.

    Args:
        model: nodes are sorted, the types of all values are inferred.
        nodes: least size of a part; parts are longer where nothing can be cut, and models of less than three are whole.

    Returns:
        Models whose inputs are inputs of the model or outputs of earlier parts, by name; the model itself if it is not
        cut.
    """
    graph = model.graph
    if len(graph.node) < 3 * nodes:
        return [model]
    reads = [names_read(node) for node in graph.node]
    cuts = list(_cuts(graph, reads, nodes))
    if not cuts:
        return [model]
    bounds = [0, *cuts, len(graph.node)]
    splitter = _Splitter(model)
    return [splitter.part(begin, end) for begin, end in itertools.pairwise(bounds)]


def first_refused(model: ModelProto, is_refused: Callable[[ModelProto], bool]) -> NodeProto | None:
    """The last node of the shortest beginning of a model that is refused, by about log2 of its nodes trials.

    IREE's diagnostic does not name it where an operation has no location, which its lowering made on the way. In a long
    model the part that is refused is found first, as long beginnings take too long.

    Args:
        model: refused as a whole; nodes are sorted, the types of all values are inferred.
        is_refused: whether another model is refused.

    Returns:
        The node, or None if the model has none.
    """
    parts = cut_into_parts(model)
    if len(parts) > 1:
        # Only the last of the parts before can be left, as the model is refused.
        model = next(filter(is_refused, parts[:-1]), parts[-1])
    splitter = _Splitter(model)
    accepted, refused = 0, len(model.graph.node)
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if is_refused(splitter.part(0, middle)):
            refused = middle
        else:
            accepted = middle
    return model.graph.node[refused - 1] if refused else None


def _types(graph: GraphProto) -> dict[str, ValueInfoProto]:
    return {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}


def _cuts(graph: GraphProto, reads: Sequence[Set[str]], nodes: int) -> Iterator[int]:
    """Indices of nodes before which the graph is cut; none if the nodes are not sorted."""
    made = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    last = {name: index for index, names in enumerate(reads) for name in names if name in made}
    if any(made.get(name, -1) >= index for index, names in enumerate(reads) for name in names):
        return
    types = _types(graph)
    fixed = [name for name in last if not _may_cross(types.get(name))]
    opened, closed = Counter(made[name] for name in fixed), Counter(last[name] for name in fixed)
    uncut, begin = 0, 0
    for index in range(1, len(graph.node)):
        uncut += opened[index - 1] - (closed[index - 1] if index > 1 else 0)
        if not uncut and min(index - begin, len(graph.node) - index) >= nodes:
            yield index
            begin = index


def _may_cross(value: ValueInfoProto | None) -> bool:
    """Whether a tensor keeps its meaning if it is an input."""
    shape = None if value is None else static_shape(value.type)
    if value is None or shape is None:
        return False
    element = value.type.tensor_type.elem_type
    return element in _PASSED or (element in _MAY_BE_SIZES and math.prod(shape) > _MOST_SIZES)


class _Splitter:
    """Makes models of ranges of nodes.

    Args:
        model: nodes are sorted, the types of values are inferred.
    """

    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._reads = reads = [names_read(node) for node in model.graph.node]
        self._types: Mapping[str, ValueInfoProto] = _types(model.graph)
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._results = {value.name for value in model.graph.output}
        self._last = {name: index for index, names in enumerate(reads) for name in names}

    def part(self, begin: int, end: int) -> ModelProto:
        """The nodes from ``begin`` to before ``end``."""
        nodes: Sequence[NodeProto] = self._model.graph.node[begin:end]
        made = [name for node in nodes for name in node.output if name]
        own, read = set(made), dict.fromkeys(name for names in self._reads[begin:end] for name in sorted(names))
        leaving = [name for name in made if name in self._results or self._last.get(name, -1) >= end]
        kept = set(leaving)
        part = ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import)
        part.graph.name = self._model.graph.name
        part.graph.node.extend(nodes)
        part.graph.initializer.extend(self._constants[name] for name in read if name in self._constants)
        # A subgraph's own names are read too, and have no type here.
        given = (name for name in read if name not in own and name not in self._constants)
        part.graph.input.extend(self._types[name] for name in given if name in self._types)
        part.graph.output.extend(self._types[name] for name in leaving if name in self._types)
        inner = (name for name in made if name not in kept)
        part.graph.value_info.extend(self._types[name] for name in inner if name in self._types)
        return part
