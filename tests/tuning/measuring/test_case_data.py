"""Cases: how their weights are laid out, and into how many compilations they are divided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.packing import Narrow, Packing, Transpose
from sartor.codegen.ir.schema import Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant
from sartor.codegen.ir.variants.traits import Traits
from sartor.codegen.mlir import iree_compiler
from sartor.runtime.driver.device import open_device
from sartor.tuning.measuring import case_data
from sartor.tuning.measuring.benchmark_case import PROBE, BenchmarkCase
from sartor.tuning.measuring.case_compiler import CaseCompiler, batch_count
from sartor.tuning.measuring.compile_job import CompiledCase, batched, compile_cases, divided
from sartor.tuning.workers.pool import Job, JobResult, JobStatus, WorkerPool
from tests.tuning.measuring.test_tuner import ADD, BODY, case, variant

TENSOR = TensorType((64, 32), "f32")
CASE = BenchmarkCase("task", (), (TENSOR,), (), ())
PLAIN, TURNED = (Packing(),), (Packing((Transpose((1, 0)),)),)


def test_weights_are_copied_until_no_cache_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_COLD_BYTES", TENSOR.bytes)
    monkeypatch.setattr(case_data, "last_level_cache", lambda: 2 * TENSOR.bytes)
    data = case_data.CaseData(CASE)
    device = open_device("cpu", 1)
    first, again = data.copies(PLAIN, device), data.copies(PLAIN, device)
    assert len(first) == 3
    assert len({each.to_host().ctypes.data for copies in (first, again) for (each,) in copies}) == 6
    for (plain,), (turned,) in zip(first, data.copies(TURNED, device), strict=True):
        np.testing.assert_array_equal(turned.to_host(), plain.to_host().T)


@pytest.mark.parametrize("cache", [32 << 20, 48 << 20])
def test_large_weights_are_read_from_memory_whatever_the_cache(cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rotation over the copies exceeds the last-level cache: else a variant's time depends on its place."""
    monkeypatch.setattr(case_data, "last_level_cache", lambda: cache)
    device = open_device("cpu", 1)
    for size in (cache // 6, cache, 2 * cache):
        tensor = TensorType((size // 4,), "f32")
        data = case_data.CaseData(BenchmarkCase("task", (), (tensor,), (), ()), [np.zeros(tensor.shape, np.float32)])
        assert len(data.copies(PLAIN, device)) * size >= 1.5 * cache - 1


def test_weights_lie_in_huge_pages_as_in_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a huge page and more; in small pages the heap's place in a process decides which variant is faster."""
    moved: list[tuple[int, int]] = []
    monkeypatch.setattr(case_data, "take_huge_pages", lambda address, size: moved.append((address, size)))
    large, small = (np.zeros(size // 4, np.float32) for size in (2 << 20, (2 << 20) - 4))
    tensors = tuple(TensorType(array.shape, "f32") for array in (large, small))
    data = case_data.CaseData(BenchmarkCase("task", (), tensors, (), ()), [large, small])
    copies = data.copies((Packing(), Packing()), open_device("cpu", 1))
    assert moved == [(weight.to_host().ctypes.data, 2 << 20) for weight, _ in copies]


def test_variants_share_what_no_cache_keeps_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_data, "_evicting_bytes", lambda: TENSOR.bytes)
    monkeypatch.setattr(case_data, "_LARGE_BYTES", TENSOR.bytes - 1)
    data = case_data.CaseData(CASE)
    device = open_device("cpu", 1)
    assert data.copies(PLAIN, device)[0][0] is data.copies(PLAIN, device)[0][0]
    assert data.copies(TURNED, device)[0][0] is not data.copies(PLAIN, device)[0][0]


def test_weights_have_numbers_of_the_type_that_a_variant_stores_them_in() -> None:
    schema = Schema.plain(TensorType((1,), "f32"), "cpu")
    code = Implementation("", (schema,), (schema,), ())
    plain, *narrow = (
        Variant(name or "plain", "cpu", "f32", code, Traits(weights=name)) for name in (None, "f16", "bf16")
    )
    for each in narrow:
        (weight,) = case_data.CaseData(replace(CASE, variants=(plain, each))).weights
        assert Narrow("f16").is_exact(weight)
        assert Narrow("bf16").is_exact(weight)
        assert np.count_nonzero(weight) > 0.9 * weight.size
    (weight,) = case_data.CaseData(replace(CASE, variants=(plain,))).weights
    assert not Narrow("f16").is_exact(weight)


def test_rows_of_parts_have_numbers_in_one() -> None:
    rows, other = TensorType((9, 32), "f32"), TensorType((9, 7), "f32")
    data = case_data.CaseData(BenchmarkCase("task", (rows, other), (), (rows,), (), row_of_parts=(32, 4)))
    drawn = data.inputs[0].reshape(9, 4, 8)
    is_present = drawn.any(axis=-1)
    assert (is_present.sum(axis=-1) == 1).all()
    assert (np.diff(is_present.argmax(axis=-1)) >= 0).all()
    assert data.inputs[0].dtype == np.float32
    assert data.inputs[1].all()


def test_weights_of_a_layer_are_left_as_they_are() -> None:
    schema = Schema.plain(TensorType((1,), "f32"), "cpu")
    narrow = Variant("narrow", "cpu", "f32", Implementation("", (schema,), (schema,), ()), Traits(weights="f16"))
    given = np.full(TENSOR.shape, 1 / 3, np.float32)
    (weight,) = case_data.CaseData(replace(CASE, variants=(narrow,)), [given]).weights
    assert np.array_equal(weight, given)


@pytest.mark.parametrize("at_once", [1, 2, 3, 16])
@pytest.mark.parametrize("variants", [1, 3, 8, 12, 25, 48, 97, 120, 500])
def test_all_processes_end_together(variants: int, at_once: int) -> None:
    count = batch_count(variants, at_once)
    assert count <= at_once or count % at_once == 0
    assert variants <= 24 * count


@pytest.mark.parametrize(
    ("variants", "at_once", "count"),
    [(3, 2, 1), (8, 2, 2), (12, 2, 2), (20, 2, 2), (24, 2, 4), (97, 2, 6), (120, 2, 6)],
)
def test_batches_are_neither_too_small_nor_too_large(variants: int, at_once: int, count: int) -> None:
    assert batch_count(variants, at_once) == count


class NotingPool(WorkerPool):
    """Notes the keys of the cases that are compiled together; a file stands for all modules."""

    def __init__(self, module: Path) -> None:
        super().__init__(2)
        self.together: list[list[str]] = []
        self._module = module

    def map_unordered(self, function: str, jobs: Iterable[Job], timeout: float, **_: Any) -> Iterator[JobResult]:
        for job_id, arguments in jobs:
            self.together.append([each.key for each in arguments["cases"]])
            compiled = [CompiledCase({each.variants[0].descriptor: self._module}, {}) for each in arguments["cases"]]
            yield JobResult(job_id, JobStatus.OK, compiled, "", 0.0)


@pytest.mark.parametrize(
    ("target", "is_parted", "apart"),
    [
        (Target.create("cpu"), False, False),
        (Target.create("cpu"), True, True),
        # A GPU's driver would compile the variants, too, wherever the probe is loaded.
        (Target.create("cuda", "sm_80"), False, True),
    ],
)
def test_the_probe_is_compiled_beside_variants(target: Target, is_parted: bool, apart: bool, tmp_path: Path) -> None:
    module = tmp_path / "module.vmfb"
    module.touch()
    pool = NotingPool(module)
    compiler = CaseCompiler(pool, target, 60.0, None)
    if is_parted:
        compiler.part_probe()
    pieces = [case(*(variant(str(number), ADD) for number in range(8)), key=str(key)) for key in range(2)]
    found = [(number, compiled) for number, compiled, _ in compiler.compile(pieces, tmp_path)]
    assert found == [(number, CompiledCase({"0": module}, {})) for number in range(2)]
    assert compiler.probe(tmp_path) == module
    assert sorted(key for keys in pool.together for key in keys) == sorted(["0", "1", PROBE.key])
    assert ([PROBE.key] in pool.together) == apart


@pytest.mark.parametrize(
    ("count", "most", "sizes"), [(1, 4, [1]), (4, 4, [4]), (5, 4, [3, 2]), (9, 4, [3, 3, 3]), (11, 5, [4, 4, 3])]
)
def test_pieces_have_all_variants_once_in_order_and_about_as_many_each(count: int, most: int, sizes: list[int]) -> None:
    whole = case(*(variant(str(number), ADD) for number in range(count)))
    pieces = divided(whole, most)
    assert [len(piece.variants) for piece in pieces] == sizes
    assert [each for piece in pieces for each in piece.variants] == list(whole.variants)
    assert {piece.key for piece in pieces} == {whole.key}


@pytest.mark.parametrize(
    ("sizes", "count", "found"),
    [([1], 4, [[0]]), ([1, 1, 1], 2, [[0, 2], [1]]), ([1, 5, 2, 2], 2, [[1], [2, 3, 0]]), ([3, 3], 1, [[0, 1]])],
)
def test_batches_hold_each_case_once_and_cost_about_as_much(
    sizes: list[int], count: int, found: list[list[int]]
) -> None:
    cases = [case(*(variant(str(number), ADD) for number in range(size))) for size in sizes]
    assert batched(cases, count) == found


def test_a_case_that_does_not_compile_leaves_the_others_of_its_batch(tmp_path: Path) -> None:
    stock, bad = variant("stock", ADD), variant("no code", BODY.format(op="no_such_op"))
    cases = [case(stock, key="right"), case(stock, bad, key="half"), case(bad, key="wrong")]
    found = compile_cases(cases, Target.create("cpu"), tmp_path)
    assert [sorted(each.modules) for each in found] == [["stock"], ["stock"], []]
    assert [sorted(each.failures) for each in found] == [[], ["no code"], ["no code"]]
    assert "no_such_op" in found[2].failures["no code"]


def test_cases_that_compile_share_a_module(tmp_path: Path) -> None:
    stock, other = variant("stock", ADD), variant("other", BODY.format(op="subf"))
    first, second = compile_cases(
        [case(stock, key="one"), case(stock, other, key="two")], Target.create("cpu"), tmp_path
    )
    assert {*first.modules.values()} == {*second.modules.values()}
    assert [*tmp_path.iterdir()] == [*first.modules.values()]


def test_code_is_the_same_whether_passes_verify_it_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, target = [case(variant("stock", ADD))], Target.create("cpu")
    (found,) = compile_cases(cases, target, tmp_path)
    (path,) = found.modules.values()
    trusted = path.read_bytes()
    monkeypatch.setattr(iree_compiler, "_VERIFIED", "never")
    compile_cases(cases, target, tmp_path)
    assert path.read_bytes() == trusted
