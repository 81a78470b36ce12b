"""Bodies of conditionals and loops: whatever their values are called, and whether they begin."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

import sartor.backend
from sartor.errors import UnsupportedModelError
from sartor.onnx_model.preparing.prepare import prepare
from tests.plugin.onnx_model.builders import Array, run

_HEADER = '<ir_version: 9, opset_import: ["" : 17]> '
_X = np.linspace(-1.0, 1.0, 20).astype(np.float32)
_BODY = "body = b (int64 i, bool on, float[20] s) => (bool on2, float[20] w) { on2 = Identity(on) w = Add(s, x) }"
_SCALE = "{" + ", ".join(str(index / 8) for index in range(20)) + "}"


def _model(text: str) -> ModelProto:
    return parser.parse_model(_HEADER + text)


def _is_right(model: ModelProto, *samples: dict[str, Array]) -> None:
    prepared = sartor.backend.prepare(model)
    for feeds in samples:
        (found,) = prepared.run([*feeds.values()])
        np.testing.assert_allclose(found, run(model, feeds)["y"], rtol=1e-5, atol=1e-6)


def _counted(body: str) -> ModelProto:
    return _model(f'g (float[20] x, int64 n) => (float[20] y) {{ v = Relu(x) y = Loop (n, "", v) <body = {body}> }}')


def test_a_value_of_a_branch_may_be_called_as_the_importer_calls_weights() -> None:
    model = _model(
        f"""g (float[20] x, bool c) => (float[20] y) <float[20] scale = {_SCALE}> {{
            y = If (c) <
                then_branch = t () => (float[20] a) {{ a = Neg(x) }},
                else_branch = e () => (float[20] b) {{ w0 = Mul(x, scale) b = Add(w0, scale) }}
            >
        }}"""
    )
    _is_right(model, *({"x": _X, "c": np.array(number)} for number in (True, False)))


def test_a_state_may_be_called_like_what_it_begins_with() -> None:
    model = _counted("b (int64 i, bool c, float[20] v) => (bool c, float[20] w) { w = Add(v, x) }")
    _is_right(model, *({"x": _X, "n": np.array(number)} for number in (0, 1, 3)))


def test_a_body_may_have_the_constant_that_goes_on() -> None:
    computed = "on = Constant <value = bool {1}> () w = Add(s, x)"
    body = f"b (int64 i, bool c, float[20] s) => (bool on, float[20] w) {{ {computed} }}"
    _is_right(_counted(body), {"x": _X, "n": np.array(3)})


def test_a_short_loop_may_not_begin() -> None:
    model = _model(
        """g (float[20] x, bool c) => (float[20] y) <int64 n = {3}> {
            y = Loop (n, c, x) <
                body = b (int64 i, bool on, float[20] s) => (bool on2, float[20] w) { on2 = Identity(on) w = Add(s, x) }
            >
        }"""
    )
    _is_right(model, *({"x": _X, "c": np.array(number)} for number in (True, False)))


def test_a_loop_of_any_count_may_not_begin() -> None:
    model = _model(f"g (float[20] x, bool c, int64 n) => (float[20] y) {{ y = Loop (n, c, x) <{_BODY}> }}")
    _is_right(model, *({"x": _X, "c": np.array(number), "n": np.array(3)} for number in (True, False)))


def test_a_long_loop_within_a_branch_ends_by_data() -> None:
    ends = """Loop (n, , x) <
        body = b (int64 i, bool on, float[20] s) => (bool less, float[20] w) {
            w = Add(s, one) most = ReduceMax <keepdims = 0> (w) less = Less(most, end) }
    >"""
    text = f"""y = If (c) <
        then_branch = t () => (float[20] a) {{ a = {ends} }}, else_branch = e () => (float[20] b) {{ b = Neg(x) }}
    >"""
    constants = "<int64 n = {300}, float one = {1}, float end = {5}>"
    model = _model(f"g (float[20] x, bool c) => (float[20] y) {constants} {{ {text} }}")
    _is_right(model, *({"x": _X, "c": np.array(each)} for each in (True, False)))


def test_loops_within_branches_that_end_by_data_are_refused() -> None:
    ends = """Loop (n, "", x) <
        body = b (int64 i, bool on, float[20] s) => (bool less, float[20] w) { less = Less(i, two) w = Add(s, x) }
    >"""
    text = f"""y = If (c) <
        then_branch = t () => (float[20] a) {{ a = {ends} }}, else_branch = e () => (float[20] b) {{ b = Neg(x) }}
    >"""
    model = _model(f"g (float[20] x, bool c, int64 n) => (float[20] y) <int64 two = {{2}}> {{ {text} }}")
    with pytest.raises(UnsupportedModelError, match=r"Loop whose body decides.*steps that a constant bounds"):
        prepare(model)
