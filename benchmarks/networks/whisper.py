"""Whisper's encoder, which gives keys and values of the cross attention once, and the decoder that reads them.

Radford et al. 2022, table 1 (tiny: 4 layers, 384 wide, 6 heads; 80 mel bands, 1,500 positions, 448 tokens of 51,865),
with the names of Optimum's exports.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.networks.exported import Exported

_LAYERS, _HEADS, _WIDTH = 4, 6, 384
_HEAD = _WIDTH // _HEADS
_MELS, _FRAMES, _POSITIONS = 80, 3000, 1500
_WORDS, _ROOM = 51_865, 448
_KINDS = ("key", "value")


def whisper_encoder(seed: int = 0) -> onnx.ModelProto:
    """30 seconds as mel bands, ``input_features``, to ``present.N.encoder.key`` and ``.value`` of each layer."""
    net = Exported("whisper_encoder", seed)
    x = net.input("input_features", [1, _MELS, _FRAMES])
    x = _gelu(net, net.conv(x, _MELS, _WIDTH, 3, pads=[1, 1]))
    x = _gelu(net, net.conv(x, _WIDTH, _WIDTH, 3, pads=[1, 1], strides=[2]))
    x = net("Add", net("Transpose", x, perm=[0, 2, 1]), net.hold(_sinusoids()))
    for _ in range(_LAYERS):
        normed = net.norm(x, _WIDTH)
        query, key, value = (_heads(net, _projected(net, normed, kind)) for kind in ("query", *_KINDS))
        x = net("Add", x, _attended(net, query, key, value))
        x = net("Add", x, _forward(net, net.norm(x, _WIDTH)))
    x = net.norm(x, _WIDTH)
    for layer in range(_LAYERS):
        for kind in _KINDS:
            name = f"present.{layer}.encoder.{kind}"
            net("Identity", _heads(net, _projected(net, x, kind)), output=name)
            net.output(name, [1, _HEADS, _POSITIONS, _HEAD])
    return net.model()


def whisper_decoder(seed: int = 0) -> onnx.ModelProto:
    """The decoder with past: tokens and both kinds of caches to ``logits``, and its own caches with new positions.

    Tokens are placed by the length of the caches.
    """
    net = Exported("whisper_decoder", seed)
    net.input("input_ids", ["batch_size", "decoder_sequence_length"], TensorProto.INT64)
    lengths = {"decoder": "past_decoder_sequence_length", "encoder": "encoder_sequence_length_out"}
    for layer in range(_LAYERS):
        for whose, length in lengths.items():
            for kind in _KINDS:
                net.input(f"past_key_values.{layer}.{whose}.{kind}", ["batch_size", _HEADS, length, _HEAD])
    words = net.hold(net.drawn(_WORDS, _WIDTH, spread=0.3))
    past, total = _lengths(net)
    places = net("Gather", net.hold(net.drawn(_ROOM, _WIDTH, spread=0.3)), _range(net, past, total), axis=0)
    x = net("Add", net("Gather", words, "input_ids", axis=0), places)
    hidden = _later(net, past, total)
    for layer in range(_LAYERS):
        x = _decoded(net, x, layer, hidden)
    net("MatMul", net.norm(x, _WIDTH), net("Transpose", words, perm=[1, 0]), output="logits")
    net.output("logits", ["batch_size", "decoder_sequence_length", _WORDS])
    for layer in range(_LAYERS):
        for kind in _KINDS:
            name = f"present.{layer}.decoder.{kind}"
            net.output(name, ["batch_size", _HEADS, "past_decoder_sequence_length + 1", _HEAD])
    return net.model()


def _decoded(net: Exported, x: str, layer: int, hidden: str) -> str:
    """A layer of the decoder, which appends to its caches and reads those of the encoder."""
    normed = net.norm(x, _WIDTH)
    query, *new = (_heads(net, _projected(net, normed, kind)) for kind in ("query", *_KINDS))
    caches = [
        net(
            "Concat",
            f"past_key_values.{layer}.decoder.{kind}",
            rows,
            output=f"present.{layer}.decoder.{kind}",
            axis=2,
        )
        for kind, rows in zip(_KINDS, new, strict=True)
    ]
    x = net("Add", x, _attended(net, query, *caches, hidden=hidden))
    query = _heads(net, _projected(net, net.norm(x, _WIDTH), "query"))
    x = net("Add", x, _attended(net, query, *(f"past_key_values.{layer}.encoder.{kind}" for kind in _KINDS)))
    return net("Add", x, _forward(net, net.norm(x, _WIDTH)))


def _sinusoids() -> np.ndarray:
    """The encoder's positions."""
    angles = np.outer(np.arange(_POSITIONS), 1e4 ** -np.linspace(0, 1, _WIDTH // 2))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _gelu(net: Exported, x: str) -> str:
    share = net("Add", net("Erf", net("Div", x, net.hold(math.sqrt(2)))), net.hold(1.0))
    return net("Mul", net("Mul", x, share), net.hold(0.5))


def _projected(net: Exported, x: str, kind: str) -> str:
    """Keys have no bias; queries are scaled before they meet the keys."""
    y = net.linear(x, _WIDTH, _WIDTH, bias=kind != "key")
    return net("Mul", y, net.hold(1 / math.sqrt(_HEAD))) if kind == "query" else y


def _heads(net: Exported, x: str) -> str:
    return net("Transpose", net("Reshape", x, net.numbers(0, 0, _HEADS, _HEAD)), perm=[0, 2, 1, 3])


def _attended(net: Exported, query: str, key: str, value: str, *, hidden: str = "") -> str:
    scores = net("MatMul", query, net("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net("Add", scores, hidden) if hidden else scores
    context = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    return net.linear(net("Reshape", context, net.numbers(0, 0, _WIDTH)), _WIDTH, _WIDTH, gain=0.4)


def _forward(net: Exported, x: str) -> str:
    return net.linear(_gelu(net, net.linear(x, _WIDTH, 4 * _WIDTH)), 4 * _WIDTH, _WIDTH, gain=0.4)


def _lengths(net: Exported) -> tuple[str, str]:
    """The number of positions before the call, and with its own."""
    past, new = (
        net("Gather", net("Shape", name), net.whole(axis), axis=0)
        for name, axis in (("past_key_values.0.decoder.key", 2), ("input_ids", 1))
    )
    return past, net("Add", past, new)


def _range(net: Exported, begin: str, end: str) -> str:
    return net("Range", begin, end, net.whole(1))


def _later(net: Exported, past: str, total: str) -> str:
    """What hides positions behind a call's own."""
    own = net("Unsqueeze", _range(net, past, total), net.numbers(1))
    is_later = net("Greater", _range(net, net.whole(0), total), own)
    return net("Where", is_later, net.hold(np.finfo(np.float32).min), net.hold(0.0))
