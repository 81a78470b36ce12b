"""Conditionals whose results have sizes that data decides, without branches: lists that grow, and selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TypeProto, helper

from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import Array, GraphEditor, attributes, opset, optional_input
from sartor.onnx_model.graphs.infer import infer_node, infer_shapes
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.onnx_model.graphs.walk import subgraphs
from sartor.onnx_model.rewrites.control_flow.chosen_sizes import Kind, can_select, differ, select
from sartor.onnx_model.rewrites.control_flow.inline_if import fresh_names, renamed_node

# Integers divided by zero end a program; a branch may divide because its condition says that it can.
_FAILING = frozenset({"Div", "Mod"})


def append_if(model: ModelProto) -> tuple[str, ...]:
    """Replace each ``If`` of the main graph that appends rows to a tensor, or leaves it alone; returns their names.

    The rows of all such nodes in a chain are joined whole, and those whose conditions hold are picked (Compress).
    """
    editor = GraphEditor(model.graph)
    return editor.rewrite(_Appender(editor))


def select_open_branches(model: ModelProto) -> tuple[str, ...]:
    """Compute both branches of each ``If`` of the main graph that gives tensors of one shape, if a branch computes
    what has an open shape on the way or both compute single numbers, and select; returns the nodes' names. So are
    tensors of which one is longer than the other along an axis, which have the size of the longer one as their bound.

    What bounds sizes does so in the main graph alone.
    """
    infer_shapes(model)
    editor, version = GraphEditor(model.graph), helper.make_opsetid("", opset(model))
    return editor.rewrite(lambda node: _selected(node, editor, version))


@dataclass(frozen=True)
class _Rows:
    """All rows that a tensor may have, and whether it has each."""

    every: str
    flags: str


class _Appender:
    """A rule for nodes in their order, which keeps what each tensor has been found to consist of."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._known: dict[str, _Rows] = {}

    def __call__(self, node: NodeProto) -> list[NodeProto] | None:
        if not _may_choose(node, self._editor) or len(node.output) != 1:
            return None
        options = attributes(node)
        if (nodes := self._of_constants(node, options)) is not None:
            return nodes
        for taken, other, holds in (("then_branch", "else_branch", True), ("else_branch", "then_branch", False)):
            kept = _handed_on(options[other]) or self._known_start(options[taken], options[other])
            if kept and (joined := _appended(options[taken], kept)) is not None:
                return self._written(node, options[taken], joined, kept, holds=holds)
        return None

    def _written(
        self, node: NodeProto, branch: GraphProto, joined: NodeProto, kept: str, *, holds: bool
    ) -> list[NodeProto] | None:
        editor, emit = self._editor, Emitter(self._editor, node)
        before = self._known.get(kept) or self._whole(kept, emit)
        names = fresh_names(branch, node, editor)
        inner = GraphEditor(branch, editor)
        shapes = [inner.shape(name) for name in joined.input[1:]]
        if before is None or any(not shape for shape in shapes):
            return None
        for tensor in branch.initializer:
            editor.set_constant(names[tensor.name], to_array(tensor))
        emit.nodes.extend(renamed_node(inner, names) for inner in branch.node if inner != joined)
        every = emit(
            "Concat", before.every, *(names.get(operand, operand) for operand in joined.input[1:]), part="rows", axis=0
        )
        flag = emit("Reshape", node.input[0], emit.constant([1], "one"), part="flag")
        if not holds:
            flag = emit("Not", flag, part="other")
        count = sum(shape[0] for shape in shapes if shape)
        flags = emit("Expand", flag, emit.constant([count], "count"), part="flags")
        flags = emit("Concat", before.flags, flags, part="taken", axis=0)
        self._known[node.output[0]] = _Rows(every, flags)
        emit("Compress", every, flags, output=node.output[0], axis=0)
        return emit.nodes

    def _of_constants(self, node: NodeProto, options: Mapping[str, GraphProto]) -> list[NodeProto] | None:
        """What appends rows to a constant, where both results are known."""
        pair = [self._constant(options[name]) for name in ("then_branch", "else_branch")]
        longer, shorter = sorted(pair, key=lambda array: -1 if array is None or not array.ndim else -len(array))
        if longer is None or shorter is None or not longer.ndim or longer.dtype != shorter.dtype:
            return None
        count = len(shorter) if shorter.ndim else 0
        if shorter.ndim != longer.ndim or not np.array_equal(longer[:count], shorter) or count == len(longer):
            return None
        emit = Emitter(self._editor, node)
        flag = emit("Reshape", node.input[0], emit.constant([1], "one"), part="flag")
        if longer is pair[1]:
            flag = emit("Not", flag, part="other")
        added = emit("Expand", flag, emit.constant([len(longer) - count], "count"), part="flags")
        flags = emit("Concat", emit.constant(np.full(count, True), "whole"), added, part="taken", axis=0)
        every = emit.constant(longer, "rows")
        self._known[node.output[0]] = _Rows(every, flags)
        emit("Compress", every, flags, output=node.output[0], axis=0)
        return emit.nodes

    def _known_start(self, taken: GraphProto, other: GraphProto) -> str:
        """The constant to which a branch appends rows, if another branch returns the same values; else empty."""
        result, value = taken.output[0].name, self._constant(other)
        name = next((node.input[0] for node in taken.node if result in node.output), "")
        start = GraphEditor(taken, self._editor).constant(name)
        if value is None or start is None or not self._editor.is_constant(name):
            return ""
        return name if start.dtype == value.dtype and np.array_equal(start, value) else ""

    def _constant(self, branch: GraphProto) -> Array | None:
        """The value that a branch returns, if it is known."""
        name = branch.output[0].name
        own = next((tensor for tensor in branch.initializer if tensor.name == name), None)
        if own is not None:
            return to_array(own)
        handed = _handed_on(branch)
        return self._editor.constant(handed) if handed else None

    def _whole(self, name: str, emit: Emitter) -> _Rows | None:
        shape = self._editor.shape(name)
        return _Rows(name, emit.constant(np.full(shape[:1], True), "whole")) if shape else None


