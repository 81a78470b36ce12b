"""A module of an earlier compilation is used only in place of one that the compiler would make byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.codegen.ir.layer import ValueRef
from sartor.codegen.ir.target import Target
from sartor.codegen.routines import routines_for
from sartor.config import CompileConfig
from sartor.costing.listing import list_candidates
from sartor.errors import LateError
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import Recipe, unsplit_recipe
from sartor.policies import ModuleHeader
from sartor.profiling import builder as profiling_builder
from sartor.profiling.builder import Build, Builder
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.kept.code import KeptCode
from sartor.tuning.kept.modules import KeptModules
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.networks import module_key
from sartor.tuning.workers.pool import JobResult, WorkerPool
from tests.pools import BuildsHere

CONFIG = CompileConfig(target=Target.create("cpu"), threads=1)


@dataclass(frozen=True)
class Bench:
    """A model, one recipe of it, and the modules that its first compilation kept."""

    imported: ImportedModel
    recipe: Recipe
    kept: KeptModules
    first: Build


@pytest.fixture
def bench(imported_of: Callable[[str], ImportedModel], tmp_path: Path) -> Bench:
    imported, kept = imported_of("residual"), KeptModules(tmp_path / "kept")
    variants = list_candidates(imported.graph, routines_for(()), CONFIG.target).variants
    recipe = guessed_recipe(imported, variants, CONFIG.planning)
    pool, build, builder = built(imported, recipe, kept, tmp_path / "first")
    assert pool.compiled
    builder.keep(build, builder.hashed(build))
    return Bench(imported, recipe, kept, build)


def built(
    imported: ImportedModel, recipe: Recipe, kept: KeptModules, folder: Path, header: ModuleHeader = CONFIG.header
) -> tuple[BuildsHere, Build, Builder]:
    folder.mkdir()
    pool = BuildsHere()
    builder = Builder(imported, cast(WorkerPool, pool), folder, header, lambda *_: None, kept)
    (build,) = builder.build([recipe])
    return pool, build, builder


def test_a_kept_module_is_the_one_that_the_compiler_made(bench: Bench, tmp_path: Path) -> None:
    pool, again, _ = built(bench.imported, bench.recipe, bench.kept, tmp_path / "again")
    assert not pool.compiled
    assert again.files.module.read_bytes() == bench.first.files.module.read_bytes()
    assert again.files.weight_bytes == bench.first.files.weight_bytes > 0
    assert again.files.devices == bench.first.files.devices


def test_nothing_is_kept_if_source_changed_meanwhile(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module may be made by other code than its key is of."""
    kept, imports = KeptModules(tmp_path / "others"), KeptValues(tmp_path / "imports")
    _, build, builder = built(bench.imported, bench.recipe, kept, tmp_path / "again")
    builder.imports = imports
    monkeypatch.setattr(profiling_builder, "is_as_begun", lambda: False)
    monkeypatch.setattr(profiling_builder, "hashed_import", Mock(side_effect=AssertionError))
    builder.keep(build, builder.hashed(build))
    assert builder.hashed_import() is None
    assert not kept.folder.exists()
    monkeypatch.setattr(profiling_builder, "is_as_begun", lambda: True)
    monkeypatch.setattr(profiling_builder, "hashed_import", lambda *_: None)
    builder.keep(build, builder.hashed(build))
    assert [*kept.folder.iterdir()]


class _Late(BuildsHere):
    """Has no time to compile anything."""

    def map_unordered(self, *_: Any, **__: Any) -> list[JobResult]:
        return []


def test_that_there_was_no_time_is_told_from_other_disturbances(bench: Bench, tmp_path: Path) -> None:
    builder = Builder(bench.imported, cast(WorkerPool, _Late()), tmp_path, CONFIG.header, lambda *_: None)
    with pytest.raises(LateError, match="no time to compile"):
        builder.build([bench.recipe])


def other_weights(imported: ImportedModel, recipe: Recipe) -> tuple[ImportedModel, Recipe]:
    """The model with one bit of one weight changed, but the same hash."""
    name, array = next((name, each) for name, each in sorted(imported.weights.items()) if each.dtype == np.float32)
    changed = array.copy()
    changed.reshape(-1).view(np.uint32)[-1] ^= 1
    return replace(imported, weights={**imported.weights, name: changed}), recipe


def other_times(imported: ImportedModel, recipe: Recipe) -> tuple[ImportedModel, Recipe]:
    return imported, replace(recipe, plan=replace(recipe.plan, predicted=0.25))


def other_code(imported: ImportedModel, recipe: Recipe) -> tuple[ImportedModel, Recipe]:
    """A plan of the same names, one of which means other code now."""
    name, variant = sorted(recipe.variants.items())[0]
    code = replace(variant.implementation, body=variant.implementation.body + "\n")
    return imported, replace(recipe, variants={**recipe.variants, name: replace(variant, implementation=code)})


