"""What is stored is worth nothing after any of the source that it follows from has changed."""

from __future__ import annotations

import ast
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.codegen import source_digest as digests
from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.kernels.layers.kernel_layer import modules_of
from sartor.codegen.routines import ROUTINES
from sartor.codegen.source_digest import digest_of_sources, import_closure, imports_of, locate, source_digest
from sartor.precision import sensitivity_cache
from sartor.profiling import network_records
from sartor.tuning.measuring import tuner

Locate = Callable[[str], Path | None]
EMITTING = tuner._JOBS
NETS = network_records._JOBS
SIMULATIONS = sensitivity_cache._JOBS


def change_a_constant(path: Path) -> None:
    """Change the first number or text in a file that is no docstring; where there is none, add one."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    shown = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in shown | inside or node.lineno != node.end_lineno:
            continue
        other: int | str
        if isinstance(node.value, int):
            other = node.value + 1
        elif isinstance(node.value, str):
            other = node.value + "x"
        else:
            continue
        lines = source.splitlines(keepends=True)
        line = lines[node.lineno - 1].encode()
        changed = line[: node.col_offset] + repr(other).encode() + line[node.end_col_offset :]
        lines[node.lineno - 1] = changed.decode()
        path.write_text("".join(lines), encoding="utf-8")
        return
    path.write_text(source + "\nADDED = 1\n", encoding="utf-8")


@pytest.fixture
def located(tmp_path: Path) -> Locate:
    """Files of the package as copies that can be changed."""

    def find(name: str) -> Path | None:
        origin = locate(name)
        if origin is None:
            return None
        copy = tmp_path / f"{name}.py"
        if not copy.exists():
            shutil.copyfile(origin, copy)
        return copy

    return find


@pytest.mark.parametrize("roots", [NETS, SIMULATIONS], ids=["networks", "simulations"])
def test_what_networks_are_run_on_is_in_the_key(roots: tuple[str, ...]) -> None:
    assert {"sartor.samples.sample_sets", "sartor.reference.random_inputs"} <= import_closure(roots, locate).keys()


@pytest.mark.parametrize("roots", [EMITTING, NETS], ids=["variants", "networks"])
def test_a_constant_in_any_module_changes_the_key(roots: tuple[str, ...], located: Locate) -> None:
    before = digest_of_sources(roots, located)
    assert digest_of_sources(roots, located) == before
    for name, path in import_closure(roots, located).items():
        kept = path.read_bytes()
        change_a_constant(path)
        assert digest_of_sources(roots, located) != before, name
        path.write_bytes(kept)
    assert digest_of_sources(roots, located) == before


@pytest.mark.parametrize(
    "module",
    [
        *("ir.packing", "ir.winograd", "analysis.winograd_tiles", "mlir.dispatches", "kernels.winograd.emitter"),
        *("linking.stitching", "linking.overwriting", "linking.adapts"),
    ],
)
def test_what_networks_are_made_by_takes_part(module: str) -> None:
    assert f"sartor.codegen.{module}" in import_closure(NETS, locate) | import_closure(
        tuple(type(routine).__module__ for routine in ROUTINES), locate
    )


def test_how_networks_are_run_and_judged_takes_part() -> None:
    found = import_closure(NETS, locate)
    assert {"sartor.runtime.session", "sartor.runtime.reference", "sartor.tuning.errors.error_measures"} <= found.keys()
    measuring = {"sartor.tuning.measuring.checking", "sartor.tuning.measuring.case_data"}
    assert measuring <= import_closure(EMITTING, locate).keys()


def test_each_routine_has_its_own_source_and_not_that_of_others() -> None:
    closures = {name: import_closure((name,), locate) for name in {type(routine).__module__ for routine in ROUTINES}}
    for name, found in closures.items():
        assert "sartor.codegen.routines" not in found, f"{name} imports the list of all routines"
        assert "sartor.codegen.ir.packing" in found
    digests = {source_digest(name) for name in closures}
    assert len(digests) == len(closures)


def test_what_only_type_checkers_import_does_not_count(tmp_path: Path) -> None:
    sources = {
        "sartor": "",
        "sartor.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sartor.b\n",
        "sartor.b": "",
        "sartor.c": "def late() -> None:\n    from sartor.b import x\n",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")

    def find(name: str) -> Path | None:
        return tmp_path / f"{name}.py" if name in sources else None

    assert import_closure(("sartor.a",), find).keys() == {"sartor.a"}
    assert import_closure(("sartor.c",), find).keys() == {"sartor.c", "sartor.b"}


def parsed_imports(source: bytes) -> list[tuple[str, tuple[str, ...]]]:
    """What the syntax tree says of a file's imports from this package."""
    tree = ast.parse(source)
    typed = [each for each in ast.walk(tree) if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"]
    left_out = {id(one) for each in typed for one in ast.walk(each)}
    found: list[tuple[str, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(name.name, ()) for name in node.names if id(node) not in left_out]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and id(node) not in left_out:
            found.append((node.module, tuple(name.name for name in node.names)))
    return sorted(each for each in found if each[0].partition(".")[0] == "sartor")


def test_imports_are_those_that_python_sees() -> None:
    for name in ("sartor", "sartor.codegen", "sartor.dialect_passes", "sartor.runtime", "sartor.tuning"):
        for path in (locate(name) or Path()).parent.rglob("*.py"):
            source = path.read_bytes()
            assert sorted(imports_of(source)) == parsed_imports(source), path


def test_imports_in_all_ways_that_python_has() -> None:
    source = b"""
import sartor.a as a, sartor.b  # two
from sartor.c import (
    one,  # with (a comment)
    two as three,
)
if TYPE_CHECKING:

    import sartor.typed
elif late:
\timport sartor.d
def function():
    if TYPE_CHECKING:
        from sartor.typed import one
        from sartor.typed import two
    from sartor import e
import sartorial, other
"""
    assert imports_of(source) == [
        *(("sartor.a", ()), ("sartor.b", ()), ("sartor.c", ("one", "two"))),
        *(("sartor.d", ()), ("sartor", ("e",))),
    ]


def test_a_module_that_does_not_exist_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="there is no module"):
        source_digest("sartor.codegen.absent")


WRAPPING = {"kernel", "lowering"}


@pytest.mark.parametrize("routine", ROUTINES, ids=lambda each: each.name)
def test_what_a_routine_wraps_counts_in_its_kernels(routine: Routine) -> None:
    """The module of a wrapper need not import what it wraps."""
    closure = import_closure(modules_of(routine), locate)
    for name in WRAPPING:
        inner = getattr(routine, name, None)
        if inner is not None:
            assert import_closure((type(inner).__module__,), locate).keys() <= closure.keys()


def test_some_routines_wrap_others_of_other_modules() -> None:
    outer = [routine for routine in ROUTINES if len(modules_of(routine)) > 1]
    assert {"whole_dots", "whole_tiles", "rowwise_to_whole"} <= {each.name for each in outer}


def test_source_that_changed_since_the_process_began_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was imported before may be older than what the hash is of."""
    (tmp_path / "one.py").write_text("x = 1\n")
    monkeypatch.setattr(digests, "locate", lambda _: tmp_path / "__init__.py")
    monkeypatch.setattr(digests, "_BEGUN", time.time() + 60)
    first = digests.package_digest.__wrapped__()
    assert digests.package_digest.__wrapped__() == first
    monkeypatch.setattr(digests, "_BEGUN", time.time() - 60)
    changed = [digests.package_digest.__wrapped__() for _ in range(2)]
    assert len({first, *changed}) == 3


def test_it_is_seen_that_source_changed_after_it_was_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is known then, and processes that start later run other code."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.py").write_text("x = 1\n")
    monkeypatch.setattr(digests, "locate", lambda _: tmp_path / "__init__.py")
    monkeypatch.setattr(digests, "_BEGUN", time.time() + 60)
    assert digests.is_as_begun()
    monkeypatch.setattr(digests, "_BEGUN", time.time() - 60)
    assert not digests.is_as_begun()
