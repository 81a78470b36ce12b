"""``python -m tools.fuzz.open_sequences --networks 60 --sizes 100``: networks for sequences of any length.

Random encoders, recurrences, convolutions in time, reductions, concatenations, gathers and whatever else changes a
length, over any batch and one or two open lengths, run by random plans and are compared with ONNX Runtime: at the least
and the largest sizes, at one and eight, at primes, beside multiples of what tiles have, and at others.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

from sartor.codegen.ir.sizes.dims import Symbol
from tools.fuzz.open_networks import OpenModel, Sizes, run

BATCH, LENGTH, OTHER = Symbol("batch", 1, 8), Symbol("length", 1, 67), Symbol("other", 2, 45)
_OPSET, _WORDS, _HEAD = 18, 23, 8
_TILES, _NEAR = (16, 32, 48, 64), (-1, 0, 1)
_USUAL = (1, 2, 3, 7, 8, 9, 11, 13, 29, 31, 37, 53, 61, 67)

Dim = tuple[int, int]
"""A size where all symbols are the least, and where they are the largest."""


@dataclass(frozen=True)
class Rows:
    """A tensor of rows: batch, length, and a number of features that is known."""

    name: str
    batch: Dim
    length: Dim
    width: int


class _Drawing:
    """Draws a network; ``x`` is what the next step takes, others are what it may be joined with."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 520])
        self.nodes: list[Any] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[Any] = []
        self.outputs: list[str] = []
        self.symbols = [BATCH, LENGTH]
        self._names = (f"t{number}" for number in itertools.count())

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def hold(self, array: Any, kind: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, kind), name))
        return name

    def numbers(self, *numbers: int) -> str:
        return self.hold(numbers, np.int64)

    def normal(self, *shape: int, fan: int = 0) -> str:
        return self.hold(self.random.standard_normal(shape) / math.sqrt(fan or shape[0]))

    def op(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        made = [next(self._names) for _ in range(results)]
        self.nodes.append(helper.make_node(kind, [*inputs], made, name=made[0], **attributes))
        return made[0] if results == 1 else made

    def input(self, name: str, dims: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, [*dims]))
        return name

    def begin(self) -> Rows:
        """The first rows: features, or words with places."""
        width = self.pick(16, 24, 32)
        batch, length = (1, BATCH.most), (1, LENGTH.most)
        if self.chance(0.5):
            return Rows(self.input("x", ["batch", "length", width]), batch, length, width)
        ids = self.input("ids", ["batch", "length"], TensorProto.INT64)
        x = self.op("Gather", self.normal(_WORDS, width, fan=1), ids, axis=0)
        if self.chance(0.6):
            table = self.normal(1, LENGTH.most, width, fan=1)
            till = self.op("Gather", self.op("Shape", ids), self.numbers(1), axis=0)
            x = self.op("Add", x, self.op("Slice", table, self.numbers(0), till, self.numbers(1)))
        return Rows(x, batch, length, width)

    def linear(self, x: Rows, width: int) -> Rows:
        y = self.op("MatMul", x.name, self.normal(x.width, width))
        if self.chance(0.7):
            y = self.op("Add", y, self.normal(width, fan=1))
        return Rows(y, x.batch, x.length, width)

    def along(self, x: Rows, start: int, end: int, step: int) -> str:
        """Each so many-th of the rows from one to another."""
        return str(self.op("Slice", x.name, *map(self.numbers, (start, end, 1, step))))


Step = Callable[[_Drawing, Rows], Rows]


def _counted(x: Rows, count: Callable[[int], int], name: str) -> Rows:
    """Rows of another length."""
    return Rows(name, x.batch, (count(x.length[0]), count(x.length[1])), x.width)


def _product(draw: _Drawing, x: Rows) -> Rows:
    return draw.linear(x, draw.pick(16, 24, 40))


def _activation(draw: _Drawing, x: Rows) -> Rows:
    kind = draw.pick("Relu", "Tanh", "Sigmoid", "Erf", "HardSwish")
    return _counted(x, int, draw.op(kind, x.name))


def _normalised(draw: _Drawing, x: Rows) -> Rows:
    kind = draw.pick("layer", "features", "length")
    if kind == "layer":
        given = draw.normal(x.width, fan=1), draw.normal(x.width, fan=1)
        return _counted(x, int, draw.op("LayerNormalization", x.name, *given, axis=-1))
    axis = draw.pick([1], [0, 1]) if kind == "length" else [2]
    mean = draw.op("ReduceMean", x.name, draw.numbers(*axis))
    return _counted(x, int, draw.op("Sub", x.name, mean))


