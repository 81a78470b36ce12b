"""The formats of routines: element types, layouts, how weights are stored, and what multiplies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.schema import QUANTISED
from sartor.codegen.ir.variants.formats import BLOCKS, Format, Layout
from sartor.codegen.kernels.isa.amx import BFLOAT, INTEGER
from sartor.codegen.kernels.isa.byte_pairs import BYTE_PAIRS
from sartor.codegen.kernels.isa.half_pairs import HALF_PAIRS
from sartor.codegen.kernels.isa.multipliers import BFLOAT_DOTS, INTEGER_DOTS
from sartor.codegen.kernels.isa.pairs import PAIRS
from sartor.codegen.kernels.isa.small_pairs import SMALL_PAIRS
from sartor.codegen.kernels.isa.word_pairs import WIDE_WORD_PAIRS, WORD_PAIRS
from sartor.codegen.kernels.isa.word_sums import PAIR_SUMS, WORD_DOTS
from sartor.codegen.routines.iree.stored import Stored
from sartor.codegen.routines.storing.half import Half
from sartor.codegen.routines.storing.integers import IntegerFactor, IntegerResult, WholeKernelResult
from sartor.codegen.routines.vector.neon_dots import BFDOT, BFMMLA, SDOT, SMMLA
from sartor.devices import CPU, CUDA, VULKAN

_CPU, _VULKAN, _CUDA = (CPU,), (VULKAN,), (CUDA,)
_ENDS = "of operands in 8 bits only products give f32, which ends a network"
_LOADED = "only direct convolutions and products widen weights where they read them"
_INSTRUCTION = "only register tiles and Winograd's products are written for groups of numbers"
_TILES = "AMX's tiles are filled by kernels of their own"
_STRIPS = "numbers are widened to 16 bits first, by kernels of their own"
_NEON = "one routine has both convolutions and products by it"
_DECODED = "codes in blocks are decoded by kernels of their own"
_LOOKED_UP = "how wide a panel is matters to look-ups alone"
_CONVERTED = "conversions stand around code by IREE alone"
_QUANTISED = "an operand alone is quantised only where a product reads it"
_UNMOVED = "only views leave all numbers where they are"
_AT_RUN_TIME = "models that find ranges at run time quantise what products read"

OWN = Format("own types")
BLOCKED = Format("own types in blocks of channels", "_blocked", layout=Layout.BLOCKED, devices=_CPU)
PLANES = Format("own types in planes", "_planes", layout=Layout.PLANES)
FROM_LAST = Format("own types, read with channels last", "_from_last", only=_UNMOVED)
TO_LAST = replace(FROM_LAST, name="own types, written with channels last", suffix="_to_last")
BETWEEN_LAST = replace(FROM_LAST, name="own types, with channels last", suffix="_between_last")

# Filters in fewer bytes, which are widened where they are read.
BY_F16 = Format("weights in f16", "_by_f16", weights="f16", devices=_CPU, only=_LOADED)
BY_BF16 = Format("weights in bf16", "_by_bf16", weights="bf16", devices=_CPU, only=_LOADED)
BY_I8 = Format("weights in 8 bits", "_by_i8", weights=QUANTISED, devices=_CPU, only=_LOADED)


def _in_blocks_of_channels(form: Format) -> Format:
    name, suffix = f"{form.name}, in blocks of channels", f"{form.suffix}_blocked"
    return replace(form, name=name, suffix=suffix, layout=Layout.BLOCKED)


BY_F16_BLOCKED, BY_BF16_BLOCKED, BY_I8_BLOCKED = map(_in_blocks_of_channels, (BY_F16, BY_BF16, BY_I8))
PAIRED = Format(
    "pairs of channels",
    "_pairs",
    instruction=PAIRS,
    devices=_VULKAN,
    only="only direct convolutions and products load pairs",
)

# Weights that the model has in blocks of integers; then weights of floats that are rounded to them.
IN_BLOCKS = Format("blocks of integers", weights=BLOCKS, only=_DECODED)
WORD_BLOCKS = replace(
    IN_BLOCKS, name="blocks by rows of 16 bits", product="block_words", instruction=WORD_DOTS, devices=_CPU
)
PAIR_BLOCKS = replace(
    WORD_BLOCKS, name="blocks by pairs of rows of 16 bits", product="block_word_pairs", instruction=PAIR_SUMS
)
DOT_BLOCKS = replace(
    WORD_BLOCKS,
    name="blocks by rows of 8 bits",
    product="block_dots",
    storage=QUANTISED,
    instruction=INTEGER_DOTS,
)
BYTE_BLOCKS = replace(
    DOT_BLOCKS, name="blocks by pairs of rows of 8 bits", product="block_byte_pairs", instruction=BYTE_PAIRS
)
NEON_BLOCKS = replace(DOT_BLOCKS, name="blocks by rows of 8 bits, SDOT", product="block_neon_dots", instruction=SDOT)
ROUNDED_BLOCKS = tuple(
    Format(f"weights rounded to blocks of {block}", "_by_i4", weights=dtype, block=block, devices=_CPU, only=_DECODED)
    for block, dtype in FOUR_BITS.items()
)
ROUNDED_WORD_BLOCKS, ROUNDED_PAIR_BLOCKS = (
    tuple(replace(form, name=f"{form.name} by {rows}", instruction=element) for form in ROUNDED_BLOCKS)
    for rows, element in (("rows of 16 bits", WORD_DOTS), ("pairs of rows of 16 bits", PAIR_SUMS))
)
PANELS = tuple(
    Format(f"blocks of integers in panels of {count}", vectors=count, only=_LOOKED_UP) for count in (8, 4, 2, 1)
)
TABLES = tuple(
    Format(f"floats in panels of {count}" if count else "floats in rows", vectors=count, devices=_CPU, only=_LOOKED_UP)
    for count in (0, 4, 3, 2, 1, 6, 8)
)

# Models in f16: loads widen and stores round.
HALF = Format("f16 models", element="f16", devices=_CPU, wrap=Half)
HALF_BLOCKED = _in_blocks_of_channels(HALF)
HALF_PLANES = replace(HALF, name="f16 models, in planes", suffix="_planes", layout=Layout.PLANES)
HALF_VULKAN = Format(
    "f16 models on Vulkan",
    element="f16",
    devices=_VULKAN,
    wrap=partial(Half, devices=_VULKAN),
    only="what multiplies takes f16 there as it is stored",
)
HALF_PRODUCTS = replace(
    HALF_VULKAN, name="f16 models on Vulkan, multiplied in f16", storage="f16", only="it multiplies nothing"
)
HALF_CUDA = replace(HALF_PRODUCTS, name="f16 models on CUDA", devices=_CUDA, wrap=partial(Half, devices=_CUDA))

TF32 = Format("products in TF32", arithmetic="tf32", devices=_CUDA)

BF16 = Format("bf16", storage="bf16")
BF16_BY_BF16 = replace(BF16, name="bf16, weights too", suffix="_by_bf16", weights="bf16", devices=_CPU, only=_LOADED)
BF16_TILES = replace(BF16, name="bf16 by AMX", product="tiles", instruction=BFLOAT, devices=_CPU, only=_TILES)
BF16_TILES_TO_I8 = replace(BF16_TILES, name="bf16 to 8 bits by AMX", product="tiles_of_bf16", result=QUANTISED)
BF16_DOTS = Format(
    "bf16 by dot products", "_dots", "dots", storage="bf16", instruction=BFLOAT_DOTS, devices=_CPU, only=_INSTRUCTION
)
BF16_NEON = replace(BF16_DOTS, name="bf16 by BFDOT", suffix="_neon", product="neon_dots", instruction=BFDOT, only=_NEON)
BF16_MATRIX = replace(BF16_NEON, name="bf16 by BFMMLA", product="neon_matrix_dots", instruction=BFMMLA)
BF16_STORED = Format("bf16 around f32", element="bf16", wrap=partial(Stored, storage="bf16"), only=_CONVERTED)

I8 = Format("8 bits", storage=QUANTISED)
I8_TO_F32 = replace(I8, name="8 bits to f32", suffix="_to_f32", result="f32", only=_ENDS)
I8_TILES = replace(I8, name="8 bits by AMX", product="tiles", instruction=INTEGER, devices=_CPU, only=_TILES)
I8_TILES_TO_F32 = replace(I8_TILES, name="8 bits to f32 by AMX", product="tiles_to_f32", result="f32", only=_ENDS)
I8_DOTS = Format(
    "8 bits by dot products",
    "_bytes",
    "dots",
    storage=QUANTISED,
    instruction=INTEGER_DOTS,
    devices=_CPU,
    only=_INSTRUCTION,
)
I8_DOTS_TO_F32 = replace(I8_DOTS, name="8 bits to f32 by dot products", product="dots_to_f32", result="f32", only=_ENDS)
I8_BFLOAT = replace(
    I8_DOTS,
    name="8 bits by dot products in bf16",
    suffix="_dots",
    instruction=BFLOAT_DOTS,
    only="transformed tiles of 8 bits, and those alone, need it",
)
I8_SMALL_PAIRS = replace(I8_DOTS, name="8 bits by small pairs", product="byte_pairs", instruction=SMALL_PAIRS)
I8_SMALL_PAIRS_TO_F32 = replace(
    I8_SMALL_PAIRS, name="8 bits to f32 by small pairs", product="byte_pairs_to_f32", result="f32", only=_ENDS
)
I8_WORD_PAIRS = replace(
    I8_DOTS, name="8 bits by pairs of 16 bits", suffix="", product="word_pairs", instruction=WORD_PAIRS, only=_STRIPS
)
I8_WIDE_WORD_PAIRS = replace(
    I8_WORD_PAIRS, name="8 bits by pairs of 16 bits in memory", product="wide_word_pairs", instruction=WIDE_WORD_PAIRS
)
I8_WORD_PAIRS_TO_F32 = replace(
    I8_WORD_PAIRS, name="8 bits to f32 by pairs of 16 bits", product="word_pairs_to_f32", result="f32", only=_ENDS
)
I8_NEON = replace(I8_DOTS, name="8 bits by SDOT", product="neon_dots", instruction=SDOT, only=_NEON)
I8_MATRIX = replace(I8_NEON, name="8 bits by SMMLA", product="neon_matrix_dots", instruction=SMMLA)
I8_STORED = Format("8 bits around f32", element=QUANTISED, wrap=partial(Stored, storage=QUANTISED), only=_CONVERTED)

F16 = Format("f16", storage="f16")
F16_PAIRS = Format(
    "f16 by pairs", "_pairs", "half_pairs", storage="f16", instruction=HALF_PAIRS, devices=_CPU, only=_INSTRUCTION
)
F16_BY_F16 = replace(F16, name="f16, weights too", suffix="_by_f16", weights="f16", devices=_CPU, only=_LOADED)
F16_STORED = Format("f16 around f32", element="f16", wrap=partial(Stored, storage="f16"), only=_CONVERTED)


def _factor(form: Format) -> Format:
    wrap = partial(IntegerFactor, calibrated=True)
    return replace(form, name=f"one operand in {form.name}", wrap=wrap, only=_QUANTISED)


def _whole(form: Format) -> Format:
    return replace(form, name=f"one operand in {form.name}, ranges at run time", wrap=IntegerFactor, only=_AT_RUN_TIME)


FACTOR_DOTS, FACTOR_WORD_PAIRS = map(_factor, (I8_DOTS, I8_WORD_PAIRS))
"""Only the operand that weights multiply has 8 bits, by ranges found on samples."""
WHOLE, WHOLE_TILES, WHOLE_DOTS, WHOLE_WORD_PAIRS = map(_whole, (I8, I8_TILES, I8_DOTS, I8_WORD_PAIRS))
WHOLE_NEON, WHOLE_MATRIX = map(_whole, (I8_NEON, I8_MATRIX))
"""The same for models that find ranges at run time."""
TO_WHOLE = Format("results in 8 bits, ranges at run time", wrap=IntegerResult, only=_AT_RUN_TIME)
KERNEL_TO_WHOLE = replace(TO_WHOLE, name="results of rows in 8 bits, ranges at run time", wrap=WholeKernelResult)
