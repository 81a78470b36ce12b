"""Models of one mixture of experts, of floats or of few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto

from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node, weights

EXPERTS, DEPTH, INNER = 5, 32, 48
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1}


def feeds(*shape: int) -> dict[str, Array]:
    rows = int(np.prod(shape[:-1]))
    return {"x": weights(*shape, seed=8), "routes": weights(rows, EXPERTS, seed=9)}


def mixture(
    operator: str, constants: dict[str, Array], names: list[str], shape: tuple[int, ...], **attributes: Any
) -> ModelProto:
    inputs = ["x", "routes", *names]
    given = feeds(*shape)
    return model(
        [node(operator, inputs, ["y"], domain=MS, **attributes)],
        [(name, array.shape, FLOAT) for name, array in given.items()],
        [("y", shape, FLOAT)],
        constants,
    )


def of_floats(shape: tuple[int, ...], **attributes: Any) -> ModelProto:
    width = 2 if attributes.get("activation_type") == "swiglu" else 1
    sizes = {"w1": (width * INNER, DEPTH), "b1": (width * INNER,), "w2": (DEPTH, INNER), "b2": (DEPTH,)}
    held = {name: weights(EXPERTS, *size, seed=index) / 4 for index, (name, size) in enumerate(sizes.items())}
    return mixture("MoE", held, [*held], shape, **attributes)


def of_bits(
    bits: int, block: int, shape: tuple[int, ...], changed: dict[str, Array] | None = None, **attributes: Any
) -> ModelProto:
    """Weights in blocks with zero points, or in rows without; ``changed`` has other or more constants."""
    random, held = np.random.default_rng(0), dict[str, Array]()
    width = shape[-1]
    for name, (results, depth) in {"1": (2 * INNER, width), "2": (width, INNER)}.items():
        packed = depth * bits // 8
        held[f"w{name}"] = random.integers(0, 256, (EXPERTS, results, packed), dtype=np.uint8)
        sizes = (EXPERTS, results, depth // block) if block else (EXPERTS, results)
        held[f"s{name}"] = (random.random(sizes) / 2**bits).astype(np.float32)
        held[f"b{name}"] = weights(EXPERTS, results, seed=int(name))
        if block:
            count = -(-depth // block * bits // 8)
            held[f"z{name}"] = random.integers(0, 256, (EXPERTS, results, count), dtype=np.uint8)
    held |= changed or {}
    names = ["w1", "s1", "b1", "w2", "s2", "b2", "", "", "", *(("z1", "z2") if "z1" in held else ("", ""))]
    names += ["", "own"] if "own" in held else []
    options: dict[str, Any] = {"block_size": block} if block else {}
    return mixture("QMoE", held, names, shape, expert_weight_bits=bits, **(SWIGLU | options | attributes))
