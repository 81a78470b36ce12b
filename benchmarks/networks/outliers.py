"""A transformer encoder whose activations have outliers, as trained ones have, from weights that are drawn.

In trained encoders the same few channels are tens of times larger than the others in every layer, and feed-forward
activations have heavy tails (Dettmers et al., LLM.int8(), 2022, section 3; Wei et al., Outlier Suppression, 2022).
Weights drawn alike for all channels show neither, and 8 bits look better on them than they are.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.networks.builder import Tensor, parameter
from benchmarks.networks.distribution import Vector
from benchmarks.networks.graph import Graph
from benchmarks.networks.transformer import attend, attention_bias, heads_of, integers, lookup

_EPSILON = 1e-12
_OUTLIERS = 6
_LARGEST = (20.0, 60.0)
# Deviation of the logarithms of the feed-forward channels' sizes.
_TAIL = 0.9
_SHARPNESS = 1.0
# Size of what attention and feed-forward add to a channel, relative to the channel. With twice as much every layer
# would amplify rounding.
_BRANCH = 0.2
_GAINS, _SHIFTS = (0.8, 1.2), (-0.3, 0.3)


def outlier_encoder(graph: Graph, tokens: int = 64, layers: int = 6, vocabulary: int = 30522) -> None:
    """The size of MiniLM-L6: width 384, 12 heads, feed-forward 1536; normalised after each residual sum.

    Inputs `input_ids`, `attention_mask` and `token_type_ids`, i64 `[batch, tokens]`; output `last_hidden_state`
    `[batch, tokens, 384]`.
    """
    width = 384
    ids, attended, types = (integers(graph, name, tokens) for name in ("input_ids", "attention_mask", "token_type_ids"))
    sizes = _outliers(graph, width)
    with graph.scope("embeddings"):
        x = lookup(ids, "word", vocabulary, width).add("add_type", lookup(types, "token_type", 2, width))
        x = x.add("add_position", parameter(graph, "position", (1, tokens, width), 0.02))
        x = _norm(x, "LayerNorm", sizes, sizes)
    bias = attention_bias(attended)
    for layer in range(layers):
        with graph.scope(f"encoder.layer.{layer}"):
            x = _layer(x, bias, sizes, np.ones(width) if layer == layers - 1 else sizes)
    x.output("last_hidden_state")


def _outliers(graph: Graph, width: int) -> Vector:
    """Sizes of the channels between layers: 1, and much more for a few."""
    rng, sizes = graph.rng("outliers"), np.ones(width)
    sizes[rng.permutation(width)[:_OUTLIERS]] = rng.uniform(*_LARGEST, _OUTLIERS)
    return sizes


def _layer(x: Tensor, bias: Tensor, sizes: Vector, after: Vector, heads: int = 12, feed_forward: int = 1536) -> Tensor:
    """Append a layer; channels have the given sizes before it, and others after it."""
    # What a residual sum normalises has channels of these sizes already, and a root mean square above 1.
    plain, root = np.ones(len(sizes)), np.full(len(sizes), float(np.sqrt(np.mean(sizes**2))))
    with x.graph.scope("attention"):
        query, key, value = (
            heads_of(_linear(x, name, sizes, plain * gain), name, heads)
            for name, gain in (("query", _SHARPNESS), ("key", _SHARPNESS), ("value", 1.0))
        )
        y = _linear(attend(query, key, value, bias), "output", plain, _BRANCH * sizes)
        x = _norm(y.add("residual", x), "LayerNorm", sizes, root)
    tail = np.exp(_TAIL * x.graph.rng("tail").standard_normal(feed_forward))
    y = _linear(_linear(x, "intermediate", sizes, tail).gelu("gelu"), "output", tail, _BRANCH * sizes)
    return _norm(y.add("residual", x), "LayerNorm", after, root * after / sizes)


def _linear(x: Tensor, name: str, read: Vector, written: Vector) -> Tensor:
    """Append MatMul and Add. Weights of large channels are small, but these channels still count for more.

    Args:
        x: what is multiplied.
        name: of the layer.
        read: sizes of its channels.
        written: wanted sizes of the result's channels.
    """
    inputs, features = len(read), len(written)
    with x.graph.scope(name):
        weight = x.graph.draw("weight", (inputs, features), 1 / math.sqrt(inputs))
        if x.graph.has_weights:
            weight = weight * (written[np.newaxis, :] / read[:, np.newaxis] ** 0.75).astype(np.float32)
        operand = x.graph.parameter("weight", weight)
        shape = (*x.shape[:-1], features)
        product = x.apply("MatMul", "matmul", operand, shape=shape)
        bias = x.graph.parameter("bias", written * x.graph.rng("bias").uniform(-0.5, 0.5, features))
        return product.apply("Add", "add", bias)


def _norm(x: Tensor, name: str, sizes: Vector, gains: Vector) -> Tensor:
    """Append a LayerNormalization whose result has channels of these sizes."""
    rng = x.graph.rng(name)
    scale, shift = (each * rng.uniform(*bounds, len(each)) for each, bounds in ((gains, _GAINS), (sizes, _SHIFTS)))
    operands = [x.graph.parameter(f"{name}.{key}", each) for key, each in (("weight", scale), ("bias", shift))]
    return x.apply("LayerNormalization", name, *operands, axis=-1, epsilon=_EPSILON)
