"""A small detector, from an image to boxes, scores and classes, whose number depends on the image."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.plugin.onnx_model.builders import FLOAT, INT64, ints, model, node, weights

IMAGE = (1, 3, 32, 32)
CLASSES = 3
MOST = 4
"""Boxes of a class at most."""

_CELLS = 64


def detector() -> ModelProto:
    """A convolution of 8 by 8 cells, each with a box and scores of three classes, and the best boxes of each class."""
    channels = 4 + CLASSES
    nodes = [
        node("Conv", ["image", "filters", "bias"], ["cells"], name="cells", strides=[4, 4]),
        node("Reshape", ["cells", "flat"], ["rows"], name="flatten_cells"),
        node("Split", ["rows", "parts"], ["offsets", "logits"], axis=1, name="split"),
        node("Sigmoid", ["logits"], ["scores_of"], name="sigmoid"),
        node("Tanh", ["offsets"], ["moved"], name="tanh"),
        node("Mul", ["moved", "reach"], ["near"], name="scale"),
        node("Add", ["near", "anchors"], ["turned"], name="add"),
        node("Transpose", ["turned"], ["boxes_of"], perm=[0, 2, 1], name="turn"),
        node("NonMaxSuppression", ["boxes_of", "scores_of", "most", "overlap", "least"], ["selected"], name="nms"),
        node("Gather", ["selected", "third"], ["box_index"], axis=1, name="pick"),
        node("Squeeze", ["boxes_of", "front"], ["table"], name="table"),
        node("Gather", ["table", "box_index"], ["boxes"], axis=0, name="find"),
        node("GatherND", ["scores_of", "selected"], ["scores"], name="score"),
        node("Slice", ["selected", "one", "two", "one"], ["class_column"], name="column"),
        node("Squeeze", ["class_column", "one"], ["classes"], name="class"),
    ]
    constants = {
        "filters": weights(channels, 3, 4, 4, seed=1),
        "bias": np.repeat(np.array([0.0, -2.0], np.float32), (4, CLASSES)),
        "flat": ints(1, channels, _CELLS),
        "parts": ints(4, CLASSES),
        "reach": np.array(1.5, np.float32),
        "anchors": _anchors(),
        "most": ints(MOST),
        "overlap": np.array([0.4], np.float32),
        "least": np.array([0.5], np.float32),
        "third": np.array(2, np.int64),
        "front": ints(0),
        "one": ints(1),
        "two": ints(2),
    }
    built = model(nodes, [("image", IMAGE, FLOAT)], ["boxes", "scores", "classes"], constants)
    for value, element in zip(built.graph.output, (FLOAT, FLOAT, INT64), strict=True):
        value.type.tensor_type.elem_type = element
    return built


def image(level: float, seed: int = 0) -> np.ndarray:
    """A random image; the higher the level, the more boxes."""
    return (level * np.random.default_rng(seed).standard_normal(IMAGE)).astype(np.float32)


def _anchors() -> np.ndarray:
    """Boxes of 8 by 8 cells: corners by cell, of shape [1, 4, cells]."""
    rows, columns = np.divmod(np.arange(_CELLS), 8)
    corners = np.stack([rows * 4, columns * 4, rows * 4 + 6, columns * 4 + 6])
    return corners[None].astype(np.float32)