def _handed_on(branch: GraphProto) -> str:
    """The value around a branch that it returns as it is; empty if it computes something."""
    name, producers = branch.output[0].name, {output: node for node in branch.node for output in node.output}
    while name in producers and producers[name].op_type == "Identity" and not producers[name].domain:
        name = producers[name].input[0]
    return "" if name in producers or any(name == tensor.name for tensor in branch.initializer) else name


def _appended(branch: GraphProto, kept: str) -> NodeProto | None:
    """The node by which a branch appends rows to a value around it."""
    result = branch.output[0].name
    node = next((inner for inner in branch.node if result in inner.output), None)
    if node is None or node.op_type != "Concat" or node.domain or attributes(node)["axis"] != 0:
        return None
    if (
        node.input[0] != kept
        or kept in node.input[1:]
        or any(kept in inner.input for inner in branch.node if inner != node)
    ):
        return None
    return None if any(True for inner in branch.node for _ in subgraphs(inner)) else node


def _may_choose(node: NodeProto, editor: GraphEditor) -> bool:
    return node.op_type == "If" and not node.domain and editor.constant(node.input[0]) is None


def _selected(node: NodeProto, editor: GraphEditor, version: OperatorSetIdProto) -> list[NodeProto] | None:
    if not _may_choose(node, editor):
        return None
    branches = [attributes(node)[name] for name in ("then_branch", "else_branch")]
    inner = [GraphEditor(branch, editor) for branch in branches]
    for branch, known in zip(branches, inner, strict=True):
        _select_inside(branch, known, version)
    is_open = any(map(_is_open, branches, inner)) or any(map(differ, _kinds(branches, inner)))
    if not is_open and not all(map(_is_scalar, branches, inner)):
        return None
    for branch, known in zip(branches, inner, strict=True):
        _infer(branch, known, version)
    kinds = _kinds(branches, inner)
    if not all(map(can_select, kinds)):
        return None
    if any(_may_fail(inner, known) for branch, known in zip(branches, inner, strict=True) for inner in branch.node):
        return None
    emit, results, sizes = Emitter(editor, node), [], dict[tuple[int, int], str]()
    for branch in branches:
        names = fresh_names(branch, node, editor)
        for tensor in branch.initializer:
            editor.set_constant(names[tensor.name], to_array(tensor))
        emit.nodes.extend(renamed_node(inner, names) for inner in branch.node)
        results.append([names.get(value.name, value.name) for value in branch.output])
    condition = emit("Reshape", node.input[0], emit.constant([], "scalar"), part="condition")
    for output, chosen, pair in zip(node.output, zip(*results, strict=True), kinds, strict=True):
        if output:
            select(emit, condition, chosen, pair, output, sizes)
    return emit.nodes


