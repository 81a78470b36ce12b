"""Small models of the operators that keep something between calls, and of what decoders have beside them.

Each is one node, or a few, of random weights, with known sizes or with an open past, as exporters name them; and the
streams, encoder-decoder and speech synthesis of the zoo.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.networks.streams import enhancer_stream, vad_stream
from benchmarks.networks.vits import vits, vits_text, vits_voice
from benchmarks.networks.whisper import whisper_decoder, whisper_encoder

_F32, _F16, _I32, _I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64
_MS = "com.microsoft"
_IR, _ANGLES = 10, 64
_CACHES = [f"past_key_values.0.{kind}" for kind in ("key", "value")]
_PRESENTS = [f"present.0.{kind}" for kind in ("key", "value")]
_Dims = list[Any]
_Held = dict[str, NDArray[Any]]


class _Net:
    """A model under construction."""

    def __init__(self, opset: int = 17, ir: int = _IR) -> None:
        self._opset, self._ir = opset, ir
        self.nodes: list[NodeProto] = []
        self.held: _Held = {}
        self.inputs: dict[str, tuple[int, _Dims]] = {}
        self.random = np.random.default_rng(0)

    def node(self, operator: str, inputs: list[str], outputs: list[str], domain: str = "", **attributes: Any) -> None:
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        name = f"{operator.lower()}_{outputs[0]}"
        self.nodes.append(helper.make_node(operator, inputs, outputs, name=name, domain=domain, **attributes))

    def input(self, name: str, kind: int, dims: _Dims) -> str:
        self.inputs[name] = kind, dims
        return name

    def weight(self, name: str, *shape: int, spread: float = 0.3) -> str:
        self.held[name] = (self.random.standard_normal(shape) * spread).astype(np.float32)
        return name

    def rotation(self, width: int, kind: type[np.generic] = np.float32) -> list[str]:
        """Tables of cosines and sines."""
        angles = np.arange(_ANGLES)[:, None] * 1e4 ** (-np.arange(width) / width)
        self.held |= {"cos": np.cos(angles).astype(kind), "sin": np.sin(angles).astype(kind)}
        return ["cos", "sin"]

    def model(self, outputs: Mapping[str, tuple[int, _Dims]]) -> ModelProto:
        taken, given = (
            [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in values.items()]
            for values in (self.inputs, outputs)
        )
        held = [numpy_helper.from_array(np.asarray(values), name) for name, values in self.held.items()]
        graph = helper.make_graph(self.nodes, "model", taken, given, held)
        opsets = [helper.make_opsetid("", self._opset), helper.make_opsetid(_MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=self._ir)


def grouped(
    *, is_open: bool = False, is_packed: bool = False, rotates: bool = False, kind: int = _F32, **options: Any
) -> ModelProto:
    """``GroupQueryAttention`` of a token behind 7 others, or behind any number."""
    net, heads, groups, width, past = _Net(21), 4, 2, 16, 7
    batch, new, before, total = ("batch", "seq", "past", "total") if is_open else (1, 1, past, past + 1)
    depth, own = heads * width, groups * width
    if is_packed:
        operands = [net.input("qkv", kind, [batch, new, depth + 2 * own]), "", ""]
    else:
        sizes = zip("qkv", (depth, own, own), strict=True)
        operands = [net.input(name, kind, [batch, new, size]) for name, size in sizes]
    caches = [net.input(name, kind, [batch, groups, before, width]) for name in _CACHES]
    if is_open:
        mask = net.input("attention_mask", _I64, [batch, total])
        net.held |= {"one": np.array([1], np.int64), "first": np.array(1, np.int64)}
        net.node("ReduceSum", [mask, "one"], ["sum"], keepdims=1)
        net.node("Sub", ["sum", "one"], ["last"])
        net.node("Shape", [mask], ["shape"])
        net.node("Gather", ["shape", "first"], ["whole"], axis=0)
        for source, name in (("last", "lengths"), ("whole", "total")):
            net.node("Cast", [source], [name], to=_I32)
    else:
        net.held |= {"lengths": np.array([past], np.int32), "total": np.array(past + 1, np.int32)}
    tables = net.rotation(width // 2, np.float16 if kind == _F16 else np.float32) if rotates else []
    options |= {"do_rotary": 1} if rotates else {}
    inputs = [*operands, *caches, "lengths", "total", *tables]
    net.node("GroupQueryAttention", inputs, ["y", *_PRESENTS], _MS, num_heads=heads, kv_num_heads=groups, **options)
    grown = dict.fromkeys(_PRESENTS, (kind, [batch, groups, total, width]))
    return net.model({"y": (kind, [batch, new, depth]), **grown})


def many_headed(
    *,
    past: int = 0,
    is_cross: bool = False,
    has_bias: bool = False,
    is_open: bool = False,
    kind: int = _F32,
    new: int = 3,
) -> ModelProto:
    """``MultiHeadAttention``, of tokens behind others or across an encoder's keys, whose heads may be split already."""
    net, heads, width, encoded = _Net(), 4, 8, 5
    depth = heads * width
    batch, count, before, total, across = (1, new, past, past + new, encoded)
    if is_open:
        batch, count, before, total, across = ("batch", "seq", "past", "total", "enc")  # type: ignore[assignment]
    inputs = [net.input("q", kind, [batch, count, depth])]
    other: _Dims = [batch, heads, across, width] if is_cross else [batch, count if past else encoded, depth]
    inputs += [net.input(name, kind, other) for name in "kv"]
    inputs += [net.weight("bias", 3 * depth) if has_bias else "", "", ""]
    outputs: dict[str, tuple[int, _Dims]] = {"y": (kind, [batch, count, depth])}
    if past:
        inputs += [net.input(name, kind, [batch, heads, before, width]) for name in _CACHES]
        outputs |= dict.fromkeys(_PRESENTS, (kind, [batch, heads, total, width]))
    net.node("MultiHeadAttention", inputs, [*outputs], _MS, num_heads=heads, unidirectional=int(bool(past)))
    return net.model(outputs)


