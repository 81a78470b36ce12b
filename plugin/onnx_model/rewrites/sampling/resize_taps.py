"""Which elements each element of a resized dimension is the weighted sum of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sartor.onnx_model.graphs.graph import Array

CUBIC = -0.75
"""Keys's coefficient where a model names none."""
CROP = "tf_crop_and_resize"
WHOLE_PIXEL = "tf_half_pixel_for_nn"
"""Of opsets 11 and 12."""
_TIE = 1e-6


@dataclass(frozen=True)
class Axis:
    """How dimension ``index`` is resized: from ``size`` to ``target`` positions by the factor ``scale``.

    ``crop`` is the part of the dimension that is read, of tf_crop_and_resize.
    """

    index: int
    size: int
    target: int
    scale: float
    crop: tuple[float, float] = (0.0, 1.0)


def taps(axis: Axis, settings: dict[str, object], *, is_whole: bool) -> tuple[Array, Array | None]:
    """The rows to gather and their weights, [taps, target]; weights are None for nearest, which has one tap.

    Positions are rounded as ONNX Runtime rounds them where that decides: for the nearest row, and with ``is_whole``,
    which drops a fraction just below one.
    """
    mode, transform = settings.get("mode", "nearest"), str(settings.get("coordinate_transformation_mode", "half_pixel"))
    coarse = coordinates(axis, transform, np.float32)
    if mode == "nearest":
        rows = _nearest(coarse.astype(np.float64), str(settings.get("nearest_mode", "round_prefer_floor")))
        return np.clip(rows, 0, axis.size - 1)[None].astype(np.int64), None
    where = np.clip(coarse, 0, axis.size - 1) if is_whole else coordinates(axis, transform)
    base = np.floor(where)
    fraction = where - base
    if settings.get("antialias") and axis.scale < 1:
        offsets, weights = _stretched(fraction, axis.scale, settings)
    elif mode == "linear":
        offsets, weights = np.array([0, 1]), np.stack([1 - fraction, fraction])
    else:
        offsets = np.arange(-1, 3)
        weights = _cubic(fraction, float(str(settings.get("cubic_coeff_a", CUBIC))))
    rows = base[None] + offsets[:, None]
    if settings.get("exclude_outside"):
        weights = np.where((rows < 0) | (rows >= axis.size), 0, weights)
        weights = weights / weights.sum(axis=0)
    return np.clip(rows, 0, axis.size - 1).astype(np.int64), weights


def _stretched(fraction: Array, scale: float, settings: dict[str, object]) -> tuple[Array, Array]:
    """Offsets and weights of a filter that is as much wider as the result has fewer positions."""
    is_linear = settings.get("mode") == "linear"
    start = int(np.floor(-(1 if is_linear else 2) / scale)) + 1
    offsets = np.arange(start, 2 - start)
    distance = np.abs(offsets[:, None] - fraction) * scale
    if is_linear:
        weights = np.clip(1 - distance, 0, 1)
    else:
        weights = _cubic_kernel(distance, float(str(settings.get("cubic_coeff_a", CUBIC))))
    return offsets, weights / weights.sum(axis=0)


def coordinates(axis: Axis, transform: str, dtype: type[np.floating[Any]] = np.float64) -> Array:
    """The input position of every output position.

    Where the scale times the size is no integer, "align_corners" depends on what the size of the result is: here it is
    the number of its elements, as in ONNX Runtime; ONNX's reference takes the fraction (``fractional_corners``).
    """
    out = np.arange(axis.target, dtype=dtype)
    if transform == "align_corners":
        return out * (axis.size - 1) / (axis.target - 1) if axis.target > 1 else np.zeros_like(out)
    if transform == CROP:
        begin, end = map(dtype, axis.crop)
        if axis.target == 1:
            return np.full_like(out, 0.5 * (begin + end) * (axis.size - 1))
        return np.asarray(begin * (axis.size - 1) + out * (end - begin) * (axis.size - 1) / (axis.target - 1))
    if transform == "asymmetric":
        return out / axis.scale
    if transform == "pytorch_half_pixel" and axis.target == 1:
        return np.zeros_like(out)
    if transform == WHOLE_PIXEL:
        return (out + 0.5) / axis.scale
    if transform == "half_pixel_symmetric":
        kept = dtype(axis.target) / (dtype(axis.scale) * dtype(axis.size))
        offset = dtype(axis.size / 2) * (1 - kept)
        return (float(offset) + (out.astype(np.float64) + 0.5) / axis.scale - 0.5).astype(dtype)
    return (out + 0.5) / axis.scale - 0.5


def _nearest(where: Array, rounding: str) -> Array:
    """The rows nearest to positions; ONNX Runtime takes positions as near as that to the middle for the middle."""
    if rounding == "round_prefer_floor":
        return np.ceil(where - 0.5 - _TIE)
    if rounding == "round_prefer_ceil":
        return np.floor(where + 0.5 + _TIE)
    return np.floor(where) if rounding == "floor" else np.ceil(where)


def _cubic(fraction: Array, a: float) -> Array:
    """Weights of the four neighbours, [4, target]."""
    return _cubic_kernel(np.stack([1 + fraction, fraction, 1 - fraction, 2 - fraction]), a)


def _cubic_kernel(distance: Array, a: float) -> Array:
    """Weight by distance (Keys 1981, equation 4)."""
    inner = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    outer = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, inner, np.where(distance < 2, outer, 0.0))
