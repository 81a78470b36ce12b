"""NonMaxSuppression selects what ONNX Runtime selects, in its order."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from sartor import backend
from sartor.onnx_model.dynamic import suppression
from sartor.reference.trusted.reference_model import ReferenceModel
from tests.plugin.onnx_model.builders import FLOAT, INT64, Array, ints, model, node, run
from tests.plugin.onnx_model.conftest import Prepare

Sizes = tuple[int, int, int]


def _model(
    sizes: Sizes, most: int, overlap: float, least: float | None, *, centred: bool = False, opset: int = 17
) -> ModelProto:
    """A suppression for so many batches, classes and boxes."""
    batches, classes, boxes = sizes
    constants: dict[str, Array] = {"most": ints(most), "overlap": np.array([overlap], np.float32)}
    if least is not None:
        constants["least"] = np.array([least], np.float32)
    nodes = [node("NonMaxSuppression", ["boxes", "scores", *constants], ["selected"], center_point_box=int(centred))]
    inputs = [("boxes", (batches, boxes, 4), FLOAT), ("scores", (batches, classes, boxes), FLOAT)]
    return model(nodes, inputs, [("selected", ("n", 3), INT64)], constants, opset)


def _feeds(sizes: Sizes, seed: int, levels: int = 0) -> dict[str, Array]:
    """Boxes that overlap; with ``levels`` so many different scores, and so ties."""
    batches, classes, boxes = sizes
    random = np.random.default_rng(seed)
    scores = random.uniform(0, 1, (batches, classes, boxes))
    corners = random.uniform(0, 1, (batches, boxes, 4))
    rounded = np.floor(scores * levels) / levels if levels else scores
    return {"boxes": corners.astype(np.float32), "scores": rounded.astype(np.float32)}


def _selected(built: ModelProto, feeds: dict[str, Array]) -> Array:
    return ReferenceModel(built.SerializeToString(), threads=1)(feeds)[0]


@pytest.mark.parametrize(
    ("sizes", "most", "overlap", "least", "levels"),
    [
        ((1, 1, 6), 3, 0.5, 0.1, 0),
        ((2, 3, 40), 8, 0.3, 0.5, 0),
        ((2, 3, 40), 100, 0.3, None, 8),
        ((3, 1, 40), 7, 1.0, 0.25, 4),
        ((1, 4, 30), 10, 0.0, 0.97, 0),
        ((1, 2, 20), 5, 0.5, 2.0, 0),
    ],
)
@pytest.mark.parametrize("centred", [False, True])
def test_it_selects_the_same(
    prepare_quickly: Prepare,
    sizes: Sizes,
    most: int,
    overlap: float,
    least: float | None,
    levels: int,
    centred: bool,
) -> None:
    built = _model(sizes, most, overlap, least, centred=centred, opset=20 if centred else 17)
    prepared = prepare_quickly(built).model
    for seed in range(3):
        feeds = _feeds(sizes, seed, levels)
        np.testing.assert_array_equal(_selected(prepared, feeds), run(built, feeds)["selected"])


@pytest.mark.parametrize(
    ("opset", "sizes"), [(13, (2, 3, 12)), (18, (2, 3, 12)), (21, (1, 2, 9)), (18, (1, 1, 1)), (18, (1, 1, 9))]
)
def test_iree_selects_the_same(opset: int, sizes: Sizes) -> None:
    built = _model(sizes, 4, 0.3, 0.1, centred=True, opset=opset)
    feeds = _feeds(sizes, 0)
    (found,) = backend.prepare(built).run([*feeds.values()])
    np.testing.assert_array_equal(found, run(built, feeds)["selected"])


def test_boxes_without_area_suppress_nothing(prepare_quickly: Prepare) -> None:
    built = _model((1, 1, 4), 4, 0.0, None)
    flat = np.array([[[0, 0, 1, 1], [0, 0, 0, 1], [0.5, 0.5, 0.5, 0.5], [1, 0, 2, 1]]], np.float32)
    feeds = {"boxes": flat, "scores": np.array([[[0.9, 0.8, 0.7, 0.6]]], np.float32)}
    found = _selected(prepare_quickly(built).model, feeds)
    np.testing.assert_array_equal(found, run(built, feeds)["selected"])
    assert len(found) == 4


def test_no_more_than_are_asked_for(prepare_quickly: Prepare) -> None:
    assert prepare_quickly(_model((1, 2, 20), 3, 0.5, None)).outputs[0].shape == (6, 3)
    assert prepare_quickly(_model((1, 2, 20), 1000, 0.5, None)).outputs[0].shape == (40, 3)
    # By default no box is selected, and the shape does not depend on data.
    assert [output.shape for output in prepare_quickly(_model((1, 2, 20), 0, 0.5, None)).outputs] == [(0, 3)]


def test_a_loop_of_one_body_whatever_the_limit_is(prepare_quickly: Prepare) -> None:
    few, many = (prepare_quickly(_model((1, 2, 200), most, 0.5, 0.1)).model for most in (10, 200))
    assert len(few.graph.node) == len(many.graph.node) < 60
    (loop,) = (each for each in many.graph.node if each.op_type == "Loop")
    assert loop.name == "nonmaxsuppression/Loop"


def test_another_threshold_is_seen(prepare_quickly: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: every box without any overlap counts as suppressed."""
    monkeypatch.setattr(suppression._Body, "_threshold", lambda self: self._scalar(-1.0))
    built, feeds = _model((2, 3, 40), 8, 0.3, 0.5), _feeds((2, 3, 40), 0)
    prepared = prepare_quickly(built).model
    assert not np.array_equal(_selected(prepared, feeds), run(built, feeds)["selected"])
