"""Worker side: compile the variants of one or several cases into a module that exports each of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.codegen.digest import digest
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.bench_module import compile_bench, physical_signature
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.errors import CompileError
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.measuring.benchmark_case import BenchmarkCase, may_be_short, symbol_of
from sartor.tuning.workers.disturbances import is_disk_full


@dataclass(frozen=True)
class CompiledCase:
    """The compiled modules of a case's variants.

    Attributes:
        modules: descriptor to the file whose ``run_<symbol>`` runs the variant.
        failures: descriptor to IREE's diagnostic.
    """

    modules: Mapping[str, Path]
    failures: Mapping[str, str]


def divided(case: BenchmarkCase, most: int) -> list[BenchmarkCase]:
    """Cases with at most ``most`` of the variants each, as equal in number as can be, to be compiled side by side."""
    count = -(-len(case.variants) // most)
    least, larger = divmod(len(case.variants), max(count, 1))
    ends = list(itertools.accumulate((least + (index < larger) for index in range(count)), initial=0))
    return [replace(case, variants=case.variants[start:end]) for start, end in itertools.pairwise(ends)]


def batched(cases: Sequence[BenchmarkCase], count: int) -> list[list[int]]:
    """Divide cases among ``count`` compilations of about equal cost; returns indices, none of the lists empty."""
    costs = [sum(variant.traits.compile_cost for variant in case.variants) for case in cases]
    batches: list[list[int]] = [[] for _ in range(min(count, len(cases)))]
    spent = [0.0] * len(batches)
    for index in sorted(range(len(cases)), key=lambda index_of_case: -costs[index_of_case]):
        least = spent.index(min(spent))
        batches[least].append(index)
        spent[least] += costs[index]
    return batches


def compile_cases(cases: Sequence[BenchmarkCase], target: Target, directory: Path) -> list[CompiledCase]:
    """Compile several cases, into one module if that succeeds, else each into its own.

    A compilation takes a third of a second, whatever it compiles.

    Args:
        cases: what to compile; no variant occurs twice.
        target: what to compile for.
        directory: where the modules are written.

    Raises:
        CompileError: if the disk is full, which is no variant's fault.
    """
    if len(cases) > 1:
        try:
            return _into_one(cases, target, directory / f"{digest(*map(_stem, cases))}.vmfb")
        except CompileError as error:
            if is_disk_full(error):
                raise
    return [compile_case(case, target, directory) for case in cases]


def compile_case(case: BenchmarkCase, target: Target, directory: Path) -> CompiledCase:
    """Compile all variants into one module; if that fails, each into its own, to find those that do not compile.

    Args:
        case: what to compile.
        target: what to compile for.
        directory: where the modules are written.

    Raises:
        CompileError: if the disk is full, which is no variant's fault.
    """
    try:
        return _into_one([case], target, directory / f"{_stem(case)}.vmfb")[0]
    except CompileError as error:
        if is_disk_full(error):
            raise
        if len(case.variants) == 1:
            return CompiledCase({}, {case.variants[0].descriptor: str(error)})
    return _compile_apart(case, target, directory)


def _compile_apart(case: BenchmarkCase, target: Target, directory: Path) -> CompiledCase:
    modules: dict[str, Path] = {}
    failures: dict[str, str] = {}
    for index, variant in enumerate(case.variants):
        try:
            path = directory / f"{_stem(case)}.{index}.vmfb"
            modules |= _into_one([replace(case, variants=(variant,))], target, path)[0].modules
        except CompileError as error:
            if is_disk_full(error):
                raise
            failures[variant.descriptor] = str(error)
    return CompiledCase(modules, failures)


def _stem(case: BenchmarkCase) -> str:
    """A file name that differs for different variants of one task."""
    return f"{case.key}-{digest(*(variant.descriptor for variant in case.variants))}"


def _into_one(cases: Sequence[BenchmarkCase], target: Target, path: Path) -> list[CompiledCase]:
    variants = {
        symbol_of(case.key, variant): (case, variant.implementation) for case in cases for variant in case.variants
    }
    code = lower({name: implementation for name, (_, implementation) in variants.items()}, target)
    pieces = {name: Piece(name, implementation, code[name]) for name, (_, implementation) in variants.items()}
    signatures = {
        name: physical_signature(implementation, case.inputs, case.weights, case.results)
        for name, (case, implementation) in variants.items()
    }
    short = {name for name, (case, _) in variants.items() if may_be_short(case, is_cpu=target.is_cpu)}
    path.write_bytes(compile_bench(target, pieces, signatures, repeated=short, store=KeptCode.of_user()))
    return [CompiledCase(dict.fromkeys((variant.descriptor for variant in case.variants), path), {}) for case in cases]
