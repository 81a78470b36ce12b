"""Packs a weight of floats as codes in blocks, which are followed by the blocks' scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Packing

BITS = 4
"""Of a code, where weights of floats are rounded."""
USUAL_BLOCK = 32
FOUR_BITS: Mapping[int, str] = {16: "i4b16", USUAL_BLOCK: "i4", 64: "i4b64", 128: "i4b128", 256: "i4b256"}
"""What descriptors name a routine's type that rounds weights of floats to codes, by rows of a block; the most exact
first."""


def block_of(dtype: str | None) -> int | None:
    """Rows of a block of a type in ``FOUR_BITS``; None for any other type."""
    return next((block for block, name in FOUR_BITS.items() if name == dtype), None)


def rounded_name(weight: str, block: int) -> str:
    """The name under which weights may hold what rounding in such blocks makes of one, if not to nearest."""
    return f"{weight} in {FOUR_BITS[block]}"


@dataclass(frozen=True)
class InBlocks:
    """Round a matrix ``[depth, columns]`` to codes around the middle, in panels ``[panels, bytes]``: codes, then scales
    in f32.

    Attributes:
        encoding: of the matrix.
        codes: packing of the codes, to ``[panels, …]``.
        scales: packing of the scales, to ``[panels, …]``.
    """

    encoding: BlockEncoding
    codes: Packing
    scales: Packing

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed weight."""
        parts = zip((self.codes, self.scales), self.encoding.rounded(array), strict=True)
        rows = [packing.apply(part) for packing, part in parts]
        return np.concatenate([row.reshape(len(row), -1).view(np.int8) for row in rows], axis=1)

    def type_of(self, tensor: TensorType) -> TensorType:
        del tensor
        of = self.encoding
        codes = self.codes.type_of(of.codes)
        scales = self.scales.type_of(TensorType((of.columns, of.blocks), "f32"))
        panels = codes.shape[0]
        return TensorType((panels, (codes.bytes + scales.bytes) // panels), "i8")