def other_ranges(imported: ImportedModel, recipe: Recipe) -> tuple[ImportedModel, Recipe]:
    return replace(imported, ranges={ValueRef(None, 0): QuantisedRange(0.5, 0, "int8")}), recipe


def other_network(imported: ImportedModel, recipe: Recipe) -> tuple[ImportedModel, Recipe]:
    return imported, unsplit_recipe(imported, CONFIG.planning)


@pytest.mark.parametrize("change", [other_weights, other_times, other_code, other_ranges, other_network])
def test_another_network_is_compiled(
    bench: Bench,
    tmp_path: Path,
    change: Callable[[ImportedModel, Recipe], tuple[ImportedModel, Recipe]],
) -> None:
    pool, _, _ = built(*change(bench.imported, bench.recipe), bench.kept, tmp_path / "again")
    assert pool.compiled


@pytest.mark.parametrize("what", ["runtime_key", "package_digest"])
def test_what_another_version_kept_is_not_used(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    module_key._made_with.cache_clear()
    monkeypatch.setattr(module_key, what, lambda: "another")
    try:
        pool, _, _ = built(bench.imported, bench.recipe, bench.kept, tmp_path / "again")
    finally:
        module_key._made_with.cache_clear()
    assert pool.compiled


def test_another_target_is_compiled_for(bench: Bench, tmp_path: Path) -> None:
    header = replace(CONFIG.header, target=replace(CONFIG.header.target, withheld=("avx512f",)))
    pool, _, _ = built(bench.imported, bench.recipe, bench.kept, tmp_path / "again", header)
    assert pool.compiled


def test_a_damaged_module_is_compiled_again(bench: Bench, tmp_path: Path) -> None:
    (path,) = bench.kept.folder.glob("*.0.kept")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    # The first compilation has the same file by another name.
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o600)
    pool, again, builder = built(bench.imported, bench.recipe, bench.kept, tmp_path / "again")
    assert pool.compiled
    assert again.files.module.read_bytes() == bench.first.files.module.read_bytes()
    builder.keep(again, builder.hashed(again))
    pool, _, _ = built(bench.imported, bench.recipe, bench.kept, tmp_path / "third")
    assert not pool.compiled


def test_a_module_that_proves_wrong_is_forgotten(bench: Bench, tmp_path: Path) -> None:
    pool, _, builder = built(bench.imported, bench.recipe, bench.kept, tmp_path / "again")
    assert builder.forget(bench.recipe)
    assert not builder.forget(bench.recipe)
    builder.build([bench.recipe])
    assert len(pool.compiled) == 1
    assert not [*bench.kept.folder.iterdir()]


def test_code_of_a_module_that_proves_wrong_is_forgotten_once(bench: Bench, tmp_path: Path) -> None:
    """A wrong entry may have the right checksum, as the code was wrong when it was kept."""
    code, pool = KeptCode(tmp_path / "code"), BuildsHere()
    code.add({"a" * 64: b"wrong"})
    builder = Builder(bench.imported, cast(WorkerPool, pool), tmp_path, CONFIG.header, lambda *_: None, code=code)
    other = replace(bench.recipe, plan=replace(bench.recipe.plan, predicted=0.25))
    builder.build([bench.recipe])
    builder.build([other])
    assert len(pool.compiled) == 1
    assert not builder.forget(unsplit_recipe(bench.imported, CONFIG.planning))
    assert builder.forget(other)
    assert code.find(["a" * 64]) == {}
    builder.build([other])
    assert len(pool.compiled) == 2
    code.add({"a" * 64: b"right"})
    assert not builder.forget(other)
    assert code.find(["a" * 64]) == {"a" * 64: b"right"}


def test_what_began_is_not_compiled_again(bench: Bench, tmp_path: Path) -> None:
    """The stock model begins before the machine's peak is known, which its manifest tells."""
    stock = unsplit_recipe(bench.imported, CONFIG.planning)
    told = unsplit_recipe(bench.imported, CONFIG.planning, 12345678.0)
    with WorkerPool(1) as pool:
        builder = Builder(bench.imported, pool, tmp_path, CONFIG.header, lambda *_: None)
        builder.begin(stock)
        (found,) = builder.build([told])
        assert not pool._workers
        content, begun = found.files.module.read_bytes(), (tmp_path / "plan0.vmfb").read_bytes()
    old, new = (each.manifest(bench.imported, CONFIG.header).encode() for each in (stock, told))
    assert old in begun
    assert new in content
    assert old not in content
    assert len(content) == len(begun)
    assert found.files.weight_bytes > 0
    assert builder.seconds is not None


def test_modules_without_their_weights_are_not_kept(bench: Bench, tmp_path: Path) -> None:
    header = replace(CONFIG.header, external_weights=tmp_path / "net.irpa")
    before = sorted(bench.kept.folder.iterdir())
    for name in ("again", "third"):
        pool, again, builder = built(bench.imported, bench.recipe, bench.kept, tmp_path / name, header)
        assert pool.compiled
        builder.keep(again, builder.hashed(again))
    assert sorted(bench.kept.folder.iterdir()) == before
