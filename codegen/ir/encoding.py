"""How a weight is stored apart from what it means: blocks of small integers, each with a scale and a zero point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Self

import numpy as np

from sartor.codegen.ir.layer import Task, TensorType

ATTRIBUTE = "encoding"
"""The attribute by which the op that decodes a weight names its encoding."""
PERMISSION = "may_round_rows"
"""The attribute of such an op if the model permits to round what is multiplied by its weight."""
PARTS = "one_of_parts"
"""The attribute of such an op that says of how many equal parts of a row that is multiplied at most one is not zero."""
IN_PLANES = 3
"""Bits of codes that are stored in planes."""
GROUP_OF_PLANES = 32
"""Codes whose planes lie together."""
_SEPARATOR = "."
_BYTE = 8
# Codes of such a group in a word of their lower bits, and of a byte of it; and bytes of all lower bits.
_WORDS, _BYTES, _CODES, _LOW_BYTES = 2, 4, 4, 8
# What the scale at which a block's largest number is the last code is multiplied by: smaller scales clip that number,
# and round the others less.
_SHRUNK = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8)
# By how much rounded multiples of a scale differ from integers, as a part of the largest.
_NEAR = 1e-6
# Columns that are rounded at once.
_COLUMNS = 1024


@dataclass(frozen=True)
class BlockEncoding:
    """A matrix ``[depth, columns]`` of f32 whose columns are cut into blocks along the depth, after
    ``com.microsoft.MatMulNBits`` of ONNX Runtime: an element is ``(code - point) * scale``.

    It is stored in two or three tensors: codes ``[columns, blocks, bytes of a block]`` in i8, lowest bits first; scales
    ``[columns, blocks]`` in f32, f16 or bf16; and zero points ``[columns, blocks]``, in i8 without a sign or in the
    scales' type. Without these the point of all blocks is ``2 ** (bits - 1)``. The last block may have more codes than
    there are rows of the matrix.

    Codes of 3 bits are stored in planes, 32 codes in 12 bytes (``in_planes``); these of a block fill such groups.

    Attributes:
        bits: of a code: 2, 3, 4 or 8; in a model up to 8, packed without gaps.
        block: rows of the matrix in a block, a multiple of 16.
        depth: rows of the matrix.
        columns: columns of the matrix.
    """

    bits: int
    block: int
    depth: int
    columns: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The encoding that ``str`` wrote."""
        return cls(*(int(number) for number in text.split(_SEPARATOR)))

    def __str__(self) -> str:
        return _SEPARATOR.join(str(number) for number in astuple(self))

    @property
    def blocks(self) -> int:
        """Blocks of a column."""
        return -(-self.depth // self.block)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block's codes."""
        return self.block * self.bits // _BYTE

    @property
    def codes_of_byte(self) -> int:
        """Codes in a byte."""
        return _BYTE // self.bits

    @property
    def packed_points(self) -> int:
        """Bytes of zero points where those of a column are packed into whole bytes."""
        return self.columns * -(-self.blocks * self.bits // _BYTE)

    @property
    def middle(self) -> int:
        """The zero point of encodings that store none."""
        return 1 << (self.bits - 1)

    @property
    def meaning(self) -> TensorType:
        """The type of the matrix."""
        return TensorType((self.depth, self.columns), "f32")

    @property
    def codes(self) -> TensorType:
        """The type of the tensor of codes."""
        return TensorType((self.columns, self.blocks, self.block_bytes), "i8")

    def bytes_with(self, others: Sequence[TensorType]) -> int:
        """Bytes of the matrix as it is stored, with scales and zero points of the given types."""
        return self.codes.bytes + sum(part.bytes for part in others)

    def rounded(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales of a matrix ``[depth, columns]`` of f32, whose blocks are rounded to nearest around the
        middle: of some scales each block has the one with the least square error."""
        parts = [self._rounded(matrix[:, start : start + _COLUMNS]) for start in range(0, self.columns, _COLUMNS)]
        codes, scales = (np.concatenate(part) for part in zip(*parts, strict=True))
        return packed(codes, self.bits).reshape(self.codes.shape).view(np.int8), scales

    def _rounded(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes ``[columns, blocks, block]`` and scales ``[columns, blocks]`` of some columns."""
        filled = np.pad(matrix.T.astype(np.float32), ((0, 0), (0, self.blocks * self.block - self.depth)))
        numbers = filled.reshape(len(filled), self.blocks, self.block)
        largest = np.take_along_axis(numbers, np.abs(numbers).argmax(-1)[..., None], -1)
        best, codes, scales = np.full(largest.shape, np.inf, np.float32), np.zeros_like(numbers, np.uint8), largest
        # The largest of numbers that are multiples of a scale already need not be the last code's.
        grown = tuple(self.middle / code for code in range(1, self.middle))
        is_rounded = bool(numbers.size) and self._are_multiples(numbers[0], largest[0])
        for factor in (*_SHRUNK, *grown) if is_rounded else _SHRUNK:
            step = largest * np.float32(-factor / self.middle)
            tried = np.clip(np.rint(numbers / np.where(step == 0, 1, step)), -self.middle, self.middle - 1)
            error = np.square(tried * step - numbers).sum(-1, keepdims=True)
            is_better = error < best
            codes = np.where(is_better, (tried + self.middle).astype(np.uint8), codes)
            best, scales = np.where(is_better, error, best), np.where(is_better, step, scales)
        return codes, scales[..., 0]

    def _are_multiples(self, numbers: np.ndarray, largest: np.ndarray) -> bool:
        """Whether each block of a column has a scale of which its numbers are multiples by codes."""
        codes = np.arange(1, self.middle + 1, dtype=np.float32)[:, None, None]
        multiples = numbers * codes / np.where(largest == 0, 1, largest)
        return bool((np.abs(multiples - np.rint(multiples)) <= _NEAR * codes).all(-1).any(0).all())

    def decoded(self, codes: np.ndarray, scales: np.ndarray, points: np.ndarray | None = None) -> np.ndarray:
        """The matrix in f64, by the definition.

        Args:
            codes, scales, points: the stored tensors; integers of one byte count as ones without a sign.
        """
        stored = codes.view(np.uint8)
        numbers = (from_planes(stored) if self.bits == IN_PLANES else unpacked(stored, self.bits)).astype(np.float64)
        integers = points.view(np.uint8) if points is not None and points.dtype == np.int8 else points
        origin = self.middle if integers is None else integers[:, :, None].astype(np.float64)
        values = (numbers - origin) * scales[:, :, None].astype(np.float64)
        columns: np.ndarray = values.reshape(self.columns, -1)[:, : self.depth]
        return columns.T


def permits_rounding(task: Task) -> bool:
    """Whether the model permits to round what a layer multiplies by an encoded weight to 8 bits, block by block."""
    return f"{PERMISSION} = true" in task.body


def parts_of_rows(task: Task) -> int:
    """Of how many equal parts of a row that a layer multiplies by an encoded weight at most one is not zero; 1 if
    nothing is known."""
    row = row_of_parts(task)
    return row[1] if row else 1


def row_of_parts(task: Task) -> tuple[int, int] | None:
    """The length of the rows of which ``parts_of_rows`` tells, and the number of their parts; None for other rows."""
    match = re.search(rf'{ATTRIBUTE} = "([\d.]+)".*?{PARTS} = (\d+)', task.body)
    return (BlockEncoding.parse(match[1]).depth, int(match[2])) if match else None


def unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned integers of up to 8 bits, packed along the last axis into bytes without gaps, lowest bits first."""
    if bits == _BYTE:
        return data
    if _BYTE % bits:
        return _across_bytes(data, bits)
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    codes: np.ndarray = (data[..., None] >> shifts) & (2**bits - 1)
    return codes.reshape(*data.shape[:-1], -1)


def _across_bytes(data: np.ndarray, bits: int) -> np.ndarray:
    """As ``unpacked`` for integers that lie across bytes: ``bits`` bytes hold eight of them."""
    filled = np.pad(data, [*[(0, 0)] * (data.ndim - 1), (0, -data.shape[-1] % bits)])
    groups = filled.reshape(*data.shape[:-1], -1, bits).astype(np.uint64)
    words = np.bitwise_or.reduce(groups << np.arange(0, _BYTE * bits, _BYTE, dtype=np.uint64), axis=-1)
    numbers = words[..., None] >> np.arange(0, _BYTE * bits, bits, dtype=np.uint64)
    codes = (numbers & np.uint64(2**bits - 1)).astype(np.uint8).reshape(*data.shape[:-1], -1)
    array: np.ndarray = codes[..., : data.shape[-1] * _BYTE // bits]
    return array


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """The inverse of ``unpacked`` for 2, 4 and 8 bits: the last axis has to fill whole bytes."""
    if bits == _BYTE:
        return codes
    groups = codes.reshape(*codes.shape[:-1], -1, _BYTE // bits).astype(np.uint8)
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    array: np.ndarray = np.bitwise_or.reduce(groups << shifts, axis=-1)
    return array


def in_planes(codes: np.ndarray) -> np.ndarray:
    """Codes of 3 bits ``[…, 32 n]`` as ``[…, 12 n]`` bytes: of each 32 the two lower bits in two words, as ``packed``
    has them, then a word of the highest.

    The highest bit of a code in byte ``b`` at place ``p`` of word ``w`` is bit ``4 w + p`` of byte ``b``, so that masks
    take the same bytes, or halves, out of all three words.
    """
    groups = codes.reshape(*codes.shape[:-1], -1, GROUP_OF_PLANES)
    high = (groups >> 2).reshape(*groups.shape[:-1], _WORDS, _BYTES, _CODES)
    of_bytes = np.moveaxis(high, -2, -3).reshape(*groups.shape[:-1], _BYTES, _BYTE)
    parts = [packed(groups & 3, 2), np.packbits(of_bytes, axis=-1, bitorder="little")[..., 0]]
    return np.concatenate(parts, -1).reshape(*codes.shape[:-1], -1)


def from_planes(data: np.ndarray) -> np.ndarray:
    """The inverse of ``in_planes``."""
    groups = data.reshape(*data.shape[:-1], -1, _LOW_BYTES + _BYTES)
    bits = np.unpackbits(groups[..., _LOW_BYTES:, None], axis=-1, bitorder="little")
    high = np.moveaxis(bits.reshape(*bits.shape[:-1], _WORDS, _CODES), -2, -3)
    low = unpacked(groups[..., :_LOW_BYTES], 2)
    codes: np.ndarray = low | high.reshape(low.shape) << 2
    return codes.reshape(*data.shape[:-1], -1)