def packed(*, past: int = 4, new: int = 2, is_open: bool = False, has_mask: bool = False) -> ModelProto:
    """``Attention`` of com.microsoft, whose keys and values are stacked in one cache."""
    net, heads, width = _Net(), 4, 8
    depth = heads * width
    batch, count, before, total = ("batch", "seq", "past", "total") if is_open else (1, new, past, past + new)
    inputs = [net.input("x", _F32, [batch, count, depth]), net.weight("w", depth, 3 * depth)]
    inputs += [net.weight("bias", 3 * depth), net.input("mask", _I32, [batch, total]) if has_mask else ""]
    outputs: dict[str, tuple[int, _Dims]] = {"y": (_F32, [batch, count, depth])}
    if past:
        inputs.append(net.input("past_0", _F32, [2, batch, heads, before, width]))
        outputs["present_0"] = _F32, [2, batch, heads, total, width]
    net.node("Attention", inputs, [*outputs], _MS, num_heads=heads, unidirectional=1)
    return net.model(outputs)


def standard(
    opset: int = 23, *, past: int = 4, new: int = 2, is_open: bool = False, is_flat: bool = False, **options: Any
) -> ModelProto:
    """ONNX's ``Attention``; options ``mask`` and ``nonpad`` are inputs, and others attributes."""
    net, heads, groups, width = _Net(opset, 11), 4, 2, 8
    has_mask, has_lengths = options.pop("mask", False), options.pop("nonpad", False)
    count, before, total = ("seq", "past", "total") if is_open else (new, past, past + new)
    shapes: list[_Dims] = [
        [1, count, number * width] if is_flat else [1, number, count, width] for number in (heads, groups, groups)
    ]
    inputs = [net.input(name, _F32, shape) for name, shape in zip("qkv", shapes, strict=True)]
    inputs.append(net.input("mask", _F32, [count, total]) if has_mask else "")
    outputs: dict[str, tuple[int, _Dims]] = {"y": (_F32, shapes[0])}
    caches = [net.input(name, _F32, [1, groups, before, width]) for name in _CACHES] if past else ["", ""]
    outputs |= dict.fromkeys(_PRESENTS, (_F32, [1, groups, total, width])) if past else {}
    inputs += [*caches, net.input("nonpad_kv_seqlen", _I64, [1]) if has_lengths else ""]
    options |= {"q_num_heads": heads, "kv_num_heads": groups} if is_flat else {}
    net.node("Attention", inputs, [*outputs], is_causal=int(not has_mask and not has_lengths), **options)
    return net.model(outputs)


