"""Codes of 4 bits that need 3: those that had 3 in the model, which lay across bytes, and were widened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sartor.codegen.ir.encoding import GROUP_OF_PLANES, IN_PLANES, BlockEncoding, in_planes, unpacked
from sartor.onnx_model.graphs.graph import Array

_WIDE = 4
# Bytes of two codes of which neither has its highest bit.
_HIGHEST, _NEXT = 0x88, 0x44
# Columns that show in most cases that all bits are needed.
_FEW = 4


def narrowed(of: BlockEncoding, codes: Array, points: Array | None) -> tuple[BlockEncoding, Array] | None:
    """The encoding and the codes in planes of 3 bits; None if they need 4, or blocks do not fill words.

    Args:
        of: the encoding.
        codes: [columns, blocks, bytes of a block].
        points: [columns, blocks], which stay as they are; None for the middle, with which codes move.
    """
    if of.bits != _WIDE or of.block % GROUP_OF_PLANES:
        return None
    if not (_needs_three(codes[:_FEW], points) and _needs_three(codes, points)):
        return None
    numbers = unpacked(codes, _WIDE)
    if points is None:
        numbers = numbers - np.uint8(of.middle - (1 << IN_PLANES - 1))
    return replace(of, bits=IN_PLANES), in_planes(numbers)


def _needs_three(codes: Array, points: Array | None) -> bool:
    """Whether all codes are below 8; without zero points from 4 to 11, the middle of which is that of 3 bits."""
    if points is not None:
        return not (codes & _HIGHEST).any()
    return bool(((codes >> 1 ^ codes) & _NEXT == _NEXT).all())