def _kinds(branches: Sequence[GraphProto], inner: Sequence[GraphEditor]) -> list[tuple[Kind, ...]]:
    """What is known of the results of both branches."""
    pairs = zip(*(branch.output for branch in branches), strict=True)
    return [
        tuple(
            (known.element_type(value.name), known.shape(value.name))
            for known, value in zip(inner, values, strict=True)
        )
        for values in pairs
    ]


def _select_inside(branch: GraphProto, editor: GraphEditor, version: OperatorSetIdProto) -> None:
    """Select among the branches of each ``If`` in a branch, as far as they allow it."""
    if any(node.op_type == "If" for node in branch.node):
        _infer(branch, editor, version)
        known = {name: kind for name in _computed(branch) if (kind := editor.type(name)) is not None}
        if editor.rewrite(lambda node: _selected(node, editor, version)):
            # An edit forgets types that the graph does not declare.
            for name, kind in known.items():
                editor.set_type(name, kind)
            _infer(branch, editor, version)


def _computed(branch: GraphProto) -> list[str]:
    return [name for node in branch.node for name in node.output if name]


def _infer(branch: GraphProto, editor: GraphEditor, version: OperatorSetIdProto) -> None:
    """Infer a branch's types with the constants around it."""
    for node in branch.node:
        for name, kind in infer_node(node, editor, version).items():
            editor.set_type(name, kind)
        if (part := _sliced_type(node, editor)) is not None:
            editor.set_type(node.output[0], part)


def _sliced_type(node: NodeProto, editor: GraphEditor) -> TypeProto | None:
    """The type of a slice by bounds that are computed: ONNX's inference opens the other dimensions as well."""
    if node.op_type != "Slice" or node.domain or editor.shape(node.output[0]) is not None:
        return None
    shape, bounds = editor.shape(node.input[0]), editor.shape(node.input[1])
    given = optional_input(node, 3)
    if shape is None or bounds is None:
        return None
    axes = editor.constant(given) if given else np.arange(bounds[0])
    if axes is None:
        return None
    sliced = {int(axis) % len(shape) for axis in axes}
    dims = [None if axis in sliced else size for axis, size in enumerate(shape)]
    return helper.make_tensor_type_proto(editor.element_type(node.input[0]), dims)


def _is_open(branch: GraphProto, editor: GraphEditor) -> bool:
    return any(name and editor.shape(name) is None for node in branch.node for name in (*node.input, *node.output))


def _is_scalar(branch: GraphProto, editor: GraphEditor) -> bool:
    """Whether all that a branch reads and computes is single numbers, so that choosing takes longer than both."""
    names = (name for node in branch.node for name in (*node.input, *node.output) if name)
    return all(editor.shape(name) in ((), (1,)) for name in names)


def _may_fail(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether a node must not run unless its branch is taken, or holds a branch itself."""
    if any(True for _ in subgraphs(node)):
        return True
    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return node.op_type in _FAILING and editor.element_type(node.input[0]) not in floats
