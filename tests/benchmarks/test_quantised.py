"""Networks are quantised as ONNX Runtime's tools do, and rows tell the faster peer."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from benchmarks.quantised.__main__ import _row
from benchmarks.quantised.beside import Run
from benchmarks.quantised.files import quantised_file
from sartor.errors import UsageError
from tests.plugin.onnx_model.builders import model, node

_RANDOM = np.random.default_rng(0)


def _written(path: Path) -> Path:
    weights = {"w": _RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32)}
    made = model([node("Conv", ["x", "w"], ["y"])], [("x", (1, 3, 6, 6), TensorProto.FLOAT)], ["y"], weights)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize(("reduced", "largest"), [(False, 127), (True, 64)])
def test_weights_have_8_or_7_bits(tmp_path: Path, reduced: bool, largest: int) -> None:
    path = quantised_file(str(_written(tmp_path / "network.onnx")), tmp_path, reduced=reduced)
    stored = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    (weight,) = (each for each in stored if each.dtype == np.int8 and each.ndim == 4)
    assert np.abs(weight.astype(int)).max() in (largest, largest - 1)
    assert quantised_file(str(path), tmp_path) == path


def test_nncf_gets_the_samples_and_the_kind_of_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def quantize(given: onnx.ModelProto, samples: list[object], **settings: object) -> onnx.ModelProto:
        asked.append((len(samples), settings))
        return given

    nncf = SimpleNamespace(quantize=quantize, Dataset=list, ModelType=SimpleNamespace(TRANSFORMER="transformer"))
    monkeypatch.setitem(sys.modules, "nncf", nncf)
    written = str(_written(tmp_path / "network.onnx"))
    path = quantised_file(written, tmp_path, by_nncf=True)
    assert (path.name, asked) == ("network.nncf.onnx", [(4, {"subset_size": 4, "model_type": None})])
    assert quantised_file(written, tmp_path, by_nncf=True) == path
    assert len(asked) == 1


def test_without_nncf_the_way_to_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nncf", None)
    with pytest.raises(UsageError, match=r"pip install 'sartor\[peers\]'"):
        quantised_file(str(_written(tmp_path / "network.onnx")), tmp_path, by_nncf=True)


def test_open_dimensions_become_one(tmp_path: Path) -> None:
    weights = {"w": np.ones((4, 2), np.float32)}
    made = model([node("MatMul", ["x", "w"], ["y"])], [("x", ("n", 4), TensorProto.FLOAT)], ["y"], weights)
    onnx.save(made, tmp_path / "network.onnx")
    found = onnx.load(quantised_file(str(tmp_path / "network.onnx"), tmp_path))
    (value,) = found.graph.input
    assert [size.dim_value for size in value.type.tensor_type.shape.dim] == [1, 4]


def test_ratios_are_to_the_faster_peer() -> None:
    runs = {"sartor": Run(2.0, 0.0), "onnxruntime": Run(3.0, 0.25), "openvino": Run(2.5, 0.125)}
    assert _row("network", "host", runs) == "| network | host | 2.00 | 3.00 | 2.50 | 1.25 | 0, 0.25, 0.12 |"
    assert _row("network", "host", {"sartor": Run(2.0, 0.0)}) == "| network | host | 2.00 |  |  |  | 0 |"