def _forward(draw: _Drawing, x: Rows) -> Rows:
    y = draw.linear(draw.linear(x, 2 * x.width), x.width)
    return _counted(x, int, draw.op("Add", x.name, y.name))


def _reduced(draw: _Drawing, x: Rows) -> Rows:
    """Rows scaled by what is computed of all of them."""
    kind = draw.pick("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSum")
    if kind in {"ReduceMax", "ReduceMin"}:
        return _counted(x, int, draw.op("Mul", x.name, draw.op(kind, x.name, draw.numbers(1))))
    y = draw.op(kind, x.name, draw.numbers(*draw.pick([1], [1, 2], [0])))
    if kind == "ReduceSum":
        # What is left of a sum of many that cancel is rounding, which nothing should enlarge.
        y = draw.op("Mul", y, draw.hold(1e-2))
    return _counted(x, int, draw.op("Mul", x.name, draw.op("Tanh", y)))


def _softmax(draw: _Drawing, x: Rows) -> Rows:
    return _counted(x, int, draw.op(draw.pick("Softmax", "LogSoftmax"), x.name, axis=draw.pick(1, 2, -1)))


def _running(draw: _Drawing, x: Rows) -> Rows:
    summed = draw.op("CumSum", x.name, draw.hold(1, np.int64), reverse=draw.pick(0, 1), exclusive=draw.pick(0, 1))
    return _counted(x, int, draw.op("Tanh", summed))


def _attended(draw: _Drawing, x: Rows) -> Rows:
    """Attention to rows themselves or to others, with a mask of inputs, a causal one, or none."""
    to, kind = x, draw.pick("plain", "masked", "causal", "others")
    if kind == "others" and draw.chance(0.7):
        to = _others(draw, x)
    heads = draw.pick(1, 2, 3)
    width = heads * _HEAD
    split = draw.numbers(0, 0, heads, _HEAD)
    parts = [
        draw.op("Transpose", draw.op("Reshape", draw.linear(of, width).name, split), perm=perm)
        for of, perm in ((x, [0, 2, 1, 3]), (to, [0, 2, 3, 1]), (to, [0, 2, 1, 3]))
    ]
    scores = draw.op("Mul", draw.op("MatMul", parts[0], parts[1]), draw.hold(_HEAD**-0.5))
    if kind == "masked" and x.length == (LENGTH.least, LENGTH.most):
        scores = draw.op("Add", scores, _hidden(draw))
    if kind == "causal":
        scores = _seen(draw, x, scores)
    mixed = draw.op("MatMul", draw.op("Softmax", scores, axis=-1), parts[2])
    joined = draw.op("Reshape", draw.op("Transpose", mixed, perm=[0, 2, 1, 3]), draw.numbers(0, 0, width))
    return Rows(joined, x.batch, x.length, width)


def _others(draw: _Drawing, x: Rows) -> Rows:
    """Rows of another length, which are an input."""
    if OTHER not in draw.symbols:
        draw.symbols.append(OTHER)
        draw.input("memory", ["batch", "other", 16])
    return Rows("memory", x.batch, (OTHER.least, OTHER.most), 16)


def _hidden(draw: _Drawing) -> str:
    if not any(value.name == "mask" for value in draw.inputs):
        draw.input("mask", ["batch", "length"], TensorProto.INT64)
    real = draw.op("Unsqueeze", draw.op("Cast", "mask", to=TensorProto.FLOAT), draw.numbers(1, 2))
    return str(draw.op("Mul", draw.op("Sub", draw.hold(1), real), draw.hold(-1e4)))


def _seen(draw: _Drawing, x: Rows, scores: str) -> str:
    """Scores with those of later rows hidden, by places that are counted."""
    count = draw.op("Squeeze", draw.op("Gather", draw.op("Shape", x.name), draw.numbers(1), axis=0), draw.numbers(0))
    places = draw.op("Range", draw.hold(0, np.int64), count, draw.hold(1, np.int64))
    later = draw.op(
        "Less", draw.op("Unsqueeze", places, draw.numbers(1)), draw.op("Unsqueeze", places, draw.numbers(0))
    )
    return str(draw.op("Where", later, draw.hold(-1e4), scores))


