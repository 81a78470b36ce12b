"""Which inputs decide shapes."""

from __future__ import annotations

from onnx import parser

from sartor.onnx_model.preparing.shape_inputs import shape_inputs


def _inputs(text: str) -> tuple[str, ...]:
    return shape_inputs(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))


def test_shapes_axes_and_steps_do() -> None:
    assert _inputs("g (float[2, 3] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }") == ("s",)
    assert _inputs(
        "g (float[4] x, int64[1] a, int64[1] b, int64[1] c, int64[1] d) => (float[n] y) { y = Slice(x, a, b, c, d) }"
    ) == ("a", "b", "c", "d")


def test_what_a_shape_is_computed_from_does_but_not_what_has_a_shape() -> None:
    assert _inputs(
        "g (float[4] x, int64[1] n, float[3] z) => (float[m] y) "
        "{ two = Constant <value_ints: ints = [2]> () s = Mul (n, two) t = Shape (z) u = Concat <axis: int = 0> (s, t)"
        " y = Expand (x, u) }"
    ) == ("n",)


def test_data_does_not() -> None:
    assert _inputs("g (float[2] x, float[2] y) => (float[2] z) { z = Add (x, y) }") == ()
    assert _inputs("g (float[2] x, int64[5, 5] s) => (float[n] y) { f = ReduceSum (s) y = Expand (x, f) }") == ()
