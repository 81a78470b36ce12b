"""Networks of any size in the zoo: valid graphs, which ONNX Runtime runs with several sizes to sane values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnxruntime import InferenceSession

from benchmarks import zoo
from sartor.errors import UsageError

_SIZES = [
    {"batch": 1, "sequence": 1, "height": 32, "width": 32, "length": 100},
    {"batch": 2, "sequence": 7, "height": 96, "width": 64, "length": 163},
]
_OUTPUTS: dict[str, list[tuple[int, ...]]] = {
    "frame_encoder": [(1, 25, 144), (2, 41, 144)],
    "grid_detector": [(1, 21, 5), (2, 126, 5)],
    "line_recogniser": [(8, 1, 97), (16, 1, 97)],
    "masked_encoder": [(1, 384), (2, 384)],
}


@pytest.mark.parametrize("name", zoo.ANY_SIZE)
def test_networks_run_with_sizes_that_callers_choose(name: str) -> None:
    model = zoo.build(name)
    onnx.checker.check_model(model, full_check=True)
    session = InferenceSession(model.SerializeToString())
    for sizes, shape in zip(_SIZES, _OUTPUTS[name], strict=True):
        feeds = {}
        for value in model.graph.input:
            dims = [dim.dim_value or sizes[dim.dim_param] for dim in value.type.tensor_type.shape.dim]
            is_whole = value.type.tensor_type.elem_type == TensorProto.INT64
            feeds[value.name] = np.ones(dims, np.int64) if is_whole else np.ones(dims, np.float32)
        (found,) = session.run(None, feeds)
        assert found.shape == shape
        assert np.isfinite(found).all()
        assert 1e-3 < found.std() < 10


def test_callers_choose_the_batch() -> None:
    name = "grid_detector"
    with pytest.raises(UsageError, match="no batch of 2"):
        zoo.build(name, batch=2)
    assert zoo.build(name, seed=1).SerializeToString() != zoo.build(name).SerializeToString()