def _recurrent(draw: _Drawing, x: Rows) -> Rows:
    kind, gates = draw.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    way = draw.pick("forward", "reverse", "bidirectional")
    ways, hidden = 2 if way == "bidirectional" else 1, draw.pick(8, 12, 16)
    given = [draw.normal(ways, gates * hidden, size, fan=size) for size in (x.width, hidden)]
    if draw.chance(0.7):
        given.append(draw.normal(ways, 2 * gates * hidden, fan=4))
    more = {"linear_before_reset": draw.pick(0, 1)} if kind == "GRU" else {}
    steps = draw.op("Transpose", x.name, perm=[1, 0, 2])
    y, last = draw.op(kind, steps, *given, hidden_size=hidden, direction=way, results=2, **more)
    if draw.chance(0.3):
        draw.outputs.append(last)
    y = draw.op("Transpose", y, perm=[2, 0, 1, 3])
    return Rows(draw.op("Reshape", y, draw.numbers(0, 0, ways * hidden)), x.batch, x.length, ways * hidden)


def _convolved(draw: _Drawing, x: Rows) -> Rows:
    """A convolution or pooling along the length."""
    kernel, stride = draw.pick(1, 3, 5), draw.pick(1, 1, 2, 4, 8)
    before, behind = (draw.pick(kernel // 2, kernel - 1) for _ in range(2))
    settings: dict[str, Any] = {"kernel_shape": [kernel], "strides": [stride], "pads": [before, behind]}
    turned, width = draw.op("Transpose", x.name, perm=[0, 2, 1]), x.width
    if draw.chance(0.3):
        settings["pads"] = [kernel // 2, kernel // 2]
        before = behind = kernel // 2
        y = draw.op(draw.pick("MaxPool", "AveragePool"), turned, **settings)
    else:
        groups = draw.pick(1, 1, x.width)
        width = x.width if groups > 1 else draw.pick(16, 24)
        taken = x.width // groups
        y = draw.op("Conv", turned, draw.normal(width, taken, kernel, fan=taken * kernel), group=groups, **settings)
    y = draw.op("Transpose", y, perm=[0, 2, 1])
    made = _counted(x, lambda size: (size + before + behind - kernel) // stride + 1, y)
    return Rows(y, x.batch, made.length, width)


def _strided(draw: _Drawing, x: Rows) -> Rows:
    step = draw.pick(2, 3, 8, -1, -2)
    start, end = (0, 1 << 40) if step > 0 else (-1, -(1 << 40))
    return _counted(x, lambda size: -(-size // abs(step)), draw.along(x, start, end, step))


def _cut(draw: _Drawing, x: Rows) -> Rows:
    """Rows without the first or last ones, which may leave none."""
    count = min(draw.pick(1, 1, 2), x.length[0])
    start, end = draw.pick((count, 1 << 40), (0, -count))
    return _counted(x, lambda size: size - count, draw.along(x, start, end, 1)) if count else x


def _one(draw: _Drawing, x: Rows) -> Rows:
    """A row that is taken from all and joined with them."""
    row = draw.op("Gather", x.name, draw.numbers(draw.pick(0, -1)), axis=1)
    return _counted(x, int, draw.op("Sub", x.name, row))


def _joined(draw: _Drawing, x: Rows) -> Rows:
    """Rows behind others: a learned one, a part of themselves or all of them."""
    kind = draw.pick("learned", "learned", "itself", "reversed", "features")
    if kind == "features":
        name = draw.op("Concat", x.name, draw.op("Tanh", x.name), axis=2)
        return Rows(name, x.batch, x.length, 2 * x.width)
    if kind != "learned":
        other = x.name if kind == "itself" else draw.along(x, -1, -(1 << 40), -1)
        return _counted(x, lambda size: 2 * size, draw.op("Concat", x.name, other, axis=1))
    shape = draw.op(
        "Concat", draw.op("Gather", draw.op("Shape", x.name), draw.numbers(0)), draw.numbers(1, x.width), axis=0
    )
    row = draw.op("Expand", draw.normal(1, 1, x.width, fan=1), shape)
    parts = draw.pick((row, x.name), (x.name, row))
    return _counted(x, lambda size: size + 1, draw.op("Concat", *parts, axis=1))


def _padded(draw: _Drawing, x: Rows) -> Rows:
    before, behind = draw.pick(0, 1, 2), draw.pick(0, 1, 3)
    pads = draw.numbers(0, before, 0, 0, behind, 0)
    kind = draw.pick("constant", "edge")
    return _counted(x, lambda size: size + before + behind, draw.op("Pad", x.name, pads, mode=kind))


def _repeated(draw: _Drawing, x: Rows) -> Rows:
    """Each row twice, one behind the other or all behind all."""
    if draw.chance(0.5):
        return _counted(x, lambda size: 2 * size, draw.op("Tile", x.name, draw.numbers(1, 2, 1)))
    settings: dict[str, Any] = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    image = draw.op("Resize", draw.op("Unsqueeze", x.name, draw.numbers(1)), "", draw.hold([1, 1, 2, 1]), **settings)
    return _counted(x, lambda size: 2 * size, draw.op("Squeeze", image, draw.numbers(1)))


def _folded(draw: _Drawing, x: Rows) -> Rows:
    """Twice as many rows of half of the features."""
    if x.width % 2:
        return x
    name = draw.op("Reshape", x.name, draw.numbers(0, -1, x.width // 2))
    return Rows(name, x.batch, (2 * x.length[0], 2 * x.length[1]), x.width // 2)


def _chosen(draw: _Drawing, x: Rows) -> Rows:
    """Rows where a comparison holds, and others elsewhere."""
    larger = draw.op("Greater", x.name, draw.op("ReduceMean", x.name, draw.numbers(2)))
    return _counted(x, int, draw.op("Mul", x.name, draw.op("Cast", larger, to=TensorProto.FLOAT)))


def _scored(draw: _Drawing, x: Rows) -> Rows:
    """Products of rows with each other, as a mean of them."""
    scores = draw.op("Einsum", x.name, x.name, equation="bsd,btd->bst")
    scores = draw.op("Tanh", draw.op("Mul", scores, draw.hold(1 / x.width)))
    return _counted(x, int, draw.op("Einsum", scores, x.name, equation="bst,btd->bsd"))


_STEPS: dict[Step, int] = {
    _product: 3,
    _activation: 2,
    _normalised: 3,
    _forward: 2,
    _reduced: 3,
    _softmax: 1,
    _running: 1,
    _attended: 4,
    _recurrent: 3,
    _convolved: 4,
    _strided: 2,
    _cut: 2,
    _one: 2,
    _joined: 3,
    _padded: 1,
    _repeated: 2,
    _folded: 1,
    _chosen: 1,
    _scored: 1,
}
# What ONNX says nothing of where there are no rows, or ONNX Runtime ends at.
_NEEDS_ROWS = (_normalised, _reduced, _running, _attended, _recurrent, _convolved, _one, _padded, _folded, _scored)
_MOST_LENGTH = 4 * LENGTH.most


def draw(seed: int) -> OpenModel:
    """The network of a seed, for rows of any batch and length."""
    drawing = _Drawing(seed)
    x = drawing.begin()
    steps = [step for step, weight in _STEPS.items() for _ in range(weight)]
    for _ in range(int(drawing.random.integers(3, 8))):
        step = drawing.pick(*steps)
        if x.length[0] or step not in _NEEDS_ROWS:
            x = step(drawing, x)
        if x.length[1] > _MOST_LENGTH:
            break
    result = x.name
    match drawing.pick("rows", "rows", "mean", "last"):
        case "mean" if x.length[0]:
            result = drawing.op("ReduceMean", result, drawing.numbers(1), keepdims=0)
        case "last" if x.length[0]:
            result = drawing.op("Gather", result, drawing.hold(-1, np.int64), axis=1)
    drawing.nodes.append(helper.make_node("Identity", [result], ["y"], name="y"))
    read = {name for node in drawing.nodes for name in node.input}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", *drawing.outputs)]
    inputs = [value for value in drawing.inputs if value.name in read]
    graph = helper.make_graph(drawing.nodes, f"sequences{seed}", inputs, outputs, drawing.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    return OpenModel(model, tuple(drawing.symbols), {"ids": _WORDS})


def sizes_of(symbols: Sequence[Symbol], random: Generator, count: int) -> list[Sizes]:
    """Sizes to try: the least and the largest, one and eight, primes, a tile's and beside them, and others."""
    usual = [*_USUAL, *(tile + near for tile, near in itertools.product(_TILES, _NEAR))]
    least, most = ([getattr(symbol, end) for symbol in symbols] for end in ("least", "most"))
    listed: list[Sizes] = [tuple(least), tuple(most), tuple(sorted(least[:1]) + most[1:]), tuple(most[:1] + least[1:])]
    while len(listed) < count:
        drawn = (
            int(random.choice(usual)) if random.random() < 0.7 else int(random.integers(1, LENGTH.most + 1))
            for _ in symbols
        )
        batch, *lengths = (
            min(max(size, symbol.least), symbol.most) for size, symbol in zip(drawn, symbols, strict=True)
        )
        listed.append((int(random.choice([1, 1, 2, 3, 7, batch])), *lengths))
    return listed[:count]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check networks; returns 1 if one is wrong."""
    return run(draw, sizes_of, "tools.fuzz.open_sequences", str(__doc__), arguments)


if __name__ == "__main__":
    sys.exit(main())
