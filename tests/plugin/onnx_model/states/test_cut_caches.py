"""Caches that grow are taken out of a model: what it then computes, its sizes, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.states.cut_caches import CutModel, cut_caches, open_caches
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.runtime.driver.cache import BEFORE, Cache
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.settings.size_range import OpenShapes, SizeRange
from tests.cache_models import POSITIONS, Decoder

KEY, VALUE = "past_key_values.0.key", "past_key_values.0.value"
ONE = Decoder(layers=1, has_mask=True)


def cut(model: ModelProto, given: OpenShapes | None = None) -> CutModel:
    return cut_caches(model, growing_caches(model, {}, finds=True), given or {})


def outputs(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    reference = OnnxRuntimeReference(model.SerializeToString(), threads=1)
    return dict(zip(reference.output_names, reference(dict(feeds)), strict=True))


@pytest.mark.parametrize("decoder", [ONE, replace(ONE, counts=True)])
def test_rows_that_are_appended_give_what_the_model_gave(decoder: Decoder) -> None:
    random, past = np.random.default_rng(0), 5
    numbers = {"input_ids": 3} if decoder.counts else {"input_ids": 3, "position_ids": past}
    places = {name: np.array([[number]], np.int64) for name, number in numbers.items()}
    mask = {"attention_mask": np.ones((1, past + 1), np.int64)}
    caches = {name: random.standard_normal((1, 2, past, 8)).astype(np.float32) for name in (KEY, VALUE)}
    right = outputs(decoder.model(), {**places, **mask, **caches})
    model = decoder.model()
    found = cut(model)
    assert found.caches == (Cache(KEY, "present.0.key", 2), Cache(VALUE, "present.0.value", 2))
    kept = {
        name: np.concatenate([np.moveaxis(each, 2, 0), np.zeros((1, 1, 2, 8), np.float32)])
        for name, each in caches.items()
    }
    places |= {BEFORE: np.array([past])} if decoder.counts else {}
    for _ in range(2):
        # What the last row was before the first run does not count: the caller appends it.
        given = outputs(model, {**places, **mask, **kept})
        for name, rows in ((KEY, "present.0.key"), (VALUE, "present.0.value")):
            assert given[rows].shape == (1, 1, 2, 8)
            kept[name][-1:] = given[rows]
            np.testing.assert_allclose(np.moveaxis(kept[name], 0, 2), right[rows], rtol=1e-6)
    np.testing.assert_allclose(given["logits"], right["logits"], rtol=1e-5, atol=1e-6)


def test_sizes_are_bound_but_for_the_number_of_positions() -> None:
    found = cut(ONE.model())
    positions = SizeRange(1, POSITIONS)
    assert found.shapes == {"attention_mask": (1, positions), **dict.fromkeys((KEY, VALUE), (positions, 1, 2, 8))}
    assert found.sources[0] == f"positions=1..{POSITIONS}, as long as the table 'c1'"
    given = cut(ONE.model(), {KEY: (3, 2, SizeRange(1, 9), 8), "input_ids": (3, 1)})
    assert given.shapes[VALUE] == (SizeRange(1, 9), 3, 2, 8)
    assert given.sources == ("positions=1..9, as given",)


def test_caches_that_callers_pass_have_a_calls_positions_less() -> None:
    model = ONE.model()
    growing = growing_caches(model, {}, finds=True)
    found = open_caches(model, growing, {"input_ids": (3, 2), KEY: (3, 2, SizeRange(1, 9), 8)})
    assert found.shapes == {"attention_mask": (3, SizeRange(2, 11))}
    assert found.ranges == {"positions": SizeRange(2, 11)}
    dims = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert dims[KEY] == dims[VALUE] == [3, 2, "positions - 2", 8]
    assert dims["attention_mask"] == [3, "positions"]
    assert dims["input_ids"] == [3, 2]
    longer = {"input_ids": (1, 2), KEY: (1, 2, SizeRange(1, POSITIONS - 1), 8)}
    with pytest.raises(UsageError, match=f"{POSITIONS - 1} positions before a call, .* rows for {POSITIONS - 2}:"):
        open_caches(ONE.model(), growing, longer)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({KEY: (1, 2, 9, 8)}, "9 positions, but it grows: give a range"),
        ({KEY: (1, 2, SizeRange(1, 9), 8), VALUE: (1, 2, SizeRange(1, 8), 8)}, "different lengths"),
        ({"input_ids": (1, SizeRange(1, 4))}, "one number of sequences"),
        ({"input_ids": (1, 4), KEY: (1, 2, SizeRange(1, 2), 8)}, "a call has 4 positions, and caches have room for 2"),
        ({"input_ids": (1, POSITIONS + 1)}, f"has {POSITIONS + 1} positions, and .* room for {POSITIONS}, as long as"),
        ({KEY: (1, 2, SizeRange(1, POSITIONS + 1), 8)}, f"the table 'c1' has rows for {POSITIONS}: give"),
        ({"input_ids": (1, 1, 1)}, "3 dimensions"),
        ({"ids": (1, 1)}, "no input of the model"),
    ],
)
def test_other_shapes_are_refused(given: OpenShapes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        cut(ONE.model(), given)


def test_what_reads_a_cache_by_itself_is_refused() -> None:
    model = ONE.model()
    model.graph.node.append(helper.make_node("Neg", [KEY], ["negative"], name="reader"))
    with pytest.raises(UnsupportedModelError, match=r"node 'reader' reads the cache .*--no-state"):
        cut(model)


def test_caches_that_beams_reorder_are_found_and_not_kept() -> None:
    model = ONE.model()
    model.graph.input.append(helper.make_tensor_value_info("beam_idx", TensorProto.INT64, ["batch"]))
    for node in model.graph.node:
        if node.op_type == "Concat" and node.input[0] == KEY:
            node.input[0] = "moved"
    model.graph.node.insert(0, helper.make_node("Gather", [KEY, "beam_idx"], ["moved"], name="reorder"))
    growing = growing_caches(model, {}, finds=True)
    assert [(each.input, each.axis) for each in growing] == [(KEY, 2), (VALUE, 2)]
    with pytest.raises(UnsupportedModelError, match="node 'reorder' reads the cache"):
        cut_caches(model, growing, {})
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 2))
    assert [each.input for each in growing_caches(model, {}, finds=True)] == [VALUE]


def test_caches_of_one_length_and_other_names_do_not_grow() -> None:
    model = ONE.model()
    assert not growing_caches(model, {}, finds=False)
    assert [each.input for each in growing_caches(model, {VALUE: "present.0.value"}, finds=False)] == [VALUE]
    for value in model.graph.input:
        if value.name == KEY:
            value.type.tensor_type.shape.dim[2].dim_value = 4
    assert [each.input for each in growing_caches(model, {}, finds=True)] == [VALUE]


ENCODED = "past_key_values.0.encoder.key"


@pytest.mark.parametrize(
    ("name", "kind", "dims", "given"),
    [
        ("mask", TensorProto.INT64, ("batch", "mask_len"), (1, 9)),
        ("picture", TensorProto.FLOAT, ("batch", None), (1, 5)),
    ],
)
def test_sizes_that_calls_do_not_tell_have_to_be_given(
    name: str, kind: int, dims: tuple[int | str | None, ...], given: tuple[int, ...]
) -> None:
    def model() -> ModelProto:
        found = ONE.model()
        found.graph.input.append(helper.make_tensor_value_info(name, kind, dims))
        return found

    with pytest.raises(UnsupportedModelError, match=rf"of input '{name}' is none of .* give .* by --shape, or"):
        cut(model())
    known = model()
    assert name not in cut(known, {name: given}).shapes
    assert [dim.dim_value for dim in known.graph.input[-1].type.tensor_type.shape.dim] == list(given)


@pytest.mark.parametrize(
    ("name", "kind", "dims"),
    [
        (ENCODED, TensorProto.FLOAT, ("batch", 1, "encoder_sequence_length_out", 4)),
        ("encoder_attention_mask", TensorProto.INT64, ("batch", "encoder_sequence_length")),
        ("encoder_input_ids", TensorProto.INT64, ("batch", None)),
    ],
)
def test_lengths_of_what_an_encoder_gave_are_left_open(
    name: str, kind: int, dims: tuple[int | str | None, ...]
) -> None:
    def model() -> ModelProto:
        found = ONE.model()
        found.graph.input.append(helper.make_tensor_value_info(name, kind, dims))
        return found

    length = next(axis for axis, dim in enumerate(dims) if axis and not isinstance(dim, int))
    found = cut(model())
    assert found.shapes[name][length] == SizeRange(1, 2048)
    assert any(source.endswith("=1..2048, the usual bound") for source in found.sources)
    shape = [dim if isinstance(dim, int) else 1 for dim in dims]
    for size in (6, SizeRange(2, 9)):
        given = cut(model(), {name: (*shape[:length], size, *shape[length + 1 :])})
        assert given.shapes.get(name, (1, 6, 6))[length] == size


def test_a_range_for_the_number_of_sequences_of_what_an_encoder_gave_is_refused() -> None:
    model = ONE.model()
    model.graph.input.append(
        helper.make_tensor_value_info("encoder_hidden_states", TensorProto.FLOAT, ("batch", "length", 4))
    )
    with pytest.raises(UsageError, match=r"'encoder_hidden_states' the range 1\.\.4, but caches .* one number of seq"):
        cut(model, {"encoder_hidden_states": (SizeRange(1, 4), 6, 4)})


def encoded_model(*names: str | None) -> ModelProto:
    """A model that takes an encoder's mask beside its keys, whose lengths have these names."""
    model, (mask, keys) = ONE.model(), names
    for name, kind, dims in (
        ("encoder_attention_mask", TensorProto.INT64, ("batch", mask)),
        (ENCODED, TensorProto.FLOAT, ("batch", 1, keys, 4)),
    ):
        model.graph.input.append(helper.make_tensor_value_info(name, kind, dims))
    return model


