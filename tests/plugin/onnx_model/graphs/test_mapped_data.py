"""Large files' weights stay in them: the same values, which ONNX Runtime reads too, and no copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, external_data_helper, helper, numpy_helper

from sartor.errors import UsageError
from sartor.onnx_model.graphs import mapped_data
from sartor.onnx_model.graphs.held_data import holding
from sartor.onnx_model.graphs.mapped_data import mapped_array, mapped_bytes, mapped_model
from sartor.onnx_model.graphs.tensor_data import to_array
from sartor.reference.disturbed_model import disturb
from sartor.reference.trusted import loaded_models, reference_model
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.reference.vouching.rewrite_check import checked_rewrites
from tests.plugin.onnx_model.builders import Array, model, node

WEIGHTS: dict[str, Array] = {
    "w": np.random.default_rng(0).standard_normal((129, 257)).astype(np.float32),
    "codes": np.random.default_rng(1).integers(0, 256, (257, 17, 16), dtype=np.uint8),
    "scales": np.random.default_rng(2).random(257 * 17).astype(np.float32),
    "small": np.arange(257, dtype=np.float32),
}
FEEDS = {"x": np.linspace(-1, 1, 3 * 129, dtype=np.float32).reshape(3, 129)}


def _network() -> ModelProto:
    """A product by floats and one by a weight in blocks, of an odd depth."""
    sizes: dict[str, Any] = {"K": 257, "N": 257, "bits": 8, "block_size": 16}
    nodes = [
        node("MatMul", ["x", "w"], ["p"]),
        node("Tanh", ["p"], ["t"]),
        helper.make_node("MatMulNBits", ["t", "codes", "scales"], ["q"], name="n", domain="com.microsoft", **sizes),
        node("Add", ["q", "small"], ["y"]),
    ]
    made = model(nodes, [("x", (3, 129), TensorProto.FLOAT)], ["y"], {**WEIGHTS})
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network's file, which counts as large, behind a link to another folder."""
    monkeypatch.setattr(mapped_data, "LARGE_BYTES", 0)
    (tmp_path / "stored").mkdir()
    path = tmp_path / "stored" / "network.onnx"
    path.write_bytes(_network().SerializeToString())
    (tmp_path / "network.onnx").symlink_to(path)
    return tmp_path / "network.onnx"


def _outputs(source: Path | bytes) -> Array:
    return ReferenceModel(source)(FEEDS)[0]


def test_weights_in_the_file_are_read_where_others_are_held(large: Path) -> None:
    with holding():
        parsed = mapped_model(large)
        disturb(parsed, 0)
        weights = {tensor.name: to_array(tensor) for tensor in parsed.graph.initializer}
    assert (weights["w"] != WEIGHTS["w"]).any()
    np.testing.assert_allclose(weights["w"], WEIGHTS["w"], rtol=1e-5)
    np.testing.assert_array_equal(weights["codes"], WEIGHTS["codes"])


def test_weights_stay_in_the_file(large: Path) -> None:
    parsed = mapped_model(large)
    content = parsed.SerializeToString()
    held = WEIGHTS["w"].nbytes + WEIGHTS["codes"].nbytes
    assert len(content) < large.stat().st_size - held + 1000
    assert mapped_bytes(content) == held
    for tensor in parsed.graph.initializer:
        values = WEIGHTS[tensor.name]
        assert (mapped_array(tensor) is None) == (tensor.name in ("scales", "small"))
        np.testing.assert_array_equal(to_array(tensor), values, strict=True)


def test_other_types_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_data, "LARGE_BYTES", 0)
    values = np.arange(1 << 18).astype(np.int8).astype(ml_dtypes.int4)
    made = model([node("Identity", ["x"], ["y"])], [("x", (1,), TensorProto.FLOAT)], ["y"], {"w": values})
    path = tmp_path / "network.onnx"
    path.write_bytes(made.SerializeToString())
    (tensor,) = mapped_model(path).graph.initializer
    assert mapped_array(tensor) is None
    np.testing.assert_array_equal(to_array(tensor), values)


def test_a_reference_reads_them_there(large: Path) -> None:
    right = _outputs(large.read_bytes())
    np.testing.assert_array_equal(_outputs(large), right)
    # A model that was edited does so too.
    parsed = mapped_model(large)
    for tensor in parsed.graph.initializer:
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(2 * WEIGHTS["w"], "w"))
    edited = _network()
    edited.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHTS["w"], "w"))
    np.testing.assert_array_equal(_outputs(parsed.SerializeToString()), _outputs(edited.SerializeToString()))


def test_one_model_is_loaded_at_a_time_where_they_are_large(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = loaded_models.LoadedModels(most_bytes=mapped_bytes(mapped_model(large).SerializeToString()) * 3 // 2)
    monkeypatch.setattr(reference_model, "LOADED", limit)
    one, other = ReferenceModel(large), ReferenceModel(large)
    first = one(FEEDS)[0]
    assert [one._kept is None, other._kept is None] == [False, True]
    np.testing.assert_array_equal(other(FEEDS)[0], first)
    assert [one._kept is None, other._kept is None] == [True, False]
    del other
    np.testing.assert_array_equal(one(FEEDS)[0], first)


def test_a_file_that_takes_the_place_of_another_is_another(large: Path) -> None:
    first, reference = mapped_model(large), ReferenceModel(large)
    expected = reference(FEEDS)[0]
    edited, path = _network(), large.resolve()
    edited.graph.initializer[0].CopyFrom(numpy_helper.from_array(2 * WEIGHTS["w"], "w"))
    path.with_suffix(".new").write_bytes(edited.SerializeToString())
    path.with_suffix(".new").replace(path)
    second = mapped_model(large)
    for parsed, scale in ((first, 1), (second, 2)):
        tensor = next(tensor for tensor in parsed.graph.initializer if tensor.name == "w")
        np.testing.assert_array_equal(to_array(tensor), scale * WEIGHTS["w"])
    np.testing.assert_array_equal(reference(FEEDS)[0], expected)
    reference.unload()
    with pytest.raises(UsageError, match="was changed while it was used"):
        reference(FEEDS)
    path.unlink()
    with pytest.raises(UsageError, match="was removed while it was used"):
        ReferenceModel(second.SerializeToString())


def test_weights_beside_a_model_count(tmp_path: Path) -> None:
    made, path = _network(), tmp_path / "network.onnx"
    external_data_helper.convert_model_to_external_data(made, location="w.bin", size_threshold=1 << 16)
    external_data_helper.write_external_data_tensors(made, str(tmp_path))
    path.write_bytes(made.SerializeToString())
    reference = ReferenceModel(path)
    assert reference.mapped_bytes == WEIGHTS["w"].nbytes + WEIGHTS["codes"].nbytes
    np.testing.assert_array_equal(reference(FEEDS)[0], _outputs(_network().SerializeToString()))


@pytest.mark.parametrize("is_wrong", [False, True])
def test_rewrites_of_a_large_file_are_checked(large: Path, is_wrong: bool) -> None:
    changed = _network()
    if is_wrong:
        # One scale of one block.
        scales = WEIGHTS["scales"].copy()
        scales[20] *= 2
        changed.graph.initializer[2].CopyFrom(numpy_helper.from_array(scales, "scales"))
    prepared = large.with_name("prepared.onnx")
    prepared.write_bytes(changed.SerializeToString())
    found = checked_rewrites(large, prepared, [FEEDS], (), 0.0)
    assert ("differs" in str(getattr(found, "error", found))) == is_wrong
