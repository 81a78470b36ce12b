"""The list of all routines, candidate 0 first, and selections from it: which algorithms exist in which formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sartor.codegen.ir.variants.formats import Row
from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.routines import algorithms as by
from sartor.codegen.routines import formats as of

_CONTRACTIONS = (by.DIRECT, by.PRODUCT)
_FEW = (by.SINGLE, by.FEW)
_JOINS = (by.JOIN, by.JOIN_SLICES, by.JOIN_ENLARGED)
_MOVING = (by.WINDOW, *_JOINS, by.ROWWISE)
_LOWERED = (by.STOCK, by.CHANNELS_LAST)
_STRIPS = (by.WORD_CONVOLUTION, by.WORD_PRODUCT)
_TILES = (by.TILE_CONVOLUTION, by.TILE_PRODUCT)
_ON_CUDA = (by.IMPLICIT, by.IREE_IMPLICIT, by.THREAD_WINDOW, by.WARP_ROW)
_CUDA_KERNELS = (by.IMPLICIT, by.THREAD_WINDOW, by.WARP_ROW)

TABLE: tuple[Row, ...] = (
    Row((by.STOCK,), (of.OWN,)),
    # Kernels of our own.
    Row((by.DIRECT,), (of.OWN, of.BLOCKED)),
    Row((by.PRODUCT,), (of.OWN,)),
    # The same by filters in fewer bytes, which are widened where they are read.
    Row((by.DIRECT,), (of.BY_F16, of.BY_F16_BLOCKED)),
    Row((by.PRODUCT,), (of.BY_F16,)),
    Row((by.DIRECT,), (of.BY_BF16, of.BY_BF16_BLOCKED)),
    Row((by.PRODUCT,), (of.BY_BF16,)),
    Row(_CONTRACTIONS, (of.PAIRED,)),
    Row((by.WINDOW,), (of.OWN, of.BLOCKED)),
    Row(_FEW, (of.OWN, of.BLOCKED, of.PLANES)),
    Row((by.FUSED_WINOGRAD, by.TRANSFORMING_WINOGRAD), (of.OWN, of.BLOCKED)),
    Row((by.SUBGROUP_WINOGRAD,), (of.OWN,)),
    Row(_JOINS, (of.OWN, of.BLOCKED)),
    Row((by.ROWWISE, by.RECURRENT), (of.OWN,)),
    Row((by.OPEN_WINDOW, by.OPEN_PATCHES, by.OPEN_TRANSPOSE, by.OPEN_JOIN), (of.OWN,)),
    # By weights in blocks of integers, and look-ups in them.
    Row((by.BLOCK_PRODUCT, by.BLOCK_PANELS), (of.IN_BLOCKS,)),
    Row((by.BLOCK_WORDS,), (of.WORD_BLOCKS, of.PAIR_BLOCKS)),
    Row((by.LOOKED_UP_COLUMNS,), of.PANELS),
    # In tables of floats that are weights of products.
    Row((by.LOOKED_UP_TABLES,), of.TABLES),
    # For models in f16.
    Row((by.DIRECT,), (of.HALF, of.HALF_BLOCKED)),
    Row((by.PRODUCT,), (of.HALF,)),
    Row((by.WINDOW,), (of.HALF, of.HALF_BLOCKED)),
    Row(_FEW, (of.HALF, of.HALF_BLOCKED, of.HALF_PLANES)),
    Row((by.FUSED_WINOGRAD, *_JOINS), (of.HALF, of.HALF_BLOCKED)),
    Row((by.ROWWISE,), (of.HALF,)),
    Row(_CONTRACTIONS, (of.HALF_PRODUCTS,)),
    Row((by.WINDOW, by.JOIN, by.ROWWISE), (of.HALF_VULKAN,)),
    Row(_CUDA_KERNELS, (of.HALF_CUDA,)),
    # Code by IREE, with other layouts and tiles than candidate 0.
    Row((by.TILED_MATMUL,), (of.OWN,)),
    Row((by.REGION,), (of.OWN, of.PLANES)),
    Row((by.WINOGRAD, by.CHANNELS_LAST, by.BLOCKED_CHANNELS), (of.OWN,)),
    Row((by.IM2COL_MATMUL, by.TRANSPOSED), (of.OWN,)),
    Row((by.VIEW,), (of.FROM_LAST, of.TO_LAST, of.BETWEEN_LAST)),
    # Kernels of our own for CUDA.
    Row(_ON_CUDA, (of.OWN,)),
    # For fused tasks.
    Row((by.SEPARABLE,), (of.OWN, of.BLOCKED)),
    Row((by.TENSOR_SEPARABLE,), (of.OWN, of.TF32, of.BF16, of.F16)),
    Row((by.OPEN_ATTENTION, by.BLOCKED_ATTENTION, by.OPEN_CONVOLUTION, by.OPEN_WINOGRAD), (of.OWN,)),
    Row((by.CONVOLUTION_OR_WINOGRAD, by.WINOGRAD_BY_SIZE), (of.OWN,)),
    Row((by.FUSED_OPEN_WINDOW, by.OPEN_SEPARABLE, by.OPEN_JOINED_PRODUCT, by.OPEN_STRIPS), (of.OWN,)),
    Row((by.TENSOR_ATTENTION,), (of.OWN, of.TF32, of.BF16, of.F16)),
    # With products of f32 rounded to TF32.
    Row((by.IMPLICIT,), (of.TF32,)),
    # With activations in bf16.
    Row(_TILES, (of.BF16_TILES,)),
    Row((*_CONTRACTIONS, by.FUSED_WINOGRAD), (of.BF16_DOTS,)),
    Row((by.NEON,), (of.BF16_MATRIX, of.BF16_NEON)),
    Row((by.FUSED_WINOGRAD,), (of.BF16_NEON,)),
    Row((*_ON_CUDA, by.FUSED_WINOGRAD, *_CONTRACTIONS), (of.BF16,)),
    Row(_CONTRACTIONS, (of.BF16_BY_BF16,)),
    Row(_MOVING, (of.BF16,)),
    Row(_LOWERED, (of.BF16_STORED,)),
    # With activations in 8 bits.
    Row((by.IMPLICIT,), (of.I8, of.I8_TO_F32)),
    Row((by.THREAD_WINDOW,), (of.I8,)),
    Row((by.TILE_CONVOLUTION,), (of.I8_TILES, of.BF16_TILES_TO_I8)),
    Row((by.TILE_PRODUCT,), (of.I8_TILES, of.I8_TILES_TO_F32)),
    Row((by.DIRECT,), (of.I8_DOTS,)),
    Row((by.PRODUCT,), (of.I8_DOTS, of.I8_DOTS_TO_F32)),
    Row((by.ROW_DOTS,), (of.I8_DOTS,)),
    Row((by.BLOCK_DOTS,), (of.DOT_BLOCKS, of.BYTE_BLOCKS, of.NEON_BLOCKS)),
    # With filters in 8 bits, which are widened where they are read, and all else in the model's own types.
    Row((by.DIRECT,), (of.BY_I8, of.BY_I8_BLOCKED)),
    Row((by.PRODUCT,), (of.BY_I8,)),
    # With weights in blocks of 4 bits, which are decoded where they are read, and all else in the model's own types.
    Row((by.BLOCK_PRODUCT, by.BLOCK_PANELS), of.ROUNDED_BLOCKS),
    Row((by.BLOCK_WORDS,), (*of.ROUNDED_WORD_BLOCKS, *of.ROUNDED_PAIR_BLOCKS)),
    Row((by.PRODUCT,), (of.FACTOR_DOTS,)),
    Row((by.FUSED_WINOGRAD,), (of.I8_BFLOAT, of.I8_DOTS)),
    # Before windows that take as long by a model, where what they read and write decides.
    Row((by.WORD_WINDOW,), (of.I8_WIDE_WORD_PAIRS,)),
    Row((*_CONTRACTIONS, by.CONVERTED_WINDOW, *_MOVING, by.ELEMENTWISE, by.TABLE), (of.I8,)),
    Row(_LOWERED, (of.I8_STORED,)),
    Row((by.NEON,), (of.I8_MATRIX, of.I8_NEON, of.WHOLE_MATRIX, of.WHOLE_NEON)),
    Row((by.WORD_WINOGRAD,), (of.I8_WORD_PAIRS,)),
    Row((by.DIRECT,), (of.I8_SMALL_PAIRS,)),
    Row((by.PRODUCT,), (of.I8_SMALL_PAIRS, of.I8_SMALL_PAIRS_TO_F32)),
    Row((by.WORD_CONVOLUTION,), (of.I8_WIDE_WORD_PAIRS, of.I8_WORD_PAIRS)),
    Row((by.WORD_PRODUCT,), (of.I8_WIDE_WORD_PAIRS, of.I8_WORD_PAIRS, of.I8_WORD_PAIRS_TO_F32, of.FACTOR_WORD_PAIRS)),
    # For models that find quantisation ranges at run time.
    Row(_STRIPS, (of.WHOLE_WORD_PAIRS,)),
    Row(_TILES, (of.WHOLE_TILES,)),
    Row(_CONTRACTIONS, (of.WHOLE_DOTS,)),
    Row(_CONTRACTIONS, (of.WHOLE,)),
    Row(_LOWERED, (of.TO_WHOLE,)),
    Row((by.ROWWISE,), (of.KERNEL_TO_WHOLE,)),
    # With activations in f16.
    Row(_ON_CUDA, (of.F16,)),
    Row((by.COOPERATIVE, by.COOPERATIVE_PATCHES), (of.F16,)),
    Row(_CONTRACTIONS, (of.F16_PAIRS,)),
    Row(_CONTRACTIONS, (of.F16,)),
    Row(_CONTRACTIONS, (of.F16_BY_F16,)),
    Row(_MOVING, (of.F16,)),
    Row(_LOWERED, (of.F16_STORED,)),
)
"""Which algorithms exist in which formats, in the order in which their routines are asked; ``absences`` says why others
do not."""

PAIRS = tuple(pair for row in TABLE for pair in row.pairs)
"""The pairs of algorithms and formats that there are."""

ROUTINES: tuple[Routine, ...] = tuple(algorithm.routine(form) for algorithm, form in PAIRS)
"""The routines of all pairs. Their traits tell which models and layers they are for."""

FUSED_ROUTINES: tuple[Routine, ...] = (ROUTINES[0], *(routine for routine in ROUTINES if routine.traits.fuses))
"""Routines for fused tasks, after candidate 0."""

_UNFUSED = tuple(routine for routine in ROUTINES if not routine.traits.fuses)

LOW_PRECISION: Mapping[str, tuple[Routine, ...]] = {
    dtype: tuple(routine for routine in _UNFUSED if routine.traits.precision == dtype)
    for dtype in dict.fromkeys(routine.traits.precision for routine in _UNFUSED)
    if dtype is not None
}
"""Routines that round to a narrower type what they store or multiply, by that type."""


def routines_for(types: Iterable[str]) -> tuple[Routine, ...]:
    """Routines for tasks that are not fused: those in the model's own types, then those that store in ``types``."""
    own = (routine for routine in _UNFUSED if routine.traits.precision is None)
    return (*own, *(routine for dtype in types for routine in LOW_PRECISION.get(dtype, ())))
