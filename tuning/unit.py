"""What is measured together: the variants of one task, or one adapt."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sartor.codegen.adapt import adapt
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import PLAIN, same_bytes
from sartor.codegen.routine import Implementation, Variant
from sartor.codegen.schema import Schema, form_in
from sartor.codegen.target import Target
from sartor.tuning.task_bounds import ideal_seconds

ADAPT_ROUTINE = "adapt"

SHORT_SECONDS = 5e-4
"""A variant that takes less is called several times in a row: what a call costs varies by as much."""


@dataclass(frozen=True)
class Unit:
    """Variants that compute the same; the first is the baseline.

    Attributes:
        key: the task's key, or that of an adapt.
        inputs: ONNX types of the activations.
        weights: ONNX types of the weights.
        results: ONNX types of the results.
        variants: candidate 0 first.
        facts: of the task, as ``task_facts`` writes them; empty for what is no layer.
        integers: which the activations, then the weights, may hold, as ``integer_ranges`` gives them; empty if any.
        step: what a number next to a tie may move the results by; 0 where nothing is rounded.
    """

    key: str
    inputs: tuple[TensorType, ...]
    weights: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    variants: tuple[Variant, ...]
    facts: str = ""
    integers: tuple[range | None, ...] = ()
    step: float = 0.0


@dataclass(frozen=True, order=True)
class AdaptKind:
    """A conversion: of a tensor of this ONNX type, from one schema to another."""

    tensor: str
    source: Schema
    target: Schema

    @property
    def logical(self) -> TensorType:
        return TensorType.parse(self.tensor)

    @property
    def key(self) -> str:
        return digest("adapt", self.tensor, str(self.source), str(self.target))

    @property
    def symbol(self) -> str:
        """With which its dispatches in a module begin."""
        return f"s{self.key}"

    @property
    def forms(self) -> tuple[str, str]:
        """Form before and after."""
        return form_in(self.source, self.logical), form_in(self.target, self.logical)

    @property
    def is_free(self) -> bool:
        """Whether the bytes stay as they are."""
        return same_bytes(self.logical, *self.forms)

    def implementation(self) -> Implementation:
        return adapt(self.logical, *self.forms)

    def unit(self, target: Target) -> Unit:
        """The adapt as something to measure."""
        descriptor = f"{target.device}:{self.source.dtype}/{ADAPT_ROUTINE}.transpose{{{self.source}->{self.target}}}"
        variant = Variant(descriptor, target.device, self.source.dtype, self.implementation())
        return Unit(self.key, (self.logical,), (), (self.logical,), (variant,))


def _probe() -> Unit:
    tensor = TensorType((16,), "f32")
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
    variant = Variant("probe", "any", "f32", Implementation(body, (PLAIN,), PLAIN, ()))
    return Unit("probe", (tensor,), (), (tensor,), (variant,))


PROBE = _probe()
"""One dispatch that does next to nothing: how long it takes is what a call costs."""


def digest(*parts: str) -> str:
    """A short stable hash."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def may_be_short(unit: Unit) -> bool:
    """Whether a variant of the unit may take so little that it has to be called several times in a row."""
    return not unit.facts or ideal_seconds(unit.facts) < SHORT_SECONDS


def source_hash(implementation: Implementation) -> str:
    """Hash of everything a variant emits: its MLIR, layouts and packing; of a kernel, what its MLIR depends on."""
    packings = "|".join(map(str, implementation.packings))
    kernel = (implementation.kernel.identity,) if implementation.kernel else ()
    return digest(implementation.body, *implementation.inputs, implementation.output, packings, *kernel)


def symbol_of(key: str, variant: Variant) -> str:
    """The name of a variant's function in modules; the same wherever the same code is used."""
    return f"s{digest(key, variant.descriptor, source_hash(variant.implementation))}"
