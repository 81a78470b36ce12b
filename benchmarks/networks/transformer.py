"""Transformer encoders: BERT in the size of MiniLM-L6, and ViT-Tiny/16.

Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1, with the sizes of Touvron et al. 2021, table 1.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from benchmarks.networks.builder import RESIDUAL_GAIN, Tensor, concat, image, parameter
from benchmarks.networks.distribution import SAMPLES, Distribution
from benchmarks.networks.graph import Graph

_BERT_EPSILON = 1e-12
_VIT_EPSILON = 1e-6

# Queries and keys of this size let every token attend to a few others, not to all alike, which would make all equal.
_SHARPNESS = 1.6


def bert(graph: Graph, tokens: int = 128, layers: int = 6, vocabulary: int = 30522) -> None:
    """Layers of 384, 12 heads, feed-forward 1536; six in the network of the paper.

    Inputs `input_ids`, `attention_mask` and `token_type_ids`, i64 `[batch, tokens]`; output `last_hidden_state`
    `[batch, tokens, 384]`.
    """
    width, heads = 384, 12
    ids, attended, types = (integers(graph, name, tokens) for name in ("input_ids", "attention_mask", "token_type_ids"))
    with graph.scope("embeddings"):
        x = lookup(ids, "word", vocabulary, width).add("add_type", lookup(types, "token_type", 2, width))
        x = x.add("add_position", parameter(graph, "position", (1, tokens, width), 0.02))
        x = x.layer_norm("LayerNorm", _BERT_EPSILON)
    bias = attention_bias(attended)
    for layer in range(layers):
        with graph.scope(f"encoder.layer.{layer}"):
            x = _bert_layer(x, bias, heads, feed_forward=1536)
    x.output("last_hidden_state")


def vit_tiny(graph: Graph) -> None:
    """Width 192, 3 heads, 12 layers: input `[batch, 3, 224, 224]`, output `logits` `[batch, 1000]`."""
    width, heads = 192, 3
    x = image(graph, 3, 224, 224).conv("patch_embed", width, 16, stride=16)
    batch, _, rows, columns = x.shape
    x = x.reshape("flatten", batch, width, rows * columns, distribution=x.distribution).transpose("tokens", 0, 2, 1)
    token = parameter(graph, "cls_token", (1, 1, width), 0.5)
    shape = (batch, 1, width)
    token = token.apply("Expand", "cls_expand", token.constant("cls_shape", shape, np.int64), shape=shape)
    x = concat("cls_concat", [token, x])
    x = x.add("add_position", parameter(graph, "pos_embed", (1, x.shape[1], width), 0.5))
    for layer in range(12):
        with graph.scope(f"blocks.{layer}"):
            x = _vit_layer(x, heads)
    x = x.layer_norm("norm", _VIT_EPSILON)
    first = x.apply("Gather", "cls", x.constant("cls.index", 0, np.int64), shape=(batch, width), axis=1)
    first.gemm("head", 1000).output("logits")


def integers(graph: Graph, name: str, tokens: int) -> Tensor:
    shape = (graph.batch, tokens)
    zeros = Distribution(np.zeros((1, SAMPLES)))
    return Tensor(graph, graph.input(name, shape, TensorProto.INT64), shape, zeros)


def lookup(ids: Tensor, name: str, rows: int, width: int) -> Tensor:
    with ids.graph.scope(name):
        table = parameter(ids.graph, "weight", (rows, width), 0.02)
        return table.apply("Gather", "gather", ids, shape=(*ids.shape, width), axis=0)


def attention_bias(attended: Tensor) -> Tensor:
    """Return a tensor that is 0 where `attended` is 1 and -10000 where it is 0, `[batch, 1, 1, tokens]`."""
    batch, tokens = attended.shape
    with attended.graph.scope("attention_mask"):
        axes = attended.constant("axes", (1, 2), np.int64)
        shape = (batch, 1, 1, tokens)
        mask = attended.apply("Unsqueeze", "unsqueeze", axes, shape=shape, element_type=TensorProto.INT64)
        one = Tensor(mask.graph, mask.constant("one", 1), (), mask.distribution)
        absent = one.apply("Sub", "sub", mask.apply("Cast", "cast", to=TensorProto.FLOAT), shape=shape)
        return absent.apply("Mul", "mul", mask.constant("minus_10000", -10000))


def _bert_layer(x: Tensor, bias: Tensor, heads: int, feed_forward: int) -> Tensor:
    """Append attention and feed-forward, each normalised after its residual sum."""
    width = x.shape[-1]
    with x.graph.scope("attention"):
        query, key, value = (
            heads_of(x.linear(name, width, gain=_SHARPNESS), name, heads) for name in ("query", "key", "value")
        )
        attended = attend(query, key, value, bias).linear("output", width, gain=RESIDUAL_GAIN)
        x = attended.add("residual", x).layer_norm("LayerNorm", _BERT_EPSILON)
    y = x.linear("intermediate", feed_forward).gelu("gelu").linear("output", width, gain=RESIDUAL_GAIN)
    return y.add("residual", x).layer_norm("LayerNorm", _BERT_EPSILON)


def _vit_layer(x: Tensor, heads: int) -> Tensor:
    """Append attention and feed-forward, each normalised before its branch."""
    width = x.shape[-1]
    y = x.layer_norm("norm1", _VIT_EPSILON)
    with x.graph.scope("attn"):
        query, key, value = _fused_heads(y, heads)
        y = attend(query, key, value).linear("proj", width, gain=RESIDUAL_GAIN)
    x = x.add("residual1", y)
    with x.graph.scope("mlp"):
        y = x.layer_norm("norm2", _VIT_EPSILON).linear("fc1", 4 * width).gelu("gelu")
        y = y.linear("fc2", width, gain=RESIDUAL_GAIN)
    return x.add("residual2", y)


def heads_of(x: Tensor, name: str, heads: int) -> Tensor:
    """Split the last axis: `[batch, tokens, width]` to `[batch, heads, tokens, width / heads]`.

    The distribution keeps a row for each of the `width` channels.
    """
    batch, tokens, width = x.shape
    with x.graph.scope(name):
        y = x.reshape("reshape", batch, tokens, heads, width // heads, distribution=x.distribution)
        return y.transpose("transpose", 0, 2, 1, 3)


def _fused_heads(x: Tensor, heads: int) -> list[Tensor]:
    """Project to query, key and value by one matrix, and split it and the heads."""
    batch, tokens, width = x.shape
    fused = x.linear("qkv", 3 * width, gain=_SHARPNESS)
    channels = [Distribution(rows) for rows in np.split(fused.distribution.sample, 3)]
    y = fused.reshape("reshape", batch, tokens, 3, heads, width // heads).transpose("transpose", 2, 0, 3, 1, 4)
    parts = zip(("query", "key", "value"), y.split("split", 3, axis=0), channels, strict=True)
    axes = x.constant("squeeze.axes", (0,), np.int64)
    return [part.apply("Squeeze", name, axes, shape=part.shape[1:], distribution=own) for name, part, own in parts]


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    """Append scaled dot-product attention over heads and merge them: `[batch, tokens, width]`."""
    batch, heads, tokens, size = query.shape
    scores = query.matmul("scores", key.transpose("key_transpose", 0, 1, 3, 2))
    root = math.sqrt(size)
    scaled = scores.distribution.map(lambda sample: sample / root)
    scores = scores.apply("Div", "scale", scores.constant("sqrt_size", root), distribution=scaled)
    if bias is not None:
        scores = scores.add("mask", bias)
    # A weighted average keeps what tokens have in common, so the size of the values bounds that of their context.
    context = scores.softmax("softmax").matmul("context", value, value.distribution)
    context = context.transpose("merge_transpose", 0, 2, 1, 3)
    return context.reshape("merge", batch, tokens, heads * size, distribution=value.distribution)
