"""Activations with a bias, and those that other operators have fused in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.numbers import fast_gelu, gelu, rounded, sigmoid, softmax
from sartor.runtime.driver.signature import Array


def _parameter(given: Sequence[float], index: int, default: float) -> float:
    return given[index] if index < len(given) else default


# The parameters are those that ONNX Runtime's ``GetFusedActivationAttr`` reads, in its order.
_FUSED: Mapping[str, Callable[[Array, Sequence[float]], Array]] = {
    "": lambda x, _: x,
    "Relu": lambda x, _: np.maximum(x, 0),
    "Sigmoid": lambda x, _: sigmoid(x),
    "Tanh": lambda x, _: np.tanh(x),
    "Softplus": lambda x, _: np.logaddexp(0, x),
    "LeakyRelu": lambda x, p: np.where(x < 0, _parameter(p, 0, 0.01) * x, x),
    "Clip": lambda x, p: np.clip(x, _parameter(p, 0, -np.inf), _parameter(p, 1, np.inf)),
    "HardSigmoid": lambda x, p: np.clip(_parameter(p, 0, 0.2) * x + _parameter(p, 1, 0.5), 0, 1),
    "HardSwish": lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1),
    "Elu": lambda x, p: np.where(x < 0, _parameter(p, 0, 1.0) * np.expm1(np.minimum(x, 0)), x),
    "Gelu": lambda x, _: gelu(x),
    "FastGelu": lambda x, _: fast_gelu(x),
    "QuickGelu": lambda x, p: x * sigmoid(_parameter(p, 0, 1.702) * x),
}


def activated(name: str, value: Array, parameters: Sequence[float]) -> Array:
    """A fused activation of values in float64.

    Raises:
        KeyError: if there is no such activation.
    """
    return np.asarray(_FUSED[name](value, parameters))


def bias_add(call: Call) -> list[Array]:
    """BiasAdd: the sum of an input, a bias of channels and a residual."""
    return [rounded(call.wide(0) + call.wide(1) + call.wide(2), call.given(0))]


def bias_split_gelu(call: Call) -> list[Array]:
    """BiasSplitGelu: after the bias, the left half times GELU (by erf) of the right half."""
    left, right = np.split(call.wide(0) + call.wide(1), 2, axis=-1)
    return [rounded(left * gelu(right), call.given(0))]


def gemm_fast_gelu(call: Call) -> list[Array]:
    """GemmFastGelu: FastGelu of a product and a bias."""
    return [rounded(fast_gelu(call.wide(0) @ call.wide(1) + call.wide_or(2, 0.0)), call.given(0))]


def fused_gemm(call: Call) -> list[Array]:
    """FusedGemm, for activations that ONNX Runtime's kernel does not know."""
    left, right = (
        call.wide(index).T if call.whole(name, 0) else call.wide(index)
        for index, name in enumerate(("transA", "transB"))
    )
    result = call.number("alpha", 1.0) * (left @ right) + call.number("beta", 1.0) * call.wide_or(2, 0.0)
    names = [f"activation_{name}" for name in ("alpha", "beta") if f"activation_{name}" in call.attributes]
    parameters = [call.number(name, 0.0) for name in names]
    return [rounded(activated(call.text("activation"), result, parameters), call.given(0))]


def bias_softmax(call: Call) -> list[Array]:
    """BiasSoftmax: of all elements behind an axis. The bias has a row for several rows of the data.

    With an inner broadcast one row serves neighbours, else the rows are repeated in turn (ONNX Runtime's kernel).
    """
    data, bias = call.wide(0), call.wide(1)
    axis = call.whole("axis", 1) % data.ndim
    columns = int(np.prod(data.shape[axis:]))
    table, rows = data.reshape(-1, columns), bias.reshape(-1, columns)
    index = np.arange(len(table))
    is_inner = call.whole("is_inner_broadcast", 1)
    chosen = index // (len(table) // max(len(rows), 1) or 1) if is_inner else index % max(len(rows), 1)
    return [rounded(softmax(table + rows[chosen]).reshape(data.shape), call.given(0))]


def torch_embedding(call: Call) -> list[Array]:
    """TorchEmbedding: rows of a table; the other operands matter to gradients only."""
    return [np.take(call.given(0), call.given(1), axis=0)]
