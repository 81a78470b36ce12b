"""Networks of Flax and functions of JAX that jax2onnx converted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import onnx
from flax import nnx
from jax2onnx import to_onnx

_Shape = tuple[int | str, ...]


class _Images(nnx.Module):
    """Convolutions with channels last, a normalisation, a pooling and a product."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(3, 8, kernel_size=(3, 3), rngs=rngs)
        self.normalised = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
        self.last = nnx.Linear(8 * 4 * 4, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.normalised(self.first(x)))
        x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        return self.last(x.reshape(x.shape[0], -1))


class _Tokens(nnx.Module):
    """Attention, a normalisation and a GELU."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=16, decode=False, rngs=rngs)
        self.normalised = nnx.LayerNorm(16, rngs=rngs)
        self.inner = nnx.Linear(16, 24, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return nnx.gelu(self.inner(self.normalised(x + self.attention(x))))


def _scanned(x: Any) -> Any:
    return jax.lax.scan(lambda state, row: (state * 0.5 + row, state * 2), jnp.zeros(3), x)


def _counted(x: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda step, value: value * 0.5 + step, x)


def _sorted(x: Any) -> Any:
    return jnp.sort(x, axis=1), jnp.cumsum(x, axis=1), jnp.where(x > 0, x, jnp.expm1(x))


def _functions() -> Mapping[str, tuple[Callable[..., Any], _Shape]]:
    rngs = nnx.Rngs(0)
    return {
        "images": (_Images(rngs), (2, 8, 8, 3)),
        "tokens": (_Tokens(rngs), ("B", 6, 16)),
        "scan": (_scanned, (5, 3)),
        "loop": (_counted, (4, 5)),
        "sort": (_sorted, (3, 7)),
    }


def files(work: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Names and models."""
    for name, (function, shape) in _functions().items():
        path = work / f"{name}.onnx"
        to_onnx(function, [shape], return_mode="file", output_path=str(path))
        yield f"jax2onnx_{name}", onnx.load_model(path)