def encoded_dims(model: ModelProto) -> list[int | str]:
    """The lengths that the model takes."""
    mask, keys = model.graph.input[-2:]
    found = mask.type.tensor_type.shape.dim[1], keys.type.tensor_type.shape.dim[2]
    return [dim.dim_value or dim.dim_param for dim in found]


@pytest.mark.parametrize("names", [("encoder_sequence_length", "encoder_sequence_length_out"), (None, None)])
def test_what_an_encoder_gave_has_one_length(names: tuple[str | None, str | None]) -> None:
    model = encoded_model(*names)
    found = cut(model)
    assert len({*encoded_dims(model)}) == 1
    assert (found.shapes["encoder_attention_mask"][1], found.shapes[ENCODED][2]) == (SizeRange(1, 2048),) * 2
    assert found.encoded == ("encoder_attention_mask", ENCODED)
    for size in (6, SizeRange(2, 9)):
        given: OpenShapes = {ENCODED: (1, 1, size, 4)}
        model = encoded_model(*names)
        found = cut(model, given)
        assert len({*encoded_dims(model)}) == 1
        assert found.shapes.get("encoder_attention_mask", (1, 6))[1] == size
        assert any(f"={size}, as another input of" in source for source in found.sources)
    model = encoded_model(*names)
    cut(model, {ENCODED: (1, 1, SizeRange(2, 9), 4), "encoder_attention_mask": (1, SizeRange(1, 9))})
    assert len({*encoded_dims(model)}) == 2


def test_what_contradicts_lengths_of_what_an_encoder_gave_is_told_with_a_way_out() -> None:
    error = UnsupportedModelError("node 'a' contradicts")
    explained = cut(encoded_model(None, None)).explained(error)
    assert "node 'a' contradicts; lengths" in str(explained)
    assert f"of 'encoder_attention_mask', '{ENCODED}': " in str(explained)
    assert cut(ONE.model()).explained(error) is error
