"""What ``ldmatrix`` and ``mma.sync`` do, by the PTX ISA, section "Warp-level matrix instructions"."""

from __future__ import annotations

import numpy as np

from sartor.codegen.ir.machines.cuda import WARP

_LANE = np.arange(WARP)
_GROUP, _QUAD = _LANE // 4, _LANE % 4
# Of a number of TF32, 19 bits are read.
_TF32 = np.uint32(0xFFFFE000)


def row_places(offsets: np.ndarray, elements: int, count: int) -> np.ndarray:
    """Places of the matrices that each warp loads, ``[warps, matrices, rows, elements]``.

    Args:
        offsets: of each thread; lane ``8 m + r`` gives row ``r`` of matrix ``m``.
        elements: of a row of 16 bytes.
        count: matrices.
    """
    starts = offsets.reshape(-1, WARP)[:, : 8 * count].reshape(-1, count, 8)
    places: np.ndarray = starts[..., None] + np.arange(elements)
    return places


def to_lanes(rows: np.ndarray) -> np.ndarray:
    """Fragments of loaded matrices, ``[threads, matrices, elements of four bytes]``: lane ``l`` gets of each matrix the
    word ``l % 4`` of row ``l / 4``."""
    warps, count, _, elements = rows.shape
    words = rows.reshape(warps, count, 8 * 4, elements // 4)
    found: np.ndarray = words.transpose(0, 2, 1, 3).reshape(warps * WARP, count, elements // 4)
    return found


def multiply(left: np.ndarray, right: np.ndarray, total: np.ndarray, *, is_tf32: bool) -> np.ndarray:
    """``total + left * right`` of fragments ``[threads, registers, elements]``; products are exact, and their sum is
    rounded once."""
    if is_tf32:
        left, right = (_cut(each) for each in (left, right))
    one, other = _left_matrix(left.astype(np.float64)), _right_matrix(right.astype(np.float64))
    product = one @ other
    rows, columns = _sum_places()
    warps = product.shape[0]
    found = product[:, rows, columns].reshape(warps * WARP, 2, 2)
    added: np.ndarray = (total.astype(np.float64) + found).astype(total.dtype)
    return added


def _cut(numbers: np.ndarray) -> np.ndarray:
    """Numbers of f32 as TF32, their last 13 bits being left out."""
    return (numbers.astype(np.float32).view(np.uint32) & _TF32).view(np.float32)


def _left_matrix(fragment: np.ndarray) -> np.ndarray:
    """``[warps, 16, depth]``."""
    registers, elements = fragment.shape[1:]
    depth = 8 * elements
    matrix = np.zeros((fragment.shape[0] // WARP, 16, depth))
    parts = fragment.reshape(-1, WARP, registers, elements)
    for register in range(registers):
        for element in range(elements):
            rows = _GROUP + 8 * (register % 2)
            columns = _QUAD * elements + element + depth // 2 * (register // 2)
            matrix[:, rows, columns] = parts[:, :, register, element]
    return matrix


def _right_matrix(fragment: np.ndarray) -> np.ndarray:
    """``[warps, depth, 8]``."""
    registers, elements = fragment.shape[1:]
    depth = 8 * elements
    matrix = np.zeros((fragment.shape[0] // WARP, depth, 8))
    parts = fragment.reshape(-1, WARP, registers, elements)
    for register in range(registers):
        for element in range(elements):
            rows = _QUAD * elements + element + depth // 2 * register
            matrix[:, rows, _GROUP] = parts[:, :, register, element]
    return matrix


def _sum_places() -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the sums of each lane, ``[lanes, 2, 2]``."""
    rows = _GROUP[:, None, None] + 8 * np.arange(2)[None, :, None]
    columns = 2 * _QUAD[:, None, None] + np.arange(2)[None, None, :]
    return tuple(np.broadcast_arrays(rows, columns))  # type: ignore[return-value]
