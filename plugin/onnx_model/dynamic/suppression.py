"""NonMaxSuppression: greedy selection of boxes, as ONNX Runtime orders them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, TensorProto, ValueInfoProto, helper

from sartor.onnx_model.dynamic.compaction import compacted, coordinates
from sartor.onnx_model.dynamic.steps import Steps
from sartor.onnx_model.graphs.emit import Emitter
from sartor.onnx_model.graphs.graph import attributes, optional_input
from sartor.onnx_model.graphs.names import SUPPRESSION_BODY

_AXES_ARE_INPUTS = 18
_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class _Boxes:
    """Corners of all boxes, of shape [batches, 1, boxes]: the lower and upper ends along two axes."""

    low: tuple[str, str]
    high: tuple[str, str]


def suppress(steps: Steps) -> None:
    """Boxes by batch, class and falling score, without those that overlap a better one of the same class too much.

    Each step of a loop takes the best box that is left of each batch and class, and removes those that it overlaps, so
    that a limited number of boxes takes a limited number of steps (Neubeck and Van Gool 2006, section 2). Of equal
    scores the box with the lower index comes first.
    """
    node = steps.node
    boxes, scores = node.input[0], node.input[1]
    batches, classes, total = steps.shape(scores)
    most = _limit(steps, total)
    if not most or not total or not batches * classes:
        steps("Identity", steps.constant(np.zeros((0, 3), np.int64), "none"), output=node.output[0])
        return
    steps.check_length(batches * classes * most)
    live, corners = _live(steps, scores), _corners(steps, boxes, batches, total)
    picked = _loop(steps, live, corners, (batches, classes, total, most))
    flat = steps.reshaped(picked, batches * classes * most)
    indices, count = compacted(steps, steps("GreaterOrEqual", flat, steps.scalar(0)))
    batch, kind = coordinates(steps, indices, (batches, classes, most))[:2]
    columns = [steps("Unsqueeze", index, steps.integers(1)) for index in (batch, kind, steps("Gather", flat, indices))]
    rows = steps("Concat", *columns, axis=1)
    known = steps("Less", steps.iota(batches * classes * most, 2, 0), count.name)
    steps("Where", known, rows, steps.scalar(0), output=node.output[0])
    steps.set_counted(node.output[0], 0, count)


def _limit(steps: Steps, total: int) -> int:
    """The number of boxes of a class at most."""
    name = optional_input(steps.node, 2)
    if not name:
        return 0
    given = steps.editor.constant(name)
    if given is None:
        raise steps.refusal(f"the number of boxes per class, '{name}', is not known before it runs")
    return max(0, min(int(given.item()), total))


def _live(steps: Steps, scores: str) -> str:
    """The scores, with minus infinity for boxes that are not to be selected."""
    threshold = optional_input(steps.node, 4)
    # A comparison with itself excludes NaN.
    passing = steps("Greater", scores, steps.reshaped(threshold)) if threshold else steps("Equal", scores, scores)
    known = steps.tail.counted.get(scores) or steps.tail.counted.get(steps.node.input[0])
    if known is not None:
        if known.axis != (2 if scores in steps.tail.counted else 1):
            raise steps.refusal("the number of batches or classes depends on data")
        total = steps.shape(scores)[2]
        passing = steps("And", passing, steps("Less", steps.iota(total, 3, 2), known.count.name))
    least = steps("Max", scores, steps.like(_LOWEST, scores, "lowest"))
    return steps("Where", passing, least, steps.like(-np.inf, scores, "removed"))


def _corners(steps: Steps, boxes: str, batches: int, total: int) -> _Boxes:
    columns = [
        steps.reshaped(steps("Gather", boxes, steps.scalar(index), axis=2), batches, 1, total) for index in range(4)
    ]
    if not attributes(steps.node).get("center_point_box", 0):
        pairs = [(columns[0], columns[2]), (columns[1], columns[3])]
        low, high = ([steps(operator, *pair) for pair in pairs] for operator in ("Min", "Max"))
        return _Boxes((low[0], low[1]), (high[0], high[1]))
    half = [steps("Div", column, steps.like(2, column, "two")) for column in columns[2:]]
    low, high = (
        [steps(operator, *pair) for pair in zip(columns[:2], half, strict=True)] for operator in ("Sub", "Add")
    )
    return _Boxes((low[0], low[1]), (high[0], high[1]))


def _loop(steps: Steps, live: str, corners: _Boxes, sizes: tuple[int, int, int, int]) -> str:
    """The indices of the selected boxes of each batch and class in order, -1 behind them."""
    batches, classes, _, most = sizes
    start = steps.constant(np.full((batches, classes, most), -1, np.int64), "none")
    flat = [steps.reshaped(side, -1) for side in (*corners.low, *corners.high)]
    body = _Body(steps, corners, flat, sizes)
    going, trips = steps.constant(np.array(True), "begin"), steps.scalar(most)
    _, picked = steps.many("Loop", trips, going, live, start, outputs=("", ""), body=body.graph())
    return picked


class _Body(Emitter):
    """The body of the loop: its names are unique in the whole model."""

    def __init__(self, steps: Steps, corners: _Boxes, flat: list[str], sizes: tuple[int, int, int, int]) -> None:
        super().__init__(steps.editor, steps.node)
        self._steps, self._corners, self._flat, self._sizes = steps, corners, flat, sizes

    def graph(self) -> GraphProto:
        """One step: from the scores that are left, and the boxes selected so far, to those after it."""
        batches, classes, total, most = self._sizes
        steps = self._steps
        number, going, live, picked = (self.editor.fresh(f"{self.node.name}/{part}") for part in _CARRIED)
        best = self("ArgMax", live, axis=2, keepdims=1, part="best")
        here = self("Equal", steps.iota(total, 3, 2), best, part="here")
        removed = self._scalar(-np.inf)
        top = self._best_score(live, best)
        exceeds = self("Greater", top, removed, part="found")
        chosen = self("Where", exceeds, best, steps.scalar(-1), part="chosen")
        place = self("Equal", steps.iota(most, 3, 2), number, part="place")
        after = self("Where", place, chosen, picked, part="picked")
        gone = self("Or", here, self._overlapping(best), part="gone")
        left = self("Where", gone, removed, live, part="left")
        some = self("ReduceSum", self("Cast", exceeds, part="found", to=TensorProto.INT64), part="some", keepdims=0)
        more = self("Greater", some, steps.scalar(0), part="more")
        scores, places = (batches, classes, total), (batches, classes, most)
        inputs = [
            _value(number, TensorProto.INT64, ()),
            _value(going, TensorProto.BOOL, ()),
            _value(live, TensorProto.FLOAT, scores),
            _value(picked, TensorProto.INT64, places),
        ]
        outputs = [
            _value(more, TensorProto.BOOL, ()),
            _value(left, TensorProto.FLOAT, scores),
            _value(after, TensorProto.INT64, places),
        ]
        return helper.make_graph(self.nodes, SUPPRESSION_BODY, inputs, outputs)

    def _overlapping(self, best: str) -> str:
        """Which boxes overlap the best one by more than the threshold.

        Boxes without area, or that only touch, do not overlap, whatever the threshold is.
        """
        batches, _, total, _ = self._sizes
        first = self.constant(np.arange(batches, dtype=np.int64).reshape(-1, 1, 1) * total, "first")
        index = self("Add", best, first, part="index")
        own = [self("Gather", side, index, part="own") for side in self._flat]
        low = [self("Max", *pair, part="low") for pair in zip(self._corners.low, own[:2], strict=True)]
        high = [self("Min", *pair, part="high") for pair in zip(self._corners.high, own[2:], strict=True)]
        sides = [self("Sub", *pair, part="side") for pair in zip(high, low, strict=True)]
        meet = self("Mul", *sides, part="meet")
        areas = [self._area(self._corners.low, self._corners.high), self._area(tuple(own[:2]), tuple(own[2:]))]
        union = self("Sub", self("Add", areas[1], areas[0], part="sum"), meet, part="union")
        over = self("Greater", self("Div", meet, union, part="ratio"), self._threshold(), part="over")
        for positive in (
            *(self("Greater", *pair, part="wide") for pair in zip(high, low, strict=True)),
            *(self("Greater", area, self._scalar(0), part="area") for area in (meet, *areas, union)),
        ):
            over = self("And", over, positive, part="over")
        return over

    def _area(self, low: tuple[str, ...], high: tuple[str, ...]) -> str:
        return self("Mul", *(self("Sub", *pair, part="side") for pair in zip(high, low, strict=True)), part="area")

    def _threshold(self) -> str:
        name = optional_input(self.node, 3)
        return self("Reshape", name, self._steps.integers(), part="threshold") if name else self._scalar(0)

    def _scalar(self, value: float) -> str:
        return self.shared_constant(np.array(value, np.float32), "number")

    def _best_score(self, live: str, best: str) -> str:
        """The score of the box of the index ``best``.

        Since opset 18 the axes of ReduceMax are an input, and IREE's importer sees no constants from outside of a body.
        """
        if self._steps.tail.version.version < _AXES_ARE_INPUTS:
            return self("ReduceMax", live, part="top", axes=[2])
        total = self._sizes[2]
        # IREE's compiler does not end on a gather from one element.
        return live if total == 1 else self("GatherElements", live, best, axis=2, part="top")


_CARRIED = ("number", "going", "live", "picked")


def _value(name: str, element: int, shape: tuple[int, ...]) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)
