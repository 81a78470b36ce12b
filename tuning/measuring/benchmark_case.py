"""A benchmark case: variants that are measured together, those of one task or one adapt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.digest import digest
from sartor.codegen.ir.layer import F32, TensorType
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.linking.adapts import AdaptKind
from sartor.codegen.linking.names import REPEATS
from sartor.tuning.records.measurement import CALL_MARK, CALLS_MARK

ADAPT_ROUTINE = "adapt"

SHORT_SECONDS = 5e-4
"""Variants below this are called several times in a row, because the cost of a call varies by as much."""

# Blocks of up to 32 MiB stay in the heap (``runtime/mapping/heap.py``); half of it may be in use by others.
_KEPT_BYTES = 16 << 20


@dataclass(frozen=True)
class CaseCall:
    """Calls of a case of open sizes with some of them.

    Attributes:
        of: the sizes, and how many of all calls have them.
        facts, integers: as of the case, for these sizes.
    """

    of: SizedCall
    facts: str = ""
    integers: tuple[range | None, ...] = ()


@dataclass(frozen=True)
class BenchmarkCase:
    """Variants that compute the same; the first is the baseline.

    Attributes:
        key: the task's key, or that of an adapt.
        inputs: ONNX types of the activations.
        weights: ONNX types of the weights.
        results: ONNX types of the results.
        variants: candidate 0 first.
        facts: of the task, as ``task_facts`` writes them; empty for adapts and probes.
        integers: ranges of the activations, then of the weights, as ``integer_ranges`` gives them; empty for no bounds.
        step: change of a result when a number next to a rounding tie falls to the other side; 0 without rounding.
        calls: with which sizes a case of open ones is measured, the largest first; empty if it is with the largest
            alone. A time is then the mean of these calls', and ``facts`` are means as well.
        sizes: what sizes the symbols of the variants' code have, by name; others have the largest.
        row_of_parts: the length of rows of which one of several parts is not zero, and the number of these; None if
            there are none.
    """

    key: str
    inputs: tuple[TensorType, ...]
    weights: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    variants: tuple[Variant, ...]
    facts: str = ""
    integers: tuple[range | None, ...] = ()
    step: float = 0.0
    calls: tuple[CaseCall, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    row_of_parts: tuple[int, int] | None = None

    @property
    def stored_key(self) -> str:
        """The task's key and the calls whose mean time is measured."""
        return f"{self.key}{CALLS_MARK}{'; '.join(str(call.of) for call in self.calls)}" if self.calls else self.key

    @property
    def timed(self) -> tuple[CaseCall, ...]:
        """The calls whose time counts."""
        return tuple(call for call in self.calls if call.of.share)

    def key_at(self, call: CaseCall) -> str:
        """The task's key and the sizes of one call, whatever its share."""
        return f"{self.key}{CALL_MARK}{call.of.named}"

    def at(self, call: CaseCall) -> BenchmarkCase:
        """The case with the sizes of a call."""
        sizes = call.of.by_name
        inputs, results = (tuple(tensor.at(sizes) for tensor in types) for types in (self.inputs, self.results))
        facts, integers = call.facts, call.integers
        return replace(
            self, inputs=inputs, results=results, facts=facts, integers=integers, calls=(), sizes=call.of.sizes
        )

    def size_of(self, symbol: Symbol) -> int:
        """The size that a symbol has."""
        return dict(self.sizes).get(symbol.name, symbol.most)

    def packed_bytes(self, variant: Variant) -> int:
        """Bytes of the weights as one of the variants reads them."""
        pairs = zip(variant.implementation.packings, self.weights, strict=True)
        return sum(packing.type_of(logical).bytes for packing, logical in pairs)


def adapt_case(kind: AdaptKind, calls: Sequence[SizedCall] = ()) -> BenchmarkCase:
    """A conversion as something to measure; one of any size with those of the calls that count."""
    device, dtype = kind.source.device, kind.source.dtype
    descriptor = f"{device}:{dtype}/{ADAPT_ROUTINE}.transpose{{{kind.source}->{kind.target}}}"
    variant = Variant(descriptor, device, dtype, kind.implementation())
    sized = tuple(map(CaseCall, calls)) if kind.dims else ()
    return BenchmarkCase(kind.key, (kind.logical,), (), (kind.logical,), (variant,), calls=sized)


def _probe() -> BenchmarkCase:
    tensor = TensorType((16,), F32)
    body = """util.func public @layer(%arg0: tensor<16xf32>) -> tensor<16xf32> {
  %empty = tensor.empty() : tensor<16xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
      iterator_types = ["parallel"]} ins(%arg0 : tensor<16xf32>) outs(%empty : tensor<16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %twice = arith.addf %in, %in : f32
    linalg.yield %twice : f32
  } -> tensor<16xf32>
  util.return %sum : tensor<16xf32>
}"""
    schema = Schema.plain(tensor, "any")
    variant = Variant("probe", schema.device, F32, Implementation(body, (schema,), (schema,), ()))
    return BenchmarkCase("probe", (tensor,), (), (tensor,), (variant,))


PROBE = _probe()
"""One dispatch with almost no work: its time is the cost of a call."""


def may_be_short(case: BenchmarkCase, *, is_cpu: bool) -> bool:
    """Whether a variant of the case may be so fast that it is called several times in a row, by the least time that its
    task can take, with any of the sizes that it is called with.

    On a GPU every case may: a call costs as much as most layers take, and how fast GPUs are is not known here. On a CPU
    one with large results counts as long: those of several calls in a row are one block of memory, which the C
    library gives back after each run, and to bring it in again takes longer than the calls.
    """
    if not is_cpu:
        return True
    if case.calls:
        return any(may_be_short(case.at(call), is_cpu=True) for call in case.calls)
    if REPEATS * sum(result.bytes for result in case.results) > _KEPT_BYTES:
        return False
    return not case.facts or ideal_seconds(case.facts) < SHORT_SECONDS


def symbol_of(key: str, variant: Variant) -> str:
    """The name of a variant's function in modules; the same wherever the same code is used."""
    return f"s{digest(key, variant.descriptor, variant.implementation.digest)}"
