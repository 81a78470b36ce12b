"""Rewrites attention in which several heads of queries share keys: these heads become rows of one product.

Exporters repeat the keys and values for each head, which copies them, and with them a decoder's whole cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from onnx import ModelProto, NodeProto

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import GraphEditor, attributes, rewrite_nodes
from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused

_RANK = 4
_TURNED = [0, 1, 3, 2]
_STEPS = ("Add", "Div", "Mul", "Sub")


@dataclass(frozen=True)
class _Repeated:
    """An operand of a product that is repeated for groups of heads.

    Attributes:
        source: what is repeated, [batch, groups, rows, columns].
        shape: of the source.
        count: how many heads of queries read each group.
        is_turned: whether its rows and columns are exchanged.
    """

    source: str
    shape: tuple[int, ...]
    count: int
    is_turned: bool

    def serves(self, queries: tuple[int, ...]) -> bool:
        """Whether queries of a shape have a head for each repeat, of as many sequences: products may spread either."""
        return len(queries) == _RANK and queries[:2] == (self.shape[0], self.shape[1] * self.count)


@dataclass(frozen=True)
class _Sizes:
    """Numbers of sequences, heads, groups of heads, and queries."""

    batch: int
    heads: int
    groups: int
    queries: int

    @property
    def rows(self) -> int:
        """Queries of a group."""
        return self.heads // self.groups * self.queries


def group_queries(model: ModelProto) -> tuple[str, ...]:
    """Multiply keys and values that heads share once for all of their heads."""
    changed = rewrite_nodes(model, _grouped)
    if changed:
        drop_unused(model)
    return changed


def _grouped(node: NodeProto, editor: GraphEditor) -> list[NodeProto] | None:
    """Rewrite the product of an attention's weights and values, with all nodes back to its queries."""
    if node.op_type != "MatMul" or (values := _repeated(node.input[1], editor)) is None or values.is_turned:
        return None
    chain = _chain(node.input[0], editor)
    if chain is None:
        return None
    first, steps = chain
    keys, shape = _repeated(first.input[1], editor), editor.shape(first.input[0])
    if keys is None or shape is None or keys.shape[1] != values.shape[1]:
        return None
    if not (keys.serves(shape) and values.serves(shape)):
        return None
    sizes = _Sizes(shape[0], shape[1], values.shape[1], shape[2])
    emit = Emitter(editor, first)
    by_group = emit.constant([sizes.batch, sizes.groups, sizes.rows, -1], "by_group")
    current = emit("Reshape", first.input[0], by_group, part="group")
    source = emit("Transpose", keys.source, part="turn_keys", perm=_TURNED) if keys.is_turned else keys.source
    current, nodes, before = emit("MatMul", current, source), emit.nodes, first.output[0]
    for step in steps:
        emit = Emitter(editor, step)
        inputs = [current if name == before else _by_group(emit, name, sizes) for name in step.input]
        current, before = emit.copy(inputs), step.output[0]
        nodes += emit.nodes
    emit = Emitter(editor, node)
    product = emit("MatMul", current, values.source)
    by_head = emit.constant([sizes.batch, sizes.heads, sizes.queries, -1], "by_head")
    emit("Reshape", product, by_head, part="ungroup", output=node.output[0])
    return [*nodes, *emit.nodes]


def _chain(name: str, editor: GraphEditor) -> tuple[NodeProto, list[NodeProto]] | None:
    """The product of queries and keys, and the nodes between it and a value: a softmax and what comes before it.

    None of these spreads what it reads to more sequences, heads or queries.
    """
    steps, node, shape = list[NodeProto](), editor.producer(name), editor.shape(name)
    if shape is None or len(shape) != _RANK:
        return None
    while node is not None and (node.op_type in _STEPS or node.op_type == "Softmax"):
        if editor.only_consumer(node.output[0]) is None or editor.shape(node.output[0]) != shape:
            return None
        if node.op_type == "Softmax" and (steps or attributes(node).get("axis", -1) not in (-1, _RANK - 1)):
            return None
        steps.insert(0, node)
        followed = [name for name in node.input if _leads_to_product(name, editor)]
        others = [editor.shape(name) for name in node.input if name not in followed]
        if len(followed) != 1 or not all(map(partial(_spreads, shape=shape), others)):
            return None
        node = editor.producer(followed[0])
    if node is None or node.op_type != "MatMul" or not steps or steps[-1].op_type != "Softmax":
        return None
    is_whole = editor.only_consumer(node.output[0]) is not None and editor.shape(node.output[0]) == shape
    return (node, steps) if is_whole else None


def _leads_to_product(name: str, editor: GraphEditor) -> bool:
    node = editor.producer(name)
    while node is not None and node.op_type in _STEPS:
        node = next((producer for producer in map(editor.producer, node.input) if producer is not None), None)
    return node is not None and node.op_type == "MatMul" and _repeated(node.input[1], editor) is not None


def _spreads(sizes: tuple[int, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether an operand beside the scores is the same for all heads."""
    if sizes is None or len(sizes) > _RANK:
        return False
    whole = (1,) * (_RANK - len(sizes)) + sizes
    return whole[1] == 1 and all(size in (1, full) for size, full in zip(whole, shape, strict=True))


def _by_group(emit: Emitter, name: str, sizes: _Sizes) -> str:
    """An operand that is the same for all heads, for all queries of a group."""
    shape = emit.editor.shape(name) or ()
    if len(shape) < 2 or shape[-2] == 1:
        return name
    repeats = [1] * (len(shape) - 2) + [sizes.rows // sizes.queries, 1]
    return emit("Tile", name, emit.constant(repeats, "repeats"), part="for_heads")


def _repeated(name: str, editor: GraphEditor) -> _Repeated | None:
    """What a value is repeats of; None if it is nothing repeated."""
    nodes = _producers(name, editor)
    node = next(nodes, None)
    is_turned = node is not None and node.op_type == "Transpose" and attributes(node).get("perm") == _TURNED
    joined = next(nodes, None) if is_turned else node
    spread, raised = next(nodes, None), next(nodes, None)
    if joined is None or spread is None or raised is None:
        return None
    is_repeat = joined.op_type == "Reshape" and spread.op_type in ("Expand", "Tile")
    if not is_repeat or raised.op_type not in ("Unsqueeze", "Reshape"):
        return None
    names = raised.input[0], raised.output[0], spread.output[0], joined.output[0]
    shapes = [editor.shape(name) for name in names]
    source, one, several, heads = (shape or () for shape in shapes)
    if len(source) != _RANK or len(several) != _RANK + 1:
        return None
    batch, groups, *rest = source
    count = several[2]
    is_by_head = one == (batch, groups, 1, *rest) and several == (batch, groups, count, *rest)
    if not is_by_head or heads != (batch, groups * count, *rest):
        return None
    return _Repeated(names[0], source, count, is_turned)


def _producers(name: str, editor: GraphEditor) -> Iterator[NodeProto]:
    """The node that computes a value, the one that computes its first operand, and so on."""
    while (node := editor.producer(name)) is not None and node.input:
        yield node
        name = node.input[0]
