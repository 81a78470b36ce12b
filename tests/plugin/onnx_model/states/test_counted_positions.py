"""Positions that a decoder counts from the length of its caches follow from an input once the caches are taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pytest
from onnx import ModelProto, parser

from sartor.errors import UnsupportedModelError
from sartor.onnx_model.states.counted_positions import count_positions
from sartor.onnx_model.states.cut_caches import cut_caches
from sartor.onnx_model.states.grown_caches import growing_caches
from sartor.runtime.driver.cache import BEFORE
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference
from tests.cache_models import Decoder
from tests.exported_decoders import HEADS, POSITIONS, WIDTH, WORDS, gpt2, whisper

ENCODED = 6
MOST = 64


def outputs(model: ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    reference = OnnxRuntimeReference(model.SerializeToString(), threads=1)
    known = {name: array for name, array in feeds.items() if name in reference.input_names}
    return dict(zip(reference.output_names, reference(known), strict=True))


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("make", [gpt2, whisper])
def test_exported_decoders_give_with_the_input_what_they_gave(make: Callable[[], ModelProto], tokens: int) -> None:
    random, model = np.random.default_rng(0), make()
    encoded = {value.name: (1, HEADS, ENCODED, WIDTH) for value in model.graph.input if "encoder." in value.name}
    cut = cut_caches(model, growing_caches(model, {}, finds=True), {"input_ids": (1, tokens), **encoded})
    assert cut.sources[0].startswith(f"positions={tokens}..{POSITIONS}, as long as the table")
    assert model.graph.input[-1].name == BEFORE
    for past in (0, 5, POSITIONS - tokens):
        feeds: dict[str, Array] = {"input_ids": random.integers(0, WORDS, (1, tokens))}
        feeds["attention_mask"] = np.ones((1, past + tokens), np.int64)
        shapes = {**encoded, **{each.input: (1, HEADS, past, WIDTH) for each in cut.caches}}
        feeds |= {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        right = outputs(make(), feeds)
        kept = {each.input: np.moveaxis(right[each.output], each.axis, 0).copy() for each in cut.caches}
        given = outputs(model, {**feeds, **kept, BEFORE: np.array([past])})
        np.testing.assert_allclose(given["logits"], right["logits"], rtol=1e-5, atol=1e-6)


def test_what_sizes_tell_needs_no_input() -> None:
    model = Decoder(layers=1, has_mask=True, is_causal=False).model()
    cut_caches(model, growing_caches(model, {}, finds=True), {})
    assert BEFORE not in [value.name for value in model.graph.input]


def counting(body: str) -> ModelProto:
    """A model of what is computed from the number of rows of ``x``, which are all positions, two of them the call's."""
    constants = "int64 zero = {0}, int64 one = {1}, int64[1] ones = {1}, int64[1] axis = {0}, int64[1] new = {-2}"
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        counting (float[P,3] x) => (float[R,S] y) <{constants}> {{
            shape = Shape(x)
            all = Gather(shape, zero)
            new_count = Neg(new)
            scalar = Squeeze(new_count)
            past = Sub(all, scalar)
            {body}
        }}"""
    return parser.parse_model(text)


def counted(body: str) -> ModelProto:
    model = counting(body)
    assert count_positions(model, BEFORE, [lambda number: {"x": (number, 3)}], 2, MOST)
    return model


@pytest.mark.parametrize(
    "body",
    [
        # Rows of a table, by numbers that grow evenly, by other steps, of another type, behind a scalar.
        "r = Range(past, all, one)  f = Cast<to=1>(r)  c = Cos(f)  u = Unsqueeze(c, ones)  y = Add(u, x0)",
        "d = Add(past, past)  e = Add(d, scalar)  r = Range(d, e, one)  f = Cast<to=1>(r)  g = Sqrt(f)"
        "  u = Unsqueeze(g, ones)  y = Mul(u, x0)",
        "i = Cast<to=6>(past)  f = Cast<to=1>(i)  s = Sqrt(f)  y = Div(x0, s)",
        # What hides keys before a window and behind a position, which is neither end of a larger one.
        "r = Range(past, all, one)  u = Unsqueeze(r, ones)  k = Range(zero, all, one)  l = LessOrEqual(k, u)"
        "  m = Mod(k, scalar)  o = Equal(m, zero)  a = And(l, o)  f = Cast<to=1>(a)  y = MatMul(f, x)",
        # A part of a table, from another axis on as well.
        "b = Range(zero, all, one)  f = Cast<to=1>(b)  s = Slice(f, new, all1, axis)  u = Unsqueeze(s, ones)"
        "  y = Add(u, x0)",
    ],
)
def test_values_follow_from_the_input(body: str) -> None:
    prelude = "x0 = Slice(x, axis, new_count, axis)  all1 = Unsqueeze(all, axis)  "
    model, random = counted(prelude + body), np.random.default_rng(0)
    for number in (2, 3, 17, MOST):
        x = random.standard_normal((number, 3)).astype(np.float32)
        (right,) = outputs(counting(prelude + body), {"x": x}).values()
        # Sizes are those of the whole, so only the input tells another number.
        (given,) = outputs(model, {"x": x, BEFORE: np.array([number - 2])}).values()
        np.testing.assert_allclose(given, right, rtol=1e-6)


def test_a_value_that_no_input_tells_is_refused() -> None:
    double = "d = Add(all, all)  r = Range(all, d, one)  f = Cast<to=1>(r)  u = Unsqueeze(f, ones)  y = Add(u, x)"
    with pytest.raises(UnsupportedModelError, match=r"\(Range\) computes follows from the number of positions .*--no-"):
        counted(double)


def beside_an_encoder(body: str) -> ModelProto:
    """A model of what is computed from the numbers of rows of ``x``, of which one is the call's, and of ``e``."""
    constants = "int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, int64[1] new = {1}"
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]>
        counting (float[P,3] x, float[E] e) => (float[S] y) <{constants}> {{
            shape = Shape(x)
            all = Gather(shape, axis)
            past = Sub(all, new)
            length = Shape(e)
            {body}
        }}"""
    return parser.parse_model(text)


def counted_beside(body: str) -> ModelProto:
    model = beside_an_encoder(body)
    assert count_positions(model, BEFORE, [partial(_shapes_beside, length) for length in (32, 2)], 1, MOST)
    return model


def _shapes_beside(length: int, number: int) -> dict[str, tuple[int, ...]]:
    return {"x": (number, 3), "e": (length,)}


@pytest.mark.parametrize(
    "body",
    [
        "w = Expand(past, length)  f = Cast<to=1>(w)  s = Sqrt(f)  y = Mul(s, e)",
        "f = Cast<to=1>(past)  s = Sqrt(f)  count = Squeeze(length)  r = Range(zero, count, one)  g = Cast<to=1>(r)"
        "  w = Add(s, g)  y = Mul(w, e)",
    ],
)
def test_values_follow_from_the_input_with_each_length_of_what_an_encoder_gave(body: str) -> None:
    model = counted_beside(body)
    for number, length in ((2, 32), (17, 5), (MOST, 1)):
        feeds: dict[str, Array] = {"x": np.zeros((number, 3), np.float32), "e": np.ones(length, np.float32)}
        (right,) = outputs(beside_an_encoder(body), feeds).values()
        (given,) = outputs(model, {**feeds, BEFORE: np.array([number - 1])}).values()
        np.testing.assert_allclose(given, right, rtol=1e-6)


@pytest.mark.parametrize("number", ["Add(past, length)", "Min(past, length)", "Mul(past, length)"])
def test_values_that_a_length_of_what_an_encoder_gave_changes_are_refused(number: str) -> None:
    with pytest.raises(UnsupportedModelError, match="of positions, and the length of what an encoder gave, in a way"):
        counted_beside(f"n = {number}  f = Cast<to=1>(n)  s = Sqrt(f)  y = Mul(s, e)")


def test_a_part_of_a_table_as_long_as_what_an_encoder_gave_is_refused() -> None:
    bounds = "n = Add(all, length)  count = Squeeze(n)  r = Range(zero, count, one)  f = Cast<to=1>(r)"
    with pytest.raises(UnsupportedModelError, match=r"'s' \(Slice\) computes follows from the number of positions"):
        counted_beside(f"{bounds}  s = Slice(f, all, n, axis)  y = Mul(s, e)")
