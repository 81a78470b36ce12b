"""Replaces values whose shape depends on data by values of static shape, of which a count says how much is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from onnx import ModelProto, NodeProto, TensorProto, helper

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.dynamic import compaction, indexing, passing, reducing, scattering, sizes, suppression
from sartor.onnx_model.dynamic.steps import Steps, Tail
from sartor.onnx_model.dynamic.unique import unique
from sartor.onnx_model.graphs.graph import MALFORMED, GraphEditor, MalformedError, opset, optional_input
from sartor.onnx_model.graphs.walk import describe_node, names_read
from sartor.onnx_model.operator_types.alike import BY_WEIGHTS, REDUCTIONS
from sartor.runtime.driver.counts import count_name, counted_axis

Rule = Callable[[Steps], None]


def bound_sizes(model: ModelProto) -> tuple[str, ...]:
    """Give every value whose shape depends on data a static shape, in place; returns the names of replaced nodes.

    The model's constants are folded, and its shapes are those that inference finds.

    Of such a value only the first elements along one axis are valid, and another value counts them. What reads it is
    replaced by nodes whose valid results do not depend on the other elements. For each output of this kind, the count
    becomes an output as well, which ``count_name`` names.

    Raises:
        UnsupportedModelError: if a node mixes valid elements with others, or has no upper bound; the message names it.
    """
    editor = GraphEditor(model.graph)
    _check_names(editor)
    if not any(_begins(node, editor) for node in editor.nodes):
        return ()
    tail = Tail(editor, helper.make_opsetid("", opset(model)))
    nodes: list[NodeProto] = []
    changed: list[str] = []
    for node in editor.nodes:
        replacement = _replaced(node, tail)
        nodes.extend([node] if replacement is None else replacement)
        changed.extend([] if replacement is None else [node.name])
    nodes.extend(_counts(tail))
    # The types are known until the nodes are set.
    _declare(model, tail)
    editor.set_nodes(nodes)
    return tuple(changed)


def _check_names(editor: GraphEditor) -> None:
    for value in editor.graph.output:
        if counted_axis(value.name) is not None:
            raise UnsupportedModelError(
                f"the name of output '{value.name}' is kept for counts of elements; name it otherwise"
            )


def _begins(node: NodeProto, editor: GraphEditor) -> bool:
    """Whether the shape of a node's result depends on data, though its operands' shapes do not."""
    if node.domain:
        return False
    if node.op_type in _SELECTING:
        return True
    deciding = (optional_input(node, index) for index in _DECIDING.get(node.op_type, ()))
    is_open = any(name and not editor.is_constant(name) for name in deciding)
    return is_open and (node.op_type == "TopK" or editor.shape(node.output[0]) is None)


def _replaced(node: NodeProto, tail: Tail) -> list[NodeProto] | None:
    """The nodes in place of one, or None to keep it."""
    tail.infer(node)
    is_selecting = node.op_type in _SELECTING and not node.domain
    if is_selecting or any(name in tail.counted for name in names_read(node)):
        return _bounded(node, tail)
    # A shape that has no bound may become known by later rewrites, or nothing may need it.
    with suppress(UnsupportedModelError):
        if _begins(node, tail.editor):
            return _bounded(node, tail)
    steps = Steps(tail, node)
    sizes.track(steps)
    return [node, *steps.nodes] if steps.nodes else None


def _bounded(node: NodeProto, tail: Tail) -> list[NodeProto]:
    steps = Steps(tail, node)
    rule = None if node.domain else _RULES.get(node.op_type)
    if rule is None:
        names = ", ".join(f"'{name}'" for name in sorted(names_read(node)) if name in tail.counted)
        raise steps.refusal(f"the size of its operand {names} depends on data")
    try:
        rule(steps)
    except MALFORMED as error:
        raise MalformedError(
            f"{describe_node(node)} is malformed: its attributes, inputs or shapes do not fit the operator"
        ) from error
    return steps.nodes


def _counts(tail: Tail) -> list[NodeProto]:
    """Nodes that name the counts of the graph's outputs."""
    nodes = []
    for value in tail.editor.graph.output:
        known = tail.counted.get(value.name)
        if known is not None:
            name = count_name(value.name, known.axis)
            nodes.append(helper.make_node("Identity", [known.count.name], [name], name=name))
    return nodes


def _declare(model: ModelProto, tail: Tail) -> None:
    """Declare the static shapes of outputs, and the counts as outputs."""
    graph = model.graph
    del graph.value_info[:]
    for value in list(graph.output):
        known = tail.counted.get(value.name)
        inferred = tail.editor.type(value.name)
        if inferred is not None and value.name not in {value_info.name for value_info in graph.input}:
            value.type.CopyFrom(inferred)
        if known is not None:
            name = count_name(value.name, known.axis)
            graph.output.append(helper.make_tensor_value_info(name, TensorProto.INT64, ()))


_SELECTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
# Operands that decide sizes: if they are not constant, sizes depend on data.
_DECIDING: Mapping[str, tuple[int, ...]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "TopK": (1,),
}
_ELEMENTWISE = (
    *("Abs", "Acos", "Add", "And", "Asin", "Atan", "BitShift", "Cast", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu"),
    *("Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity"),
    *("IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg"),
    *("Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"),
    *("Softsign", "Sqrt", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"),
)
_ROWS = BY_WEIGHTS | {
    *("AveragePool", "BatchNormalization", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "MaxPool"),
}
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, passing.elementwise),
    **dict.fromkeys(REDUCTIONS | {"ArgMax", "ArgMin"}, reducing.reduce_),
    **dict.fromkeys(_ROWS, passing.rows),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax", "Split"), passing.along),
    "Compress": compaction.compress,
    "Concat": indexing.concat,
    "ConstantOfShape": passing.filled,
    "Dropout": passing.dropped,
    "Expand": passing.expand,
    "Flatten": passing.flatten,
    "Gather": indexing.gather,
    "GatherND": indexing.gather_nd,
    "NonMaxSuppression": suppression.suppress,
    "NonZero": compaction.non_zero,
    "Range": indexing.range_,
    "Reshape": passing.reshape,
    "ScatterND": scattering.scatter_nd,
    "Shape": sizes.shape_of,
    "Size": sizes.size_of,
    "Slice": indexing.slice_,
    "Squeeze": passing.squeeze,
    "TopK": indexing.top_k,
    "Transpose": passing.transpose,
    "Unique": unique,
    "Unsqueeze": passing.unsqueeze,
}
