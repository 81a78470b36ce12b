"""The names of inputs with the places of tokens, and what they hold. Nothing of ONNX is imported."""

from __future__ import annotations

import re

import numpy as np

# ONNX Runtime takes no table of angles that is shorter than there are tokens, and models may compute one that is as
# long as the largest place asks for.
_PLACES = re.compile(r"(?:^|[_./])(?:pos|positions?)(?=$|[_./])")


def are_places(name: str) -> bool:
    """Whether an input of integers has the places of tokens."""
    return _PLACES.search(name) is not None


def rising(shape: tuple[int, ...]) -> np.ndarray:
    """Integers that count up along the last axis."""
    return np.broadcast_to(np.arange(shape[-1] if shape else 1), shape or (1,)).reshape(shape)
