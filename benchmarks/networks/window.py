"""The arithmetic of sliding windows: output sizes, and how often a part of the kernel lies inside the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value


@dataclass(frozen=True)
class Window:
    """A sliding window: `(height, width)` pairs, and pads as ONNX orders them (top, left, bottom, right)."""

    kernel: Pair
    strides: Pair
    pads: Pads

    @classmethod
    def of(cls, kernel: int | Pair, stride: int | Pair, pad: int | Pair | Pads) -> Window:
        """Return a window; a single number or a pair stands for equal values on all sides."""
        if not isinstance(pad, int) and len(pad) == 4:
            return cls(_pair(kernel), _pair(stride), pad)
        vertical, horizontal = _pair(pad)
        return cls(_pair(kernel), _pair(stride), (vertical, horizontal, vertical, horizontal))

    @property
    def taps(self) -> int:
        """Return the number of positions in the kernel."""
        return self.kernel[0] * self.kernel[1]

    @property
    def attributes(self) -> dict[str, Any]:
        """Return the window as ONNX attributes."""
        return {"kernel_shape": self.kernel, "strides": self.strides, "pads": self.pads}

    def output_size(self, height: int, width: int) -> Pair:
        """Return the `(height, width)` of the output, rounded down as ONNX does by default."""
        return self._positions(0, height), self._positions(1, width)

    def inside(self, height: int, width: int) -> NDArray[np.float64]:
        """Return for each tap, row by row, the share of output positions at which it does not read padding."""
        return np.outer(self._inside(0, height), self._inside(1, width)).reshape(-1)

    def _positions(self, axis: int, size: int) -> int:
        padded = size + self.pads[axis] + self.pads[axis + 2]
        return (padded - self.kernel[axis]) // self.strides[axis] + 1

    def _inside(self, axis: int, size: int) -> NDArray[np.float64]:
        starts = np.arange(self._positions(axis, size)) * self.strides[axis] - self.pads[axis]
        read = starts[:, np.newaxis] + np.arange(self.kernel[axis])
        return np.asarray(np.mean((read >= 0) & (read < size), axis=0))
