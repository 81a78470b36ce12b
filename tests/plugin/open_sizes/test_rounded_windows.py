"""Windows whose number is rounded up are padded for any size, where that is the same; others need multiples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

from sartor.open_sizes.rounded_windows import RoundedFile, rounded_file
from sartor.open_sizes.same_pads import needed_multiples
from tests.open_models import named, saved
from tests.tiny_models import Builder

_EQUAL: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
    ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("MaxPool", {"kernel_shape": [2, 3], "strides": [1, 3], "auto_pad": "VALID"}),
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "dilations": [2, 1]}),
    ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", {"kernel_shape": [4, 3], "strides": [3, 2], "count_include_pad": 1}),
]
# Their last window may begin behind the input, or divides by padding.
_OTHER: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1] * 4}),
    ("MaxPool", {"kernel_shape": [1, 1], "strides": [2, 2]}),
    ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": 1}),
]


def _written(folder: Path, operator: str, given: dict[str, Any]) -> Path:
    build = Builder()
    build.op(operator, "y", "x", ceil_mode=1, **given)
    model = named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), {"x": [1, 2, "h", "w"], "y": [1, 2, "a", "b"]})
    return saved(model, folder / "model.onnx")


def _rounded(path: Path) -> RoundedFile:
    found = rounded_file(path, path.parent / "rounded")
    assert isinstance(found, RoundedFile)
    return found


@pytest.mark.parametrize(("operator", "given"), _EQUAL)
def test_padding_is_the_same_for_all_sizes(operator: str, given: dict[str, Any], tmp_path: Path) -> None:
    path = _written(tmp_path, operator, given)
    padded = _rounded(path).path
    assert padded == tmp_path / "rounded" / "model.onnx"
    assert needed_multiples(padded, frozenset({"x"})) == {}
    before, behind = (InferenceSession(each, providers=["CPUExecutionProvider"]) for each in (path, padded))
    for height in range(4, 17):
        x = np.random.default_rng(height).standard_normal((1, 2, height, 24 - height)).astype(np.float32)
        one, other = (session.run(None, {"x": x})[0] for session in (before, behind))
        assert one.shape == other.shape
        assert np.allclose(one, other, rtol=1e-6, atol=1e-6), height


@pytest.mark.parametrize(("operator", "given"), _OTHER)
def test_other_windows_need_multiples(operator: str, given: dict[str, Any], tmp_path: Path) -> None:
    path = _written(tmp_path, operator, given)
    assert _rounded(path).path is None
    assert needed_multiples(path, frozenset({"x"})) == {f"node 'y' ({operator})": 2}


def test_files_without_such_windows_are_taken_as_they_are(tmp_path: Path) -> None:
    path = _written(tmp_path, "MaxPool", {"kernel_shape": [3, 3]})
    assert _rounded(path) == RoundedFile(None)
    assert onnx.load(path).graph.node[0].op_type == "MaxPool"
