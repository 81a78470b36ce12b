"""ONNX Runtime's mixtures of experts with weights of few bits, from the operator's text, in float64."""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import rounded, sigmoid, softmax
from sartor.reference.trusted.oracles.quantised import integers
from sartor.runtime.driver.signature import Array

# The places of codes, scales, bias and zero points of each product, and of the weights that a model gives itself.
_PLACES, _OWN = ((2, 3, 4, 11), (5, 6, 7, 12), (8, 9, 10, 13)), 14
_DEFAULT_BITS, _BITS_OF_A_BYTE, _RANK = 4, 8, 3
_INTERLEAVED = 1


def rounds_tokens(node: NodeProto) -> bool:
    """Whether weights of a QMoE have 8 bits in blocks."""
    numbers = {attribute.name: attribute.i for attribute in node.attribute}
    bits = [value for name, value in numbers.items() if name.endswith("expert_weight_bits")]
    return numbers.get("block_size", 0) > 0 and _BITS_OF_A_BYTE in bits


def quantised_experts(call: Call) -> list[Array]:
    """QMoE, without rounding tokens: each expert's products of the tokens that chose it."""
    tokens = call.wide(0).reshape(-1, call.given(0).shape[-1])
    shares = _shares(call, len(tokens))
    result = np.zeros_like(tokens)
    for expert in range(shares.shape[-1]):
        chosen = np.flatnonzero(shares[:, expert])
        if chosen.size:
            made = _product(call, 1, expert, _activated(call, expert, tokens[chosen]))
            result[chosen] += shares[chosen, expert, None] * made
    return [rounded(result.reshape(call.given(0).shape), call.given(0))]


def _shares(call: Call, rows: int) -> Array:
    """The weight of each expert's result for each token, zero of those that are not chosen; of equal logits the last
    experts are chosen."""
    logits = call.wide(1).reshape(rows, -1)
    count, most = logits.shape[-1], call.whole("k", 1)
    numbers = count - 1 - np.argsort(-logits[:, ::-1], axis=-1, kind="stable")[:, :most]
    if call.input(_OWN) is None:
        best = softmax(np.take_along_axis(logits, numbers, axis=-1))
    else:
        best = np.take_along_axis(call.wide(_OWN).reshape(rows, -1), numbers, axis=-1)
        if call.whole("normalize_routing_weights", 0):
            total = best.sum(axis=-1, keepdims=True)
            best = np.divide(best, total, out=np.zeros_like(best), where=total != 0)
        best = np.maximum(best, 0)
    shares = np.zeros((rows, count))
    np.put_along_axis(shares, numbers, best, axis=-1)
    return shares


def _activated(call: Call, expert: int, tokens: Array) -> Array:
    """What an expert's second product takes of some tokens."""
    first, kind = _product(call, 0, expert, tokens), call.text("activation_type", "relu").lower()
    if kind == "swiglu":
        return _gated(call, *_halves(call, expert, tokens, first))
    if kind == "silu":
        return first * sigmoid(first)
    if kind == "gelu":
        # By a hyperbolic tangent, as for CPUs.
        bent = np.tanh(math.sqrt(2 / math.pi) * (first + 0.044715 * first**3))
        return np.asarray(0.5 * first * (1 + bent))
    return np.maximum(first, 0) if kind == "relu" else first


def _halves(call: Call, expert: int, tokens: Array, first: Array) -> tuple[Array, Array]:
    """What is bent, and what is multiplied by it."""
    fusion = call.whole("swiglu_fusion", 0)
    if not fusion:
        return first, _product(call, 2, expert, tokens)
    if fusion == _INTERLEAVED:
        return first[:, ::2], first[:, 1::2]
    half = first.shape[-1] // 2
    return first[:, :half], first[:, half:]


def _gated(call: Call, gate: Array, linear: Array) -> Array:
    limit = call.number("swiglu_limit", math.inf)
    gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    bent = gate * sigmoid(call.number("activation_alpha", 1.0) * gate)
    return np.asarray(bent * (linear + call.number("activation_beta", 0.0)))


def _product(call: Call, number: int, expert: int, rows: Array) -> Array:
    """An expert's product of rows by its matrix in few bits, with its bias."""
    codes, scale, bias, zero = _PLACES[number]
    bits = call.whole(f"fc{number + 1}_expert_weight_bits", call.whole("expert_weight_bits", _DEFAULT_BITS))
    numbers = integers(call.given(codes)[expert], bits).astype(np.float64)
    scales = call.wide(scale)[expert].reshape(len(numbers), -1, 1)
    blocks = scales.shape[1]
    points = np.full((1, 1, 1), 2.0 ** (bits - 1))
    if (given := call.input(zero)) is not None:
        # A byte holds those of several rows where each has one, or else of several blocks of a row.
        held = blocks if given.ndim == _RANK else len(numbers)
        points = integers(given[expert], bits).astype(np.float64)[..., :held].reshape(len(numbers), -1, 1)
    matrix = (numbers.reshape(len(numbers), blocks, -1) - points) * scales
    made: Array = rows @ matrix.reshape(numbers.shape).T
    return made if call.input(bias) is None else np.asarray(made + call.wide(bias)[expert])
