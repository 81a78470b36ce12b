"""Advice for models that choose while they run: which input to bind so that the choice is made at compile time."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.dynamic.suggested_shapes import shape_options, suggested_shapes
from sartor.onnx_model.graphs.graph import MALFORMED, GraphEditor, attributes, static_shape
from sartor.onnx_model.graphs.walk import describe_node, names_read
from sartor.onnx_model.operator_types.alike import REDUCTIONS
from sartor.onnx_model.preparing.shape_inputs import deciding_operands
from sartor.onnx_model.preparing.shapes import Shapes
from sartor.runtime.driver.bound_input import Bindings

# Inputs with more elements are data, not settings, and their values are not known at compile time.
_MOST_ELEMENTS = 16
_AGAIN = "; export the model again"
# Begins options with which the model can be prepared.
_FITTING = "with"


Fits = Callable[[Bindings], bool]
"""Whether a model can be prepared, or refused for another reason with a way out, with these values bound."""


def with_advice(error: UnsupportedModelError, model: ModelProto, fits: Fits = lambda _: True) -> UnsupportedModelError:
    """The refusal of a model, with the advice to bind small inputs if a conditional or a shape depends on them.

    Args:
        error: the refusal.
        model: as far as it was prepared.
        fits: checks the values that the advice names.
    """
    try:
        return _advised(error, model, fits)
    except MALFORMED:
        # A damaged node was refused: no advice would help.
        return error


def _advised(error: UnsupportedModelError, model: ModelProto, fits: Fits) -> UnsupportedModelError:
    editor = GraphEditor(model.graph)
    settings = {value.name: value for value in model.graph.input if _is_setting(value, editor)}
    for node in editor.nodes:
        sources = sorted(_sources(node.input[0], editor) & set(settings)) if node.op_type == "If" and node.input else []
        # With all inputs fixed, nothing is left to compute.
        if sources and len(sources) < _count_inputs(editor):
            names = ", ".join(f"'{name}'" for name in sources)
            fixed = _fixing({name: (1,) * _count(settings[name]) for name in sources}, settings, fits)
            choice = f"{describe_node(node)} selects its branch by input {names}: fix that {fixed}"
            # The other branch is what contradicts the shapes: it is of another use of the model.
            is_cause = "contradict" in str(error) and fixed.startswith(_FITTING)
            return UnsupportedModelError(choice if is_cause else f"{error}; {choice}")
    return _with_shape_values(error, model, settings, fits)


def with_other_shapes(error: UnsupportedModelError, model: ModelProto, shapes: Shapes) -> UnsupportedModelError:
    """The refusal of a model whose shapes the user chose, with shapes that fit if these contradict each other.

    Args:
        error: the refusal.
        model: as it was loaded, with its free dimensions.
        shapes: that the user chose.
    """
    if "contradict" not in str(error):
        return error
    try:
        suggested = suggested_shapes(model)
    except MALFORMED:
        return error
    text = str(error).removesuffix(_AGAIN)
    if not suggested:
        return error
    if all(shapes.get(name) == shape for name, shape in suggested.items()):
        return UnsupportedModelError(f"{text}; choose the shapes that the model is used with")
    return UnsupportedModelError(f"{text}; choose other shapes, such as {shape_options(suggested)}")


def with_other_values(error: UnsupportedModelError) -> UnsupportedModelError:
    """The refusal of a model of which the user bound inputs, with the advice to bind others if something contradicts
    these."""
    text = str(error)
    if "contradict" not in text or not text.endswith(_AGAIN):
        return error
    return UnsupportedModelError(f"{text.removesuffix(_AGAIN)}; bind the values that the model is used with")


def _with_shape_values(
    error: UnsupportedModelError, model: ModelProto, settings: Mapping[str, ValueInfoProto], fits: Fits
) -> UnsupportedModelError:
    """The refusal with the advice to bind all inputs that decide shapes if these are not known, or the refused node."""
    editor = GraphEditor(model.graph)
    unknown = [name for node in editor.nodes for name in node.output if name and editor.shape(name) is None]
    operands = {name: operand for name, operand in deciding_operands(model).items() if name in settings}
    if not unknown:
        operands = {name: operand for name, operand in operands.items() if _is_about(error, name, operand[0])}
    if not operands:
        return error
    values = {name: _example(*operand, _count(settings[name]), editor) for name, operand in operands.items()}
    names = ", ".join(_reading(name, node, error) for name, (node, _) in operands.items())
    return UnsupportedModelError(
        f"{error}; {'shapes depend' if unknown else 'that depends'} on the values of input {names}: "
        f"fix them {_fixing(values, settings, fits)}"
    )


def _fixing(values: Mapping[str, Sequence[int]], settings: Mapping[str, ValueInfoProto], fits: Fits) -> str:
    """The options that bind inputs to values with which the model can be prepared, if some are found."""
    fills: tuple[Callable[[int], Sequence[int]], ...] = (lambda count: [1] * count, lambda count: [0] * count, range)
    tries = [values, *({name: fill(len(value)) for name, value in values.items()} for fill in fills)]
    for attempt in tries:
        if fits({name: tuple(map(int, numbers)) for name, numbers in attempt.items()}):
            return f"{_FITTING} {_options(attempt, settings)}, or with other values"
    counts = ", ".join(f"{len(value)} for '{name}'" for name, value in values.items())
    return f"by --bind to the values that the model is used with ({counts})"


def _is_about(error: UnsupportedModelError, name: str, node: NodeProto) -> bool:
    """Whether a refusal is about a node, and does not yet advise to bind an input."""
    return describe_node(node) in str(error) and f"--bind {name}=" not in str(error)


def _reading(name: str, node: NodeProto, error: UnsupportedModelError) -> str:
    """An input that a node reads, with the node if a refusal is not about it."""
    described = describe_node(node)
    return f"'{name}'" if described in str(error) else f"'{name}' through {described}"


def _options(values: Mapping[str, Sequence[int]], settings: Mapping[str, ValueInfoProto]) -> str:
    """The command line's options that bind inputs to values, quoted for a shell."""
    texts = []
    for name, numbers in values.items():
        is_bool = settings[name].type.tensor_type.elem_type == TensorProto.BOOL
        written = ("true" if number else "false" for number in numbers) if is_bool else map(str, numbers)
        texts.append(f"--bind {shlex.quote(name + '=' + ','.join(written))}")
    return " ".join(texts)