def masked(*, has_beams: bool = False) -> ModelProto:
    """``DecoderMaskedMultiHeadAttention`` with buffers that are larger than what lives, and with beams."""
    net, heads, width, room, batch = _Net(), 4, 8, 8, 2 if has_beams else 1
    inputs = [net.input(name, _F32, [batch, 1, heads * width]) for name in "qkv"]
    inputs += ["", "", *(net.input(name, _F32, [batch, heads, room, width]) for name in _CACHES)]
    inputs.append(net.input("past_sequence_length", _I32, [1]))
    if has_beams:
        net.held["beams"] = np.array([batch], np.int32)
        inputs += ["beams", net.input("cache_indirection", _I32, [1, batch, room])]
    outputs = {"y": (_F32, [batch, 1, heads * width])} | dict.fromkeys(_PRESENTS, (_F32, [batch, heads, room, width]))
    options = {"num_heads": heads, "past_present_share_buffer": 1}
    net.node("DecoderMaskedMultiHeadAttention", inputs, [*outputs], _MS, **options)
    return net.model(outputs)


def scattered(mode: str = "linear") -> ModelProto:
    """``TensorScatter`` of a row into a cache."""
    net, shape = _Net(24, 11), [1, 2, 8, 4]
    inputs = [net.input(_CACHES[0], _F32, shape), net.input("rows", _F32, [1, 2, 1, 4])]
    net.node("TensorScatter", [*inputs, net.input("write_indices", _I64, [1])], [_PRESENTS[0]], axis=2, mode=mode)
    return net.model({_PRESENTS[0]: (_F32, shape)})


def rotated(opset: int = 23) -> ModelProto:
    """``RotaryEmbedding`` of ONNX, or of com.microsoft before it, by positions that are given."""
    is_standard = opset > 22
    net = _Net(opset, 11 if is_standard else _IR)
    shape = [1, 4, 3, 16] if is_standard else [1, 3, 64]
    x, positions, tables = net.input("x", _F32, shape), net.input("positions", _I64, [1, 3]), net.rotation(8)
    inputs = [x, *tables, positions] if is_standard else [x, positions, *tables]
    net.node("RotaryEmbedding", inputs, ["y"], "" if is_standard else _MS)
    return net.model({"y": (_F32, shape)})


def normalised() -> ModelProto:
    """``SkipSimplifiedLayerNormalization`` whose sum is read as well."""
    net, shape = _Net(), [1, 3, 64]
    inputs = [net.input("x", _F32, shape), net.input("skip", _F32, shape), net.weight("scale", 64)]
    net.node("SkipSimplifiedLayerNormalization", inputs, ["normal", "", "", "sum"], _MS, epsilon=1e-5)
    net.node("Add", ["normal", "sum"], ["y"])
    return net.model({"y": (_F32, shape)})


