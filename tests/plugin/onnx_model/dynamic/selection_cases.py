"""Models whose outputs have shapes that depend on data, each with several inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, Value, ints, model, node

BOOL, INT32 = TensorProto.BOOL, TensorProto.INT32
_RANDOM = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A model, and the inputs to run it on."""

    model: ModelProto
    feeds: Sequence[dict[str, Array]]


def _normal(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _sparse(*shape: int) -> Array:
    return np.where(_RANDOM.random(shape) < 0.6, np.float32(0), _normal(*shape))


def _non_zero() -> Case:
    nodes = [node("NonZero", ["x"], ["y"])]
    feeds = [{"x": _sparse(3, 4, 2)}, {"x": np.zeros((3, 4, 2), np.float32)}, {"x": np.ones((3, 4, 2), np.float32)}]
    return Case(model(nodes, [("x", (3, 4, 2), FLOAT)], [("y", (3, "n"), INT64)]), feeds)


def _mask() -> Case:
    """Elements chosen by a mask, as PyTorch exports it."""
    nodes = [
        node("Greater", ["x", "least"], ["mask"]),
        node("NonZero", ["mask"], ["columns"]),
        node("Transpose", ["columns"], ["places"]),
        node("GatherND", ["x", "places"], ["y"]),
    ]
    built = model(nodes, [("x", (5, 7), FLOAT)], [("y", ("n",), FLOAT)], {"least": np.array(0.3, np.float32)})
    return Case(built, [{"x": _normal(5, 7)}, {"x": -np.ones((5, 7), np.float32)}])


def _compress(axis: int | None) -> Callable[[], Case]:
    def made() -> Case:
        options = {} if axis is None else {"axis": axis}
        inputs: list[Value] = [("x", (3, 4), FLOAT), ("chosen", (3,), BOOL)]
        masks = [_RANDOM.random(3) > 0.5, np.zeros(3, np.bool_), np.ones(3, np.bool_)]
        feeds = [{"x": _normal(3, 4), "chosen": mask} for mask in masks]
        return Case(model([node("Compress", ["x", "chosen"], ["y"], **options)], inputs, ["y"]), feeds)

    return made


def _top_k() -> Case:
    inputs: list[Value] = [("x", (3, 6), FLOAT), ("k", (1,), INT64)]
    outputs: list[Value] = [("values", (3, "k"), FLOAT), ("indices", (3, "k"), INT64)]
    built = model([node("TopK", ["x", "k"], ["values", "indices"])], inputs, outputs)
    return Case(built, [{"x": np.floor(_normal(3, 6)), "k": ints(k)} for k in (0, 1, 3, 6)])


def _best_of_mask() -> Case:
    """At most four of what a mask chooses, as detectors limit what goes into the suppression of boxes."""
    nodes = [
        node("NonZero", ["mask"], ["columns"]),
        node("Squeeze", ["columns", "zero"], ["chosen"]),
        node("Gather", ["scores", "chosen"], ["kept"], name="keep"),
        node("Shape", ["kept"], ["number"]),
        node("Min", ["number", "limit"], ["k"]),
        node("TopK", ["kept", "k"], ["values", "order"]),
        node("Gather", ["chosen", "order"], ["best"], name="best"),
    ]
    inputs: list[Value] = [("scores", (9,), FLOAT), ("mask", (9,), BOOL)]
    built = model(nodes, inputs, ["values", ("best", None, INT64)], {"zero": ints(0), "limit": ints(4)})
    return Case(built, [{"scores": _normal(9), "mask": _RANDOM.random(9) > share} for share in (0.2, 0.8, 1.0)])


def _unique(values: Callable[[], Array], **options: int) -> Callable[[], Case]:
    def made() -> Case:
        arrays = [values() for _ in range(3)]
        element = FLOAT if arrays[0].dtype == np.float32 else INT64
        outputs: list[Value] = [("y", None, element), *((name, None, INT64) for name in ("first", "inverse", "counts"))]
        built = model(
            [node("Unique", ["x"], [name for name, _, _ in outputs], **options)],
            [("x", arrays[0].shape, element)],
            outputs,
        )
        return Case(built, [{"x": array} for array in arrays])

    return made


def _slice() -> Case:
    inputs: list[Value] = [("x", (8, 3), FLOAT), ("begin", (1,), INT64), ("end", (1,), INT64)]
    built = model([node("Slice", ["x", "begin", "end", "axis"], ["y"])], inputs, ["y"], {"axis": ints(0)})
    bounds = [(0, 8), (2, 5), (-3, 100), (5, 2), (0, -1), (-100, 3)]
    return Case(built, [{"x": _normal(8, 3), "begin": ints(begin), "end": ints(end)} for begin, end in bounds])


def _slices_alike() -> Case:
    """Parts of several values between the same bounds, which have one size."""
    inputs: list[Value] = [("x", (8, 3), FLOAT), ("z", (8, 1), FLOAT), ("begin", (1,), INT64), ("end", (1,), INT64)]
    nodes = [node("Slice", [name, "begin", "end", "axis"], [f"{name}s"], name=f"part_of_{name}") for name in "xz"]
    nodes += [node("Slice", ["z", "begin", "end"], ["zt"], name="again"), node("Add", ["xs", "zs"], ["sum"])]
    built = model([*nodes, node("Mul", ["sum", "zt"], ["y"])], inputs, ["y"], {"axis": ints(0)})
    bounds = [(0, 8), (2, 5), (-3, 100), (5, 2)]
    feeds = ({"x": _normal(8, 3), "z": _normal(8, 1), "begin": ints(begin), "end": ints(end)} for begin, end in bounds)
    return Case(built, [*feeds])


def _suppressed(tail: Sequence[object], outputs: Sequence[str | Value], constants: dict[str, Array]) -> Case:
    """What is computed from the boxes that a suppression selects: two of each of three classes at most."""
    settings = {"most": ints(2), "overlap": np.array([0.5], np.float32), "least": np.array([0.4], np.float32)}
    nodes = [node("NonMaxSuppression", ["boxes", "scores", *settings], ["selected"]), *tail]
    inputs: list[Value] = [("boxes", (1, 12, 4), FLOAT), ("scores", (1, 3, 12), FLOAT)]
    built = model(nodes, inputs, outputs, {**settings, **constants})  # type: ignore[arg-type]
    ranges = [(0.0, 1.0), (0.0, 0.6), (0.9, 1.0), (0.0, 0.5)]
    feeds = [
        {
            "boxes": _RANDOM.uniform(0, 1, (1, 12, 4)).astype(np.float32),
            "scores": _RANDOM.uniform(low, high, (1, 3, 12)).astype(np.float32),
        }
        for low, high in ranges
    ]
    return Case(built, feeds)


def _rows() -> Case:
    """Boxes, scores and classes as the columns of a matrix, and their number."""
    tail = [
        node("Gather", ["selected", "two"], ["column"], name="column", axis=1),
        node("Squeeze", ["column", "one"], ["places"], name="places"),
        node("Gather", ["boxes", "places"], ["found"], name="found", axis=1),
        node("Squeeze", ["found", "zero"], ["corners"], name="corners"),
        node("GatherND", ["scores", "selected"], ["best"]),
        node("Unsqueeze", ["best", "one"], ["best_column"]),
        node("Slice", ["selected", "one", "two", "one"], ["kind"]),
        node("Cast", ["kind"], ["kind_column"], to=FLOAT),
        node("Concat", ["corners", "best_column", "kind_column"], ["rows"], axis=1),
        node("Shape", ["rows"], ["shape"]),
        node("Gather", ["shape", "first"], ["number"], name="number"),
    ]
    constants = {"zero": ints(0), "one": ints(1), "two": ints(2), "first": np.array(0)}
    return _suppressed(tail, [("rows", ("n", 6), FLOAT), ("number", (), INT64)], constants)


def _shapes() -> Case:
    """Shapes that are computed from the number of boxes."""
    tail = [
        node("Gather", ["selected", "second"], ["places"], name="places", axis=1),
        node("Gather", ["boxes", "places"], ["found"], name="found", axis=1),
        node("Reshape", ["found", "rows"], ["corners"], name="corners"),
        node("Shape", ["corners"], ["shape"]),
        node("Gather", ["shape", "zero"], ["number"], name="number"),
        node("Concat", ["number", "pair"], ["target"], name="target", axis=0),
        node("Reshape", ["corners", "target"], ["pairs"], name="pairs"),
        node("ConstantOfShape", ["number"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("Concat", ["number", "two"], ["wide"], name="wide", axis=0),
        node("Expand", ["row", "wide"], ["spread"]),
        node("Squeeze", ["number", "zero"], ["end"], name="end"),
        node("Range", ["start", "end", "step"], ["numbers"]),
        node("Flatten", ["pairs"], ["flat"]),
    ]
    constants = {
        "second": np.array(2),
        "rows": ints(-1, 4),
        "zero": ints(0),
        "two": ints(2),
        "pair": ints(2, 2),
        "row": _normal(1, 2),
        "start": np.array(0),
        "step": np.array(1),
    }
    outputs: list[str | Value] = ["pairs", "ones", "spread", ("numbers", None, INT64), "flat"]
    return _suppressed(tail, outputs, constants)


def _computed_sizes() -> Case:
    """Sizes that follow from others by arithmetic on vectors of one element."""
    nodes = [
        node("NonZero", ["x"], ["columns"]),
        node("Shape", ["columns"], ["shape"]),
        node("Gather", ["shape", "last"], ["number"], name="number"),
        node("Mul", ["number", "two"], ["double"], name="double"),
        node("ConstantOfShape", ["double"], ["zeros"]),
        node("Add", ["number", "two"], ["more"], name="more"),
        node("Squeeze", ["more", "axis"], ["end"], name="end"),
        node("Range", ["start", "end", "step"], ["numbers"]),
        node("Cast", ["number"], ["narrow"], name="narrow", to=INT32),
        node("Min", ["narrow", "three"], ["few"], name="few"),
        node("Cast", ["few"], ["wide"], name="widened", to=INT64),
        node("Expand", ["row", "wide"], ["spread"]),
    ]
    constants = {
        "last": ints(1),
        "two": ints(2),
        "axis": ints(0),
        "three": np.array([3], np.int32),
        "start": np.array(0),
        "step": np.array(1),
        "row": _normal(1),
    }
    built = model(nodes, [("x", (7,), FLOAT)], ["zeros", ("numbers", None, INT64), "spread"], constants)
    return Case(built, [{"x": np.array([1, 0, 1, 1, 1, 0, 1], np.float32)}, {"x": np.eye(7, dtype=np.float32)[2]}])


def _coordinates_from_the_end() -> Case:
    """Coordinates that count from the end of what is valid are known only when the model runs."""
    nodes = [
        node("NonZero", ["x"], ["columns"]),
        node("Transpose", ["columns"], ["rows"]),
        node("GatherND", ["rows", "places"], ["y"]),
    ]
    inputs: list[Value] = [("x", (6,), FLOAT), ("places", (3, 2), INT64)]
    places = np.array([[-1, -1], [0, 0], [-2, 0]])
    built = model(nodes, inputs, [("y", None, INT64)])
    masks = ([1, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1])
    return Case(built, [{"x": np.array(mask, np.float32), "places": places} for mask in masks])


def _parts() -> Case:
    """Parts of what is selected, several of them joined, and computations over all of it."""
    tail = [
        node("Gather", ["selected", "second"], ["places"], name="places", axis=1),
        node("Slice", ["places", "zero", "three"], ["front"], name="front"),
        node("Slice", ["places", "from_end", "end"], ["back"], name="back"),
        node("Concat", ["places", "front", "three", "back"], ["joined"], axis=0),
        node("Cast", ["joined"], ["numbers"], to=FLOAT),
        node("ReduceSum", ["numbers", "zero"], ["total"], keepdims=0),
        node("ReduceMax", ["numbers"], ["largest"], axes=[0]),
        node("ReduceMin", ["numbers"], ["smallest"], axes=[0]),
        node("ReduceMean", ["numbers"], ["mean"], axes=[0]),
        node("ArgMax", ["joined"], ["where"], axis=0),
        node("Gather", ["joined", "last"], ["latest"], name="latest"),
    ]
    constants = {
        "second": np.array(2),
        "zero": ints(0),
        "three": ints(3),
        "from_end": ints(-2),
        "end": ints(2**62),
        "last": ints(-1),
    }
    integers: list[str | Value] = [(name, None, INT64) for name in ("joined", "where", "latest")]
    return _suppressed(tail, ["total", "largest", "smallest", "mean", *integers], constants)


def _quotients(kind: str) -> Callable[[], Case]:
    """Quotients by what is not 0; behind what is valid there may be zeros, at which processors stop."""

    def made() -> Case:
        nodes = [
            node("Cast", ["x"], ["wanted"], to=BOOL),
            node("Compress", ["x", "wanted"], ["divisors"], axis=0),
            node(kind, ["hundred", "divisors"], ["y"]),
        ]
        feeds = [{"x": np.array(each, np.int64)} for each in ([0, 5, 0, 7, 10, 0, 1, 3, 0], [0] * 9, [3] * 9)]
        outputs: list[str | Value] = [("y", ("n",), INT64)]
        return Case(model(nodes, [("x", (9,), INT64)], outputs, {"hundred": ints(100)}), feeds)

    return made


def _sizes_in_a_row() -> Case:
    """Sizes that are gathered and joined along the axes of matrices."""
    nodes = [
        node("NonZero", ["x"], ["columns"]),
        node("Transpose", ["columns"], ["v"]),
        node("Shape", ["v"], ["size"]),
        node("Reshape", ["size", "one_row"], ["row"], name="to_row"),
        node("Gather", ["row", "zero"], ["taken"], axis=0),
        node("Reshape", ["v", "taken"], ["y"], name="to_taken"),
        node("Concat", ["row", "row"], ["rows"], axis=0),
        node("Gather", ["rows", "zero"], ["first"], axis=1, name="firsts"),
        node("Gather", ["first", "zero"], ["n"], name="last"),
        node("Range", ["zero", "n", "step"], ["z"]),
    ]
    outputs: list[str | Value] = [("y", ("n", 3), INT64), ("z", ("n",), INT64)]
    constants = {"one_row": ints(1, 2), "zero": np.array(0), "step": np.array(1)}
    return Case(model(nodes, [("x", (2, 3, 4), FLOAT)], outputs, constants), [{"x": _sparse(2, 3, 4)}])


def _halves(*shape: int) -> Callable[[], Array]:
    return lambda: np.floor(_normal(*shape) * 2) / 2


CASES: dict[str, Callable[[], Case]] = {
    "non_zero": _non_zero,
    "mask": _mask,
    "compress_elements": _compress(None),
    "compress_rows": _compress(0),
    "compress_columns": _compress(-1),
    "top_k": _top_k,
    "best_of_mask": _best_of_mask,
    "unique": _unique(_halves(12)),
    "unique_in_order": _unique(_halves(3, 4), sorted=0),
    "unique_rows": _unique(lambda: np.floor(_normal(6, 2)), axis=0),
    "unique_columns": _unique(lambda: np.floor(_normal(2, 5, 3) * 0.6), axis=1),
    "unique_integers": _unique(lambda: _RANDOM.integers(0, 5, (3, 4))),
    "slice": _slice,
    "slices_alike": _slices_alike,
    "rows": _rows,
    "shapes": _shapes,
    "parts": _parts,
    "computed_sizes": _computed_sizes,
    "quotients": _quotients("Div"),
    "remainders": _quotients("Mod"),
    "sizes_in_a_row": _sizes_in_a_row,
    "coordinates_from_the_end": _coordinates_from_the_end,
}
"""Models by name."""