def _example(node: NodeProto, operand: int, count: int, editor: GraphEditor) -> list[int]:
    """Values with which most nodes of this kind have a shape with elements."""
    data = editor.shape(node.input[0]) or ()
    if (node.op_type, operand) == ("Reshape", 1):
        return [-1, *[1] * (count - 1)][:count]
    if (node.op_type, operand) == ("Resize", 1):
        return [0] * (count // 2) + [1] * (count - count // 2)
    if (node.op_type, operand) == ("Resize", 3):
        return list(data[:count]) if len(data) >= count else [1] * count
    if (node.op_type, operand) == ("Split", 1) and data:
        whole = data[attributes(node).get("axis", 0)]
        return [whole // count] * (count - 1) + [whole - whole // count * (count - 1)]
    if (node.op_type, operand) == ("Squeeze", 1) and data.count(1) >= count:
        return [axis for axis, size in enumerate(data) if size == 1][:count]
    if (node.op_type, operand) in _AXES:
        return list(range(count))
    return [0 if (node.op_type, operand) in _ZEROS else 1] * count


_AXES = frozenset(
    {
        *(("Slice", 3), ("Pad", 3), ("Squeeze", 1), ("Unsqueeze", 1), ("CumSum", 1)),
        *((reduction, 1) for reduction in REDUCTIONS),
    }
)
_ZEROS = frozenset({("Dropout", 1), ("Dropout", 2), ("Slice", 1), ("Pad", 1), ("Range", 0)})


def _is_setting(value: ValueInfoProto, editor: GraphEditor) -> bool:
    shape = static_shape(value.type)
    return shape is not None and math.prod(shape) <= _MOST_ELEMENTS and not editor.is_constant(value.name)


def _count_inputs(editor: GraphEditor) -> int:
    return sum(not editor.is_constant(value.name) for value in editor.graph.input)


def _count(value: ValueInfoProto) -> int:
    return math.prod(static_shape(value.type) or ())


def _sources(name: str, editor: GraphEditor) -> set[str]:
    """The values without a producer on which a value depends."""
    pending, seen, sources = [name], {name}, set()
    while pending:
        current = pending.pop()
        node = editor.producer(current)
        if node is None:
            sources.add(current)
            continue
        fresh = [operand for operand in names_read(node) if operand not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return sources
