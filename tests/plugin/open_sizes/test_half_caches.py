"""Caches of half precision are kept in float32, in which CPUs compute such models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from sartor.onnx_model.graphs.halves import widened_eps
from sartor.open_sizes.caches import Cutting, cut_file
from sartor.policies import StatePolicy
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.cache_models import Decoder, halved

PAST = 5
DECODER = Decoder(layers=1, has_mask=True)
CACHES = ("past_key_values.0.key", "past_key_values.0.value")


def test_no_call_converts_a_cache(tmp_path: Path) -> None:
    source = tmp_path / "decoder.onnx"
    onnx.save(halved(DECODER.model()), source)
    (tmp_path / "cut").mkdir()
    cutting = cut_file(source, StatePolicy(finds=True), {}, tmp_path / "cut")
    assert isinstance(cutting, Cutting)
    assert cutting.file is not None
    assert {cutting.file.cut.dtypes[name] for name in CACHES} == {"float16"}
    cut = onnx.load(cutting.file.path)
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*cut.graph.input, *cut.graph.output)}
    assert {kinds[name] for name in (*CACHES, "present.0.key")} == {TensorProto.FLOAT}
    assert kinds["logits"] == TensorProto.FLOAT16, "callers get what the model declares"
    assert not [node.name for node in cut.graph.node if node.op_type == "Cast" and node.input[0] in CACHES]
    assert widened_eps(cut) == 2.0**-10, "results may be as far off as the model's own type"
    random = np.random.default_rng(0)
    past: dict[str, Array] = {name: random.standard_normal((1, 2, PAST, 8)).astype(np.float16) for name in CACHES}
    given: dict[str, Array] = {
        "input_ids": np.array([[3]]),
        "position_ids": np.array([[PAST]]),
        "attention_mask": np.ones((1, PAST + 1), np.int64),
    }
    reference = OnnxRuntimeReference(source, threads=1)
    right = dict(zip(reference.output_names, reference({**given, **past}), strict=True))
    rows = {
        name: np.moveaxis(right[name.replace("past_key_values", "present")].astype(np.float32), 2, 0).copy()
        for name in CACHES
    }
    ours = OnnxRuntimeReference(cutting.file.path, threads=1)
    found = dict(zip(ours.output_names, ours({**given, **rows}), strict=True))
    np.testing.assert_allclose(found["logits"], right["logits"], rtol=0.02, atol=0.02)
