"""Elementwise operators, of one value and of several values that are broadcast to each other."""

from __future__ import annotations

from tools.fuzz.graph import Graph, UnfitError, Value

_EXACT = ("Relu", "Neg", "Abs", "Identity")
_ROUNDING = (
    *("Sigmoid", "Tanh", "Erf", "LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "Softplus", "Softsign"),
    *("Mish", "Sin", "Cos", "Atan"),
)
# The opset that introduced Gelu.
_GELU = 20
_JUMPING = ("Floor", "Ceil", "Round", "Sign")
_COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")


def activation(graph: Graph) -> None:
    """Add a function that is defined for all numbers."""
    kinds = [*_EXACT, *_ROUNDING, *(("Gelu",) if graph.opset >= _GELU else ())]
    kind, value = graph.one_of(kinds), graph.pick()
    attributes = {"approximate": graph.one_of(("none", "tanh"))} if kind == "Gelu" else {}
    graph.op(kind, value, exact=kind in _EXACT, like=value, **attributes)


def guarded(graph: Graph) -> None:
    """Add a function with a limited domain; the operand is first mapped into that domain."""
    value = graph.pick()
    kind = graph.one_of(("Sqrt", "Log", "Reciprocal", "Exp", "Pow"))
    if kind == "Exp":
        bounds = (graph.weight(low=-3.0, scale=0.0), graph.weight(low=3.0, scale=0.0))
        graph.op("Exp", graph.op("Clip", value, *bounds, exact=True))
        return
    positive = graph.op("Add", graph.op("Abs", value), graph.weight(low=0.5, scale=0.0))
    if kind == "Pow":
        power = graph.one_of((0.5, 2.0, 3.0, -1.0, 1.5))
        graph.op("Pow", positive, graph.weight(low=power, scale=0.0))
    else:
        graph.op(kind, positive)


def clip(graph: Graph) -> None:
    """Add a Clip with a lower bound, an upper bound or both."""
    low = graph.weight(low=-0.75, scale=0.0) if graph.chance(0.7) else None
    high = graph.weight(low=0.5, scale=1.0) if low is None or graph.chance(0.7) else None
    graph.op("Clip", graph.pick(), *([low, high] if high else [low]), exact=True)


def parametric(graph: Graph) -> None:
    """Add a PRelu with one slope for each channel."""
    value = graph.pick(2, 3, 4)
    shape = (value.shape[1], *[1] * (value.rank - 2))
    graph.op("PRelu", value, graph.weight(*(shape if value.rank > 2 else shape[:1])))


def broadcast(graph: Graph, value: Value) -> tuple[int, ...]:
    """Return a random shape that broadcasts with the value's shape, in either direction."""
    shape = [1 if graph.chance(0.3) else each for each in value.shape]
    while shape and graph.chance(0.25):
        shape = shape[1:]
    if value.rank < 4 and graph.chance(0.1):
        shape = [graph.one_of((1, 2, 3)), *([1] * (value.rank - len(shape))), *shape]
    return tuple(shape)


def _partner(graph: Graph, value: Value) -> Value:
    """Return a weight, a new input or another value that broadcasts with this value."""
    if graph.chance(0.35):
        return graph.weight(*broadcast(graph, value))
    if graph.chance(0.15):
        return graph.input(broadcast(graph, value), value.dtype)
    for _ in range(4):
        other = graph.pick(dtypes=[value.dtype])
        if _broadcast_to_each_other(value, other):
            return other
    raise UnfitError


def _broadcast_to_each_other(one: Value, other: Value) -> bool:
    pairs = zip(reversed(one.shape), reversed(other.shape), strict=False)
    return all(first == second or 1 in (first, second) for first, second in pairs)


def binary(graph: Graph) -> None:
    """Add a function of two values."""
    value = graph.pick()
    other = _partner(graph, value)
    kind = graph.one_of(("Add", "Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Pow"))
    if kind == "Div":
        other = graph.op("Add", graph.op("Abs", other), graph.weight(low=0.5, scale=0.0))
    elif kind == "Pow":
        other = graph.weight(low=2.0, scale=0.0)
    operands = (value, other) if kind in ("Div", "Pow") or graph.chance(0.6) else (other, value)
    graph.op(kind, *operands, exact=kind in ("Max", "Min"))


def variadic(graph: Graph) -> None:
    """Add a function of one to four values."""
    value = graph.pick()
    others = [_partner(graph, value) for _ in range(graph.integer(0, 3))]
    kind = graph.one_of(("Sum", "Mean", "Max", "Min"))
    graph.op(kind, value, *others, exact=kind in ("Max", "Min") or not others)


def jumping(graph: Graph) -> None:
    """Add a discontinuous function of an exact value."""
    graph.smooth = False
    graph.op(graph.one_of(_JUMPING), graph.pick(exact=True), exact=True)


def comparison(graph: Graph) -> None:
    """Add a comparison of two values and, in most cases, a Where that it selects by."""
    graph.smooth = False
    value = graph.pick(exact=True)
    other = graph.weight(*broadcast(graph, value))
    condition = graph.op(graph.one_of(_COMPARISONS), value, other, exact=True)
    if graph.chance(0.3):
        condition = graph.op("Not", condition)
    if graph.chance(0.7):
        graph.op("Where", condition, value, graph.weight(*broadcast(graph, value)), exact=True)


def masked(graph: Graph) -> None:
    """Add a Where that selects between a value and a constant by a mask from an input."""
    value = graph.pick()
    mask = graph.input(broadcast(graph, value), "bool")
    if graph.chance(0.3):
        other = graph.input(broadcast(graph, value), "bool")
        mask = graph.op(graph.one_of(("And", "Or", "Xor")), mask, other)
    filler = graph.weight(low=graph.one_of((0.0, -1.0, -100.0)), scale=0.0)
    operands = (mask, value, filler) if graph.chance(0.6) else (mask, filler, value)
    graph.op("Where", *operands, exact=True)


def cast(graph: Graph) -> None:
    """Add a Cast of a value to another type and, in most cases, a Cast back."""
    value = graph.pick(exact=True)
    kinds = {"float32": 1, "float16": 10, "int32": 6, "int64": 7, "bool": 9}
    kind = graph.one_of([each for each in kinds if each != value.dtype])
    graph.smooth = False
    changed = graph.op("Cast", value, to=kinds[kind], exact=True)
    if graph.chance(0.8):
        graph.op("Cast", changed, to=kinds[graph.real], exact=True)
