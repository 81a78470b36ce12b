"""Small models as exporters write them, by the kinds of what was refused once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from onnx import ModelProto, numpy_helper, parser

from tests.plugin.onnx_model.builders import Array, ints, weights

_DOMAINS = '"com.microsoft" : 1, "com.microsoft.nchwc" : 1'
_MASKS = np.arange(12).reshape(4, 3) % 5 < 2
_SIGNS = weights(4, 3)


class Form(NamedTuple):
    """A graph as ONNX's parser reads it, with its operator set.

    Attributes:
        feeds: values of its inputs, which tell the sizes that the graph leaves open.
        constants: that the text does not give.
        tolerance: of the results, relative to the largest; of integers in their own steps.
    """

    opset: int
    graph: str
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = {}
    tolerance: float = 1e-5

    @property
    def model(self) -> ModelProto:
        header = f'<ir_version: 9, opset_import: ["" : {self.opset}, {_DOMAINS}]> '
        model: ModelProto = parser.parse_model(header + self.graph)
        for place, node in enumerate(model.graph.node):
            node.name = f"{node.op_type}_{place}"
        model.graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in self.constants.items())
        return model


def _resized(opset: int, operator: str, sizes: tuple[int, ...], scales: list[float]) -> Form:
    dims = ",".join(map(str, sizes))
    result = ",".join("N" * (place + 1) for place in range(len(sizes)))
    text = f"g (float[{dims}] x) => (float[{result}] y) {{ y = {operator} }}"
    return Form(opset, text, {"x": weights(*sizes)}, {"s": np.array(scales, np.float32)})


CONTRADICTING = {
    "columns of a product": Form(
        17, "g (float[2,3] x) => (float[2,9] y) { y = MatMul(x, w) }", {"x": weights(2, 3)}, {"w": weights(3, 8)}
    ),
    "a value on the way": Form(
        17,
        "g (float[2,3] x) => (float[2,1] y) <float[2,9] m> { m = MatMul(x, w) n = Relu(m) y = ReduceMax<axes=[1]>(n) }",
        {"x": weights(2, 3)},
        {"w": weights(3, 8)},
    ),
    "a batch of one": Form(
        17, "g (float[B,3] x) => (float[1,8] y) { y = MatMul(x, w) }", {"x": weights(4, 3)}, {"w": weights(3, 8)}
    ),
    "rows of a flattened image": Form(
        17, "g (float[2,3,4] x) => (float[6,12] y) { r = Relu(x) y = Flatten<axis=1>(r) }", {"x": weights(2, 3, 4)}
    ),
    "sizes computed from a shape": Form(
        17,
        """g (float[1,2,20,30] x) => (float[1,2,13,21] y) <float k = {0.7}> {
            s = Shape<start=2>(x) f = Cast<to=1>(s) m = Mul(f, k) n = Floor(m) z = Cast<to=7>(n)
            h = Shape<end=2>(x) t = Concat<axis=0>(h, z) y = Resize<mode="cubic">(x, , , t)
        }""",
        {"x": weights(1, 2, 20, 30)},
    ),
}

DECIMAL_SIZES = {
    "by 0.9": _resized(17, 'Resize<mode="nearest">(x, , s)', (1, 2, 10, 20), [1, 1, 0.9, 0.9]),
    "a signal by 1.4": _resized(13, 'Resize<mode="linear">(x, , s)', (1, 2, 5), [1, 1, 1.4]),
    "an old Upsample by 1.9": _resized(9, 'Upsample<mode="nearest">(x, s)', (1, 1, 10, 10), [1, 1, 1.9, 1.9]),
    "some axes by 2.6": _resized(18, 'Resize<mode="linear", axes=[3,2]>(x, , s)', (1, 1, 5, 10), [2.6, 1.3]),
    "cubes by 0.7": _resized(17, 'Resize<mode="cubic">(x, , s)', (1, 1, 10, 20), [1, 1, 0.7, 2.3]),
}

_ADD = "b (int64 i, bool on, float[3] s) => (bool still, float[3] t) { still = Identity(on) t = Add(s, x) }"
_GROW = """b (int64 i, bool on, float[3] s) => (bool still, float[3] t) {
    t = Add(s, s) most = ReduceMax<keepdims=0>(t) still = Less(most, ten)
}"""
LOOPS = {
    "in a branch": Form(
        17,
        f"""g (float[3] x, bool c) => (float[3] y) <int64 n = {{300}}> {{
            y = If (c) <then_branch = t () => (float[3] a) {{ a = Loop (n, , x) <body = {_ADD}> }},
                else_branch = e () => (float[3] d) {{ d = Neg(x) }}>
        }}""",
        {"x": np.ones(3, np.float32), "c": np.array(True)},
    ),
    "in a branch, by an input's count": Form(
        17,
        f"""g (float[3] x, bool c, int64 n) => (float[3] y) {{
            y = If (c) <then_branch = t () => (float[3] a) {{ v = Neg(x) a = Loop (n, , v) <body = {_ADD}> }},
                else_branch = e () => (float[3] d) {{ d = Neg(x) }}>
        }}""",
        {"x": np.ones(3, np.float32), "c": np.array(True), "n": np.array(3)},
    ),
    "in a branch, until data ends it": Form(
        17,
        f"""g (float[3] x, bool c) => (float[3] y) <int64 n = {{300}}, float ten = {{10}}> {{
            y = If (c) <then_branch = t () => (float[3] a) {{ a = Loop (n, , x) <body = {_GROW}> }},
                else_branch = e () => (float[3] d) {{ d = Neg(x) }}>
        }}""",
        {"x": np.ones(3, np.float32), "c": np.array(True)},
    ),
    "until data ends it, within another": Form(
        17,
        f"""g (float[3] x) => (float[3] y) <int64 n = {{4}}, int64 m = {{5}}, float ten = {{10}}> {{
            y = Loop (m, , x) <body = o (int64 j, bool go, float[3] u) => (bool stays, float[3] v) {{
                stays = Identity(go) w = Loop (n, , u) <body = {_GROW}> v = Sub(w, x) }}>
        }}""",
        {"x": np.ones(3, np.float32)},
    ),
    "a Scan of two states, from the end on": Form(
        17,
        """g (float[700,3] x, float[3] a, float[3] b) => (float[3] p, float[3] q, float[700,3] y) {
            p, q, y = Scan<num_scan_inputs=1, scan_input_directions=[1], body =
                s (float[3] h, float[3] c, float[3] r) => (float[3] k, float[3] d, float[3] z) {
                    t = Mul(h, r) k = Tanh(t) d = Max(c, r) z = Add(k, d) }>(a, b, x)
        }""",
        {"x": weights(700, 3), "a": weights(3, seed=1), "b": weights(3, seed=2)},
    ),
    "counted down": Form(
        17,
        """g (float[3] x) => (float[3] y) <float zero = {0}, float half = {0.5}, float start = {4}, bool yes = {1}> {
            l, y = Loop ( , yes, start, x) <body = b (int64 i, bool on, float k, float[3] s) =>
                (bool still, float m, float[3] t) { m = Sub(k, half) still = Greater(m, zero) t = Mul(s, m) }>
        }""",
        {"x": weights(3)},
    ),
    "counted up, for long": Form(
        17,
        """g (float[3] x) => (float[3] y) <int64 none = {0}, int64 one = {1}, int64 end = {900}, bool yes = {1}> {
            l, y = Loop ( , yes, none, x) <body = b (int64 i, bool on, int64 k, float[3] s) =>
                (bool still, int64 m, float[3] t) { m = Add(k, one) still = Less(m, end) t = Cos(s) }>
        }""",
        {"x": weights(3)},
    ),
    "rows up to a clipped count": Form(
        17,
        """g (float[3] x, int64 n) => (float[T,3] y) <int64 least = {0}, int64 most = {7}> {
            k = Clip(n, least, most)
            l, y = Loop (k, , x) <body = b (int64 i, bool on, float[3] s) => (bool still, float[3] t, float[3] r) {
                still = Identity(on) t = Add(s, x) r = Tanh(s) }>
        }""",
        {"x": weights(3), "n": np.array(5)},
    ),
    "a list": Form(
        17,
        """g (float[6,3] x) => (float[6,3] y) <int64 n = {6}> {
            q = SequenceEmpty()
            l = Loop (n, , q) <body = b (int64 i, bool on, seq(float[3]) s) => (bool still, seq(float[3]) t) {
                still = Identity(on) r = Gather(x, i) w = Tanh(r) t = SequenceInsert(s, w) }>
            y = ConcatFromSequence<axis=0, new_axis=1>(l)
        }""",
        {"x": weights(6, 3)},
    ),
    "places in a table": Form(
        17,
        """g (int64[40] table, int64 first) => (int64 y) <int64 n = {2000}, int64 end = {39}> {
            y = Loop (n, , first) <body = b (int64 i, bool on, int64 s) => (bool still, int64 t) {
                t = Gather(table, s) still = Less(t, end) }>
        }""",
        {"table": np.minimum(np.arange(40) + 3, 39), "first": np.array(1)},
    ),
}

_PLACES = "p = NonZero(m) o = Transpose(p)"
MASKS = {
    "a row for masked rows": Form(
        17,
        f"""g (float[4,3] x, bool[4] m, float[3] r) => (float[4,3] y) <int64[1] three = {{3}}> {{ {_PLACES} k = Shape(o)
            n = Slice(k, lo, hi) s = Concat<axis=0>(n, three) v = Expand(r, s) y = ScatterND(x, o, v) }}""",
        {"x": _SIGNS, "m": np.array([True, False, True, True]), "r": weights(3, seed=1)},
        {"lo": ints(0), "hi": ints(1)},
    ),
    "what was there, changed": Form(
        17,
        f"""g (float[4,3] x, bool[4,3] m) => (float[4,3] y) {{
            {_PLACES} v = GatherND(x, o) w = Exp(v) y = ScatterND(x, o, w) }}""",
        {"x": _SIGNS, "m": _MASKS},
    ),
    "integers by two conditions": Form(
        17,
        f"""g (int64[4,3] x) => (int64[4,3] y) <int64 two = {{2}}, int64 nine = {{9}}, int64 none = {{0}}> {{
            a = Greater(x, two) b = Less(x, nine) m = And(a, b) {_PLACES} k = Shape(o) n = Slice(k, lo, hi)
            v = Expand(none, n) y = ScatterND(x, o, v) }}""",
        {"x": np.arange(12).reshape(4, 3)},
        {"lo": ints(0), "hi": ints(1)},
    ),
    "values in their order": Form(
        17,
        """g (float[4,3] x, bool[4,3] mask, float[12] z) => (float[4,3] y) <int64[1] flat = {-1}> {
            f = Reshape(x, flat) m = Reshape(mask, flat) p = NonZero(m) o = Transpose(p) k = Shape(o)
            n = Slice(k, lo, hi) v = Slice(z, lo, n) w = ScatterND(f, o, v) y = Reshape(w, whole) }""",
        {"x": _SIGNS, "mask": _MASKS, "z": weights(12, seed=1)},
        {"lo": ints(0), "hi": ints(1), "whole": ints(4, 3)},
    ),
    "masked columns": Form(
        17,
        f"""g (float[4,3] x, bool[3] m) => (float[4,3] y) <float one = {{1}}, int64[1] four = {{4}}> {{
            u = Transpose(x) {_PLACES} k = Shape(o) n = Slice(k, lo, hi) s = Concat<axis=0>(n, four)
            v = Expand(one, s) w = ScatterND(u, o, v) y = Transpose(w) }}""",
        {"x": _SIGNS, "m": np.array([True, False, True])},
        {"lo": ints(0), "hi": ints(1)},
    ),
}

_BYTES = np.random.default_rng(0).integers(0, 256, (1, 6, 7, 8)).astype(np.uint8)
_QUANTISED = (
    "<float a = {0.02}, uint8 az = {127}, float b = {0.01}, int8 bz = {0}, float c = {0.0307}, uint8 cz = {120}>"
)
_GATES: dict[str, Array] = {
    "w": np.random.default_rng(1).integers(-90, 90, (2, 4, 12)).astype(np.int8),
    "r": np.random.default_rng(2).integers(-90, 90, (2, 3, 12)).astype(np.int8),
    **{name: np.array([0.01, 0.02], np.float32) for name in ("ws", "rs")},
    **{name: np.zeros(2, np.int8) for name in ("wz", "rz")},
    "b": weights(2, 24, scale=0.1),
}
OPERATORS = {
    "BiasSplitGelu of an input's bias": Form(
        17,
        "g (float[1,5,16] x, float[16] b) => (float[1,5,8] y) { y = com.microsoft.BiasSplitGelu(x, b) }",
        {"x": weights(1, 5, 16), "b": weights(16, seed=1)},
    ),
    "DynamicQuantizeLSTM in two directions": Form(
        17,
        """g (float[5,2,4] x) => (float[5,2,2,3] y) { y = com.microsoft.DynamicQuantizeLSTM
            <direction="bidirectional", hidden_size=3>(x, w, r, b, , , , , ws, wz, rs, rz) }""",
        {"x": weights(5, 2, 4)},
        _GATES,
    ),
    "depthwise QLinearConv with channels last": Form(
        17,
        f"""g (uint8[1,6,7,8] x) => (uint8[1,6,7,8] y) {_QUANTISED} {{ y = com.microsoft.QLinearConv
            <channels_last=1, group=8, pads=[1,1,1,1], kernel_shape=[3,3]>(x, a, az, w, b, bz, c, cz) }}""",
        {"x": _BYTES},
        {"w": np.random.default_rng(3).integers(-99, 99, (8, 1, 3, 3)).astype(np.int8)},
    ),
    "QLinearAveragePool with channels last": Form(
        17,
        f"""g (uint8[1,6,7,8] x) => (uint8[1,3,3,8] y) {_QUANTISED} {{ y = com.microsoft.QLinearAveragePool
            <channels_last=1, kernel_shape=[2,2], strides=[2,2]>(x, a, az, c, cz) }}""",
        {"x": _BYTES},
        tolerance=1,
    ),
    "QLinearGlobalAveragePool with channels last": Form(
        17,
        f"""g (uint8[1,6,7,8] x) => (uint8[1,1,1,8] y) {_QUANTISED} {{
            y = com.microsoft.QLinearGlobalAveragePool<channels_last=1>(x, a, az, c, cz) }}""",
        {"x": _BYTES},
        tolerance=1,
    ),
    "a pool of blocked channels": Form(
        17,
        """g (float[1,16,6,6] x) => (float[1,16,3,3] y) { p = com.microsoft.nchwc.ReorderInput(x)
            q = com.microsoft.nchwc.MaxPool<kernel_shape=[2,2], strides=[2,2]>(p)
            y = com.microsoft.nchwc.ReorderOutput<channels=16>(q) }""",
        {"x": weights(1, 16, 6, 6)},
    ),
}

_HALVES = weights(2, 5, 16).astype(np.float16)
HALF_PRECISION = {
    "a normalised product": Form(
        17,
        """g (float16[2,5,16] x) => (float16[2,5,16] y) { m = MatMul(x, w) a = Add(m, x)
            y = LayerNormalization<axis=-1>(a, s) }""",
        {"x": _HALVES},
        {"w": weights(16, 16, scale=0.25).astype(np.float16), "s": np.ones(16, np.float16)},
        tolerance=4e-3,
    ),
    "a resized image": Form(
        17,
        'g (float16[1,2,5,6] x) => (float16[1,2,10,12] y) { y = Resize<mode="linear">(x, , s) }',
        {"x": weights(1, 2, 5, 6).astype(np.float16)},
        {"s": np.array([1, 1, 2, 2], np.float32)},
        tolerance=4e-3,
    ),
}

_LENGTHS = np.array([4, 2], np.int32)
INTERFACES = {
    "doubles": Form(
        17,
        "g (double[2,3] x, int64 n) => (double[2,4] y) { m = Gemm(x, w, b) k = Cast<to=11>(n) y = Mul(m, k) }",
        {"x": weights(2, 3).astype(np.float64), "n": np.array(3)},
        {"w": weights(3, 4).astype(np.float64), "b": weights(4).astype(np.float64)},
    ),
    "an input handed on": Form(
        17,
        "g (float[2,3] x, float[2] z) => (float[2,3] y, float[2] z) { y = Tanh(x) }",
        {"x": weights(2, 3), "z": weights(2)},
    ),
    "a constant handed on": Form(
        17, "g (float[2,3] x) => (float[2,3] y, float[4] w) { y = Tanh(x) }", {"x": weights(2, 3)}, {"w": weights(4)}
    ),
    "a GRU in two directions, by lengths": Form(
        17,
        """g (float[4,2,3] x, int32[2] n) => (float[4,2,2,5] y, float[2,2,5] h) {
            y, h = GRU<direction="bidirectional", hidden_size=5>(x, w, r, , n) }""",
        {"x": weights(4, 2, 3), "n": _LENGTHS},
        {"w": weights(2, 15, 3), "r": weights(2, 15, 5, seed=1)},
    ),
    "a backward RNN, by lengths": Form(
        17,
        """g (float[4,2,3] x, int32[2] n) => (float[4,1,2,5] y, float[1,2,5] h) {
            y, h = RNN<direction="reverse", hidden_size=5>(x, w, r, , n) }""",
        {"x": weights(4, 2, 3), "n": _LENGTHS},
        {"w": weights(1, 5, 3), "r": weights(1, 5, 5, seed=1)},
    ),
    "indices of a dilated MaxPool, columns first": Form(
        17,
        """g (float[1,2,7,8] x) => (float[1,2,3,3] y, int64[1,2,3,3] i) {
            y, i = MaxPool<kernel_shape=[2,2], dilations=[2,3], strides=[2,2], storage_order=1>(x) }""",
        {"x": weights(1, 2, 7, 8)},
    ),
    "indices of a signal's MaxPool": Form(
        17,
        """g (float[1,2,9] x) => (float[1,2,5] y, int64[1,2,5] i) {
            y, i = MaxPool<kernel_shape=[3], strides=[2], pads=[1,1]>(x) }""",
        {"x": weights(1, 2, 9)},
    ),
}

KINDS: Mapping[str, Mapping[str, Form]] = {
    "declared shapes that contradict": CONTRADICTING,
    "sizes by decimals": DECIMAL_SIZES,
    "loops": LOOPS,
    "masks": MASKS,
    "operators of ONNX Runtime": OPERATORS,
    "half precision": HALF_PRECISION,
    "interfaces": INTERFACES,
}
"""Forms of each kind, by what they are."""
