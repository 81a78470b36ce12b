"""CPU features that a module can ask for when it is loaded, whatever program loads it."""

from __future__ import annotations

from collections.abc import Iterable

# IREE's runtime answers these by LLVM's names (runtime/src/iree/schemas/cpu_feature_bits.inl).
_ANSWERED = frozenset(
    {
        *("sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "avx", "fma", "fma4", "xop", "f16c", "avx2"),
        *("avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw", "avx512ifma", "avx512vbmi", "avx512vpopcntdq"),
        *("avx512vnni", "avx512vbmi2", "avx512bitalg", "avx512bf16", "avx512fp16"),
        *("amx-tile", "amx-int8", "amx-bf16"),
        *("fp-armv8", "lse", "lse128", "fullfp16", "fp16fml", "dotprod", "i8mm", "bf16"),
        *("sve", "sve2", "sve2p1", "sve2-bitperm", "f32mm", "f64mm"),
        *("sme", "sme2", "sme2p1", "sme-f16f16", "sme-f64f64", "sme-i16i64"),
    }
)
# What every CPU of an instruction set has.
_ALWAYS = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87", "neon", "v8a", "outline-atomics"})


def queried(features: Iterable[str]) -> tuple[str, ...]:
    """Those of ``features``, by LLVM's names, that a module can ask for, sorted."""
    return tuple(sorted(_ANSWERED.intersection(features)))


def unknowable(features: Iterable[str]) -> tuple[str, ...]:
    """Those of ``features`` that a CPU may lack and a module cannot ask for, sorted: code that must not fault does
    without them."""
    return tuple(sorted({*features} - _ANSWERED - _ALWAYS))
