"""Files that PyTorch's exporter wrote are prepared as they are, and compute what ONNX Runtime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.onnx_model.reading.load import load_model
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import run
from tests.plugin.onnx_model.conftest import Prepare

_FILES = sorted((Path(__file__).parents[2] / "exporter_files").glob("*.onnx"))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_file_is_prepared_right(path: Path, prepare_quickly: Prepare) -> None:
    model = load_model(path)
    feeds = sample_inputs(model, 1)
    actual = run(prepare_quickly(model).model, feeds)
    for name, right in run(model, feeds).items():
        assert actual[name].dtype == right.dtype
        np.testing.assert_allclose(actual[name], right, rtol=1e-5, atol=1e-5 * float(np.abs(right).max()))


def test_the_files_are_there() -> None:
    assert len(_FILES) == 26
