"""Real models through the whole front end; bounds and measurements are in docs/records/accuracy.md."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from sartor.onnx_model.graphs.prepared import PreparedModel
from sartor.onnx_model.preparing.check_prepared import check_prepared
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.reading.load import load_model
from sartor.reference.random_inputs import sample_inputs
from tests.plugin.onnx_model.builders import Array

_FREE: dict[str, dict[str, tuple[int, ...]]] = {
    "basic_pitch_nmp": {"serving_default_input_2:0": (1, 43844, 1)},
    "magika_standard_v3_3": {"bytes": (1, 2048)},
    "micro_kws_m_static_qdq": {"serving_default_input:0": (1, 1960)},
    "ort_gpt2_past": {"input_ids": (1, 1)} | {f"past_{layer}": (2, 1, 2, 1, 2) for layer in range(12)},
    "ppocr_mobile_v2_cls": {"x": (1, 3, 48, 192)},
    "ppocrv3_det": {"x": (1, 3, 320, 320)},
    "st_mobilenet_v2_035_128": {"input_1": (1, 3, 128, 128)},
    "st_ssd_mobilenet_v1_025_256": {"input_1": (1, 3, 256, 256)},
    "yunet_n_dynamic": {"input": (1, 3, 320, 320)},
}
_STATIC = (
    *("deeploy_cct2_32_op20", "espcn_nn_resize_float", "fastestdet", "micro_kws_m_static_fp32"),
    *("micro_kws_m_static_qoperator", "mnist_8", "mobilefacenet", "mp_face_detection_short"),
    *("silero_vad_openvino_16k", "ultraface_rfb_320", "winml_squeezenet_fp16", "yolox_nano"),
)
# Relative to the largest output. Folded batch normalisation rounds every weight once more; float16 results of 30 layers
# are rounded where ONNX Runtime keeps float32; all else is reordered at most.
_TOLERANCE = {"winml_squeezenet_fp16": 8e-3, "ppocrv3_det": 1e-4, "silero_vad_openvino_16k": 2e-5}
_DEFAULT_TOLERANCE = 1e-5
# ONNX Runtime's float32 Sigmoid has this absolute error, whatever its value.
_SIGMOID_ERROR = 2.0**-22


def _run(source: bytes, feeds: dict[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


@functools.cache
def _prepared(path: Path) -> PreparedModel:
    return prepare(load_model(path), _FREE.get(path.stem, {}))


@pytest.mark.parametrize("name", sorted((*_FREE, *_STATIC)))
def test_prepared_model_computes_the_same(name: str, model_folder: Path) -> None:
    path = model_folder / f"{name}.onnx"
    named = {node.name for node in load_model(path).graph.node if node.name}
    prepared = _prepared(path)
    check_prepared(prepared.model)
    feeds = sample_inputs(prepared.model, 0)
    expected, actual = _run(path.read_bytes(), feeds), _run(prepared.model.SerializeToString(), feeds)
    assert [output.name for output in prepared.outputs] == list(expected)
    for output in prepared.outputs:
        reference = expected[output.name].astype(np.float64)
        assert output.shape == reference.shape
        largest = float(np.abs(reference).max())
        difference = float(np.abs(actual[output.name].astype(np.float64) - reference).max())
        assert difference <= _TOLERANCE.get(name, _DEFAULT_TOLERANCE) * largest + _SIGMOID_ERROR, output.name
    kept = sum(node.name in named for node in prepared.model.graph.node)
    assert not named or kept >= 0.5 * min(len(named), len(prepared.model.graph.node))


def test_unsorted_model_of_three_thousand_nodes(model_folder: Path) -> None:
    """The shape arithmetic that exporters write folds away whole."""
    prepared = _prepared(model_folder / "ort_gpt2_past.onnx")
    operators = {node.op_type for node in prepared.model.graph.node}
    assert len(prepared.model.graph.node) < 800
    assert not operators & {"Shape", "ConstantOfShape", "Range", "Constant"}
