"""Caches that operators of attention append to, in every form and in half precision, give what the model gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import sartor
from sartor.config import CompileConfig
from sartor.onnx_model.graphs.halves import widened_eps
from sartor.open_sizes.caches import Cutting, cut_file
from sartor.policies import StatePolicy
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from tests.cache_models import Decoder, halved

STANDARD = Decoder(layers=1, width=8, is_standard=True)
FUSED = Decoder(layers=1, width=16, is_fused=True, has_mask=True)
MOST = 6


def masked() -> ModelProto:
    """ONNX's attention, which sees what an input says, and later positions, too."""
    model = STANDARD.model()
    model.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, (1, 1, "sequence", "total")))
    (node,) = [node for node in model.graph.node if node.op_type == "Attention"]
    node.input[3] = "mask"
    return model


def coded() -> ModelProto:
    """ONNX Runtime's attention over codes, with a scale for each channel."""
    model = FUSED.model()
    scales = np.linspace(0.01, 0.03, FUSED.groups * FUSED.width, dtype=np.float32)
    model.graph.initializer.append(numpy_helper.from_array(scales, "scales"))
    for value in (*model.graph.input, *model.graph.output):
        if value.name.startswith(("past", "present")):
            value.type.tensor_type.elem_type = TensorProto.INT8
    (node,) = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    node.input.extend(["", "", "", "scales", "scales"])
    values = {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 8}
    node.attribute.extend(helper.make_attribute(name, value) for name, value in values.items())
    return model


def feeds(model: ModelProto, before: int, token: int) -> dict[str, Array]:
    known: Mapping[str, Array] = {
        "input_ids": np.array([[token]]),
        "position_ids": np.array([[before]]),
        "attention_mask": np.ones((1, before + 1), np.int64),
        "mask": np.arange(before + 1)[None, None, None] % 3 != 1,
    }
    return {value.name: known[value.name] for value in model.graph.input if value.name in known}


@pytest.mark.parametrize(
    ("make", "decoder", "kind"), [(masked, STANDARD, np.float32), (coded, FUSED, np.int8)], ids=["masked", "coded"]
)
def test_calls_give_what_the_model_gives(
    make: Callable[[], ModelProto], decoder: Decoder, kind: type, tmp_path: Path
) -> None:
    model, path = make(), tmp_path / "decoder.onnx"
    onnx.save(model, path)
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    key = "past_key_values.0.key"
    made = sartor.compile(path, config, shapes={key: (1, decoder.groups, f"1..{MOST}", decoder.width)})
    assert {cache.input for cache in read_manifest(made.path).caches} == {key, "past_key_values.0.value"}
    reference = OnnxRuntimeReference(path, threads=1)
    none: Array = np.zeros((1, decoder.groups, 0, decoder.width), kind)
    held = {name: none for name in reference.input_names if name.startswith("past")}
    with Session(made.path, threads=1) as session:
        for before in range(MOST):
            given = feeds(model, before, before + 1)
            right = dict(zip(reference.output_names, reference({**given, **held}), strict=True))
            held = {name: right[name.replace("past_key_values", "present")] for name in held}
            assert relative_error(session.run(None, given), [right["logits"]]) < 1e-4, before
        kept = session.save()
    assert {name: array.dtype for name, array in kept.items()} == dict.fromkeys(held, np.dtype(kind))
    for name, array in kept.items():
        np.testing.assert_allclose(array.astype(np.float32), held[name].astype(np.float32), rtol=1e-4, atol=1e-5)


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