def experts(rows: int | str = 3, *, bits: int = 0, block: int = 0, count: int = 4) -> ModelProto:
    """``MoE``, or ``QMoE`` with weights of so many bits, of which two experts serve each token."""
    net, depth, inner = _Net(), 32, 48
    x = net.input("x", _F32, [rows, depth])
    net.node("MatMul", [x, net.weight("router", depth, count, spread=1.0)], ["routes"])
    options: dict[str, Any] = {"k": 2, "activation_type": "silu"}
    if not bits:
        weights = [net.weight("w1", count, inner, depth), "", net.weight("w2", count, depth, inner)]
        net.node("MoE", [x, "routes", *weights], ["y"], _MS, normalize_routing_weights=1, **options)
        return net.model({"y": (_F32, [rows, depth])})
    weights = []
    for name, results, row in (("1", inner, depth), ("2", depth, inner)):
        sizes = (count, results, row // block) if block else (count, results)
        codes = net.random.integers(0, 256, (count, results, row * bits // 8))
        net.held |= {
            f"w{name}": codes.astype(np.uint8),
            f"s{name}": (net.random.uniform(0.5, 1, sizes) / 2**bits).astype(np.float32),
        }
        weights += [f"w{name}", f"s{name}", ""]
    options |= {"expert_weight_bits": bits, **({"block_size": block} if block else {})}
    net.node("QMoE", [x, "routes", *weights], ["y"], _MS, **options)
    return net.model({"y": (_F32, [rows, depth])})


def reordered() -> ModelProto:
    """Caches that beams reorder before rows are appended."""
    net, shape = _Net(), [2, 4, 1, 8]
    names = [net.input(name, _F32, shape) for name in "qkv"]
    caches = [net.input(name, _F32, [2, 4, "past", 8]) for name in _CACHES]
    beams = net.input("beam_idx", _I64, [2])
    for cache, new, present in zip(caches, names[1:], _PRESENTS, strict=True):
        net.node("Gather", [cache, beams], [f"ordered_{new}"], axis=0)
        net.node("Concat", [f"ordered_{new}", new], [present], axis=2)
    net.node("Transpose", [_PRESENTS[0]], ["turned"], perm=[0, 1, 3, 2])
    net.node("MatMul", ["q", "turned"], ["scores"])
    net.node("Softmax", ["scores"], ["shares"], axis=-1)
    net.node("MatMul", ["shares", _PRESENTS[1]], ["y"])
    return net.model({"y": (_F32, shape)} | dict.fromkeys(_PRESENTS, (_F32, [2, 4, "total", 8])))


STATE_MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "gqa": grouped,
    "gqa_rotary": partial(grouped, rotates=True),
    "gqa_packed_rotary": partial(grouped, is_packed=True, rotates=True),
    "gqa_window": partial(grouped, local_window_size=4),
    "gqa_softcap": partial(grouped, softcap=5.0),
    "gqa_smooth": partial(grouped, smooth_softmax=1),
    "gqa_f16": partial(grouped, rotates=True, kind=_F16),
    "gqa_open": partial(grouped, is_open=True),
    "gqa_open_packed_rotary": partial(grouped, is_open=True, is_packed=True, rotates=True),
    "gqa_open_window": partial(grouped, is_open=True, local_window_size=4),
    "gqa_open_f16": partial(grouped, is_open=True, rotates=True, kind=_F16),
    "mha": partial(many_headed, has_bias=True),
    "mha_f16": partial(many_headed, kind=_F16),
    "mha_cross_cached": partial(many_headed, is_cross=True),
    "mha_past": partial(many_headed, past=4),
    "mha_open_past": partial(many_headed, past=4, is_open=True, new=1),
    "mha_open_cross": partial(many_headed, is_cross=True, is_open=True),
    "attention_ms_prompt": partial(packed, past=0),
    "attention_ms_past": packed,
    "attention_ms_past_mask": partial(packed, has_mask=True),
    "attention_ms_open_past": partial(packed, is_open=True, new=1),
    "attention23_past": standard,
    "attention23_past_mask": partial(standard, mask=True),
    "attention23_softcap": partial(standard, softcap=4.0),
    "attention23_flat": partial(standard, is_flat=True),
    "attention23_open_past": partial(standard, is_open=True, new=1),
    "attention24_past": partial(standard, 24),
    "attention24_nonpad": partial(standard, 24, past=0, new=5, nonpad=True),
    "attention24_open_past": partial(standard, 24, is_open=True, new=1),
    "decoder_masked_mha": masked,
    "decoder_masked_mha_beams": partial(masked, has_beams=True),
    "tensor_scatter": scattered,
    "tensor_scatter_circular": partial(scattered, "circular"),
    "rotary23": rotated,
    "rotary_ms": partial(rotated, 17),
    "skip_norm": normalised,
    "moe": experts,
    "moe_one": partial(experts, 1),
    "moe_open": partial(experts, "rows"),
    "qmoe": partial(experts, bits=4),
    "qmoe_one": partial(experts, 1, bits=4),
    "qmoe_8": partial(experts, 7, bits=8, block=16),
    "qmoe_open": partial(experts, "rows", bits=4),
    "beam_reorder": reordered,
    "vad_stream": vad_stream,
    "enhancer_stream": enhancer_stream,
    "vits": vits,
    "vits_text": vits_text,
    "vits_voice": vits_voice,
    "whisper_encoder": whisper_encoder,
    "whisper_decoder": whisper_decoder,
}
"""What makes each model, by name."""
