"""Rank correlation of the analytic model with executed instructions, on variants of layers for AArch64.

``python -m benchmarks.emulation --cpu neoverse-v1``, with ``SARTOR_AARCH64_RUNTIME`` as CONTRIBUTING.md says. Emulators
are no clocks, but what executes fewer instructions of the same kinds is mostly faster.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx

from benchmarks.emulation.counter import InstructionCounter
from benchmarks.emulation.layers import LAYERS
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.linking.bench_module import physical_signature
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.filters.shortlist import shortlisted
from sartor.errors import CompileError
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, symbol_of
from sartor.tuning.measuring.compile_job import compile_case
from sartor.tuning.search.features import analytic_seconds


@dataclass(frozen=True)
class Counted:
    """A variant of a layer with its executed instructions and its analytic cycles."""

    layer: str
    variant: str
    instructions: float
    cycles: float


def main() -> None:
    """Count, print all variants and the rank correlations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", default="neoverse-v1", help="LLVM's name of the CPU that code and model are for")
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=list(LAYERS))
    parser.add_argument("--most", type=int, default=2, help="variants of each routine and layer")
    parser.add_argument("--json", type=Path, help="file to write all counts to")
    given = parser.parse_args()
    target = Target.create("cpu", f"aarch64:{given.cpu}")
    with tempfile.TemporaryDirectory() as directory:
        counter = InstructionCounter.built(Path(directory))
        found = [
            each for layer in given.layers for each in _counted(layer, target, counter, Path(directory), given.most)
        ]
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", encoding="utf-8")
    for layer in given.layers:
        own = [each for each in found if each.layer == layer]
        print(f"{layer}: {len(own)} variants, rank correlation {_of(own):.2f}")
    print(f"all: {len(found)} variants, rank correlation {_of(found):.2f}")


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; equal numbers share the mean of their ranks. 1 if either is constant."""
    first, second = (each - each.mean() for each in (_ranks(one), _ranks(other)))
    spread = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / spread if spread else 1.0


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    array = np.asarray(values)
    return np.array([(array < each).sum() + (array == each).sum() / 2 for each in array])


def _of(found: Sequence[Counted]) -> float:
    return rank_correlation([each.instructions for each in found], [each.cycles for each in found])


def _counted(layer: str, target: Target, counter: InstructionCounter, directory: Path, most: int) -> Iterator[Counted]:
    """A layer's variants, printed as they are counted."""
    path, core = directory / f"{layer}.onnx", core_of(target)
    onnx.save(LAYERS[layer](), path)
    imported = run_import(path, {}, None)
    if not isinstance(imported, ImportedModel):
        raise CompileError(f"layer '{layer}' cannot be imported: {imported}")
    found = find_candidates(imported, CompileConfig(target=target, threads=1).planning)
    (case,) = (
        tuned_case
        for tuned_case in tuned_cases(imported.graph, found.variants)
        if tuned_case.key == imported.graph.layers[-1].task.key
    )
    for variant in _sample(shortlisted(found, imported.graph, ()).variants[case.key], most):
        own = BenchmarkCase(case.key, case.inputs, case.weights, case.results, (variant,), case.facts)
        compiled = compile_case(own, target, directory)
        if not compiled.modules:
            print(f"  {layer} {variant.descriptor}: {next(iter(compiled.failures.values()))[:200]}")
            continue
        taken = physical_signature(variant.implementation, case.inputs, case.weights, case.results)[0]
        module = compiled.modules[variant.descriptor]
        instructions = counter.count(module, EXPORT_PREFIX + symbol_of(case.key, variant), taken)
        cycles = analytic_seconds(case.facts, variant.described, core) * core.hertz
        print(f"  {layer} {variant.descriptor}: {instructions:.3g} instructions, {cycles:.3g} cycles", flush=True)
        yield Counted(layer, variant.descriptor, instructions, cycles)


def _sample(variants: Sequence[Variant], most: int) -> list[Variant]:
    """Candidate 0, and the first, the last and some others of each routine's variants.

    Of routines for narrower types those that multiply by an instruction; others differ from f32 in little.
    """
    listed: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants[1:]:
        if variant.traits.precision is not None and variant.traits.instruction is None:
            continue
        listed.setdefault((variant.described.routine, variant.dtype), []).append(variant)
    spread = [own[round(index * (len(own) - 1) / max(most - 1, 1))] for own in listed.values() for index in range(most)]
    return [variants[0], *dict.fromkeys(spread)]


if __name__ == "__main__":
    main()
