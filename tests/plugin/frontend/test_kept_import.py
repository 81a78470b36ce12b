"""A model is taken from an earlier import only if that was of the same content, by the same code, in the same way."""

from __future__ import annotations

import logging
import os
import pickle
import platform
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from sartor.errors import RewriteError, SartorError, UsageError, WrongOutputsError
from sartor.frontend import import_job, kept_import
from sartor.frontend.asked_children import AskedChildren
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.kept_import import KeptImport, forgotten_if_wrong, hashed_import, keep_import
from sartor.policies import Double
from sartor.profiling.file_digests import FileDigests
from sartor.tuning.kept.values import KeptValues
from sartor.tuning.workers.shared_arrays import StoredArrays

Import = Callable[..., ImportedModel]


def write_model(path: Path, weight: float) -> None:
    """A product by weights, of the same size whatever these are."""
    weights = numpy_helper.from_array(np.full((4, 8), weight, np.float32), "w")
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size]) for name, size in (("x", 4), ("y", 8))
    ]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Import:
    """Imports a file in a directory of its own, with what is kept, as a compilation that makes a right file of it."""
    monkeypatch.setattr(kept_import, "_SETTLED_SECONDS", -1.0)
    numbers = iter(range(100))

    def imported(path: Path, **options: Any) -> ImportedModel:
        directory = tmp_path / f"compilation{next(numbers)}"
        directory.mkdir()
        settings = {"shapes": {"x": (2, 4)}, "simplifies": False, **options}
        found = run_import(path, dump=None, directory=directory, kept=KeptValues(tmp_path / "imports"), **settings)
        assert isinstance(found, ImportedModel), found
        assert isinstance(found.prepared, Path)
        assert found.prepared.parent == directory
        keep(found, tmp_path)
        return found

    return imported


def keep(model: ImportedModel, folder: Path) -> None:
    kept = KeptValues(folder / "imports")
    if (hashed := hashed_import(model, kept, FileDigests(model).of)) is not None:
        keep_import(model, kept, hashed)


def weight_of(model: ImportedModel) -> float:
    return float(next(iter(model.weights.values())).flat[0])


def test_a_model_without_layers_has_what_files_are_compared_by(imports: Import, tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    write_model(path, 1.0)
    layered, *alone = imports(path), imports(path, has_layers=False), imports(path, has_layers=False)
    assert [bool(model.origin and model.origin.found) for model in alone] == [False, True]
    for model in alone:
        assert (model.graph.layers, len(model.weights), model.sha256) == ((), 0, layered.sha256)
        assert model.graph.inputs == layered.graph.inputs
        assert [(value.name, value.type, value.dtype) for value in model.graph.outputs] == [
            (value.name, value.type, value.dtype) for value in layered.graph.outputs
        ]
        assert model.samples.keys() == layered.samples.keys()


def test_the_same_model_is_imported_once(imports: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, copy, other = tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "c.onnx"
    write_model(path, 1.0)
    write_model(copy, 1.0)
    write_model(other, 2.0)
    first = imports(path)
    made: list[str] = []
    making = import_job._imported

    def noted(path: Path, *arguments: Any) -> ImportedModel:
        made.append(path.name)
        return making(path, *arguments)

    monkeypatch.setattr(import_job, "_imported", noted)
    again = imports(copy)
    assert made == []
    assert again.path == copy
    assert pickle.dumps(again.graph) == pickle.dumps(first.graph)
    assert again.prepared.read_bytes() == first.prepared.read_bytes()  # type: ignore[union-attr]
    assert weight_of(again) == weight_of(first) == 1.0
    # Of the same size, under the same name, with the same time.
    status = path.stat()
    path.write_bytes(other.read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert weight_of(imports(path)) == 2.0
    imports(path, shapes={"x": (3, 4)})
    imports(path, double=Double.F64)
    imports(path, seconds=5.0)
    names = [f"layer{number}" for number in range(1000)]
    one, another = frozenset(names), frozenset(reversed(names))
    assert [*one] != [*another]
    imports(path, asked=AskedChildren(named=one))
    imports(path, asked=AskedChildren(named=another))
    monkeypatch.setattr(kept_import, "package_digest", lambda: "other code")
    imports(path)
    monkeypatch.setattr(kept_import, "version", lambda package: version(package) + "1" * (package == "ml_dtypes"))
    imports(path)
    monkeypatch.setattr(platform, "python_version", lambda: "3.99.0")
    imports(path)
    assert made == ["a.onnx"] * 8
    imports(path)
    assert len(made) == 8


@pytest.fixture
def model(imports: Import, tmp_path: Path) -> ImportedModel:
    write_model(tmp_path / "a.onnx", 1.0)
    found = imports(tmp_path / "a.onnx")
    for kept in (tmp_path / "imports").iterdir():
        kept.unlink()
    return replace(found, origin=None)


@pytest.mark.parametrize(
    "meanwhile", ["it changes", "something is said", "it has external data", "it is hurried", "it is gone"]
)
def test_what_may_not_be_what_was_imported_is_not_kept(
    model: ImportedModel, tmp_path: Path, meanwhile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(model.prepared, Path)
    kept = KeptImport(KeptValues(tmp_path / "imports"), model.path, model.prepared.parent, b"")

    def imported() -> ImportedModel:
        if meanwhile == "it changes":
            write_model(model.path, 2.0)
        elif meanwhile == "something is said":
            logging.getLogger("sartor.onnx_model").warning("something")
        elif meanwhile == "it is gone":
            model.path.unlink()
        elif meanwhile == "it is hurried":
            return replace(model, is_hurried=True)
        else:
            return replace(model, external=(tmp_path / "weights.data",))
        return model

    found = kept.found_or(imported)
    assert found.graph is model.graph
    keep(found, tmp_path)
    assert not list((tmp_path / "imports").iterdir())


def test_files_that_another_import_replaced_meanwhile_are_not_kept(model: ImportedModel, tmp_path: Path) -> None:
    """As where channels are equalised: the model is imported anew into the same directory."""
    weights, prepared = model.weights, model.prepared
    assert isinstance(weights, StoredArrays)
    assert isinstance(prepared, Path)
    kept = KeptImport(KeptValues(tmp_path / "imports"), model.path, prepared.parent, b"")
    found = kept.found_or(lambda: model)
    StoredArrays.write(weights.path, {name: 2 * weights[name] for name in weights})
    keep(found, tmp_path)
    again = replace(model)
    assert kept.found_or(lambda: again).graph is again.graph


def test_a_model_for_any_size_is_kept_as_it_was_imported(imports: Import, tmp_path: Path) -> None:
    """It has another hash then, which is of no file."""
    write_model(tmp_path / "a.onnx", 1.0)
    first = imports(tmp_path / "a.onnx")
    for kept in (tmp_path / "imports").iterdir():
        kept.unlink()
    keep(replace(first, sha256="of all sizes"), tmp_path)
    again = imports(tmp_path / "a.onnx")
    assert again.origin is not None
    assert again.origin.found
    assert again.sha256 == first.sha256


def test_a_model_that_is_too_large_is_not_hashed(model: ImportedModel, tmp_path: Path) -> None:
    assert isinstance(model.prepared, Path)
    kept = KeptImport(KeptValues(tmp_path / "imports"), model.path, model.prepared.parent, b"")

    def digest_of(_: Path) -> str:
        raise AssertionError

    assert hashed_import(kept.found_or(lambda: model), KeptValues(tmp_path / "imports", limit=1000), digest_of) is None


@pytest.mark.parametrize("error", [WrongOutputsError("wrong"), RewriteError("wrong")])
def test_an_import_of_which_no_right_file_is_made_is_forgotten(
    imports: Import, tmp_path: Path, error: SartorError
) -> None:
    write_model(tmp_path / "a.onnx", 1.0)
    imports(tmp_path / "a.onnx")
    again = imports(tmp_path / "a.onnx")
    kept = KeptValues(tmp_path / "imports")
    assert again.origin is not None
    assert again.origin.found
    with pytest.raises(UsageError), forgotten_if_wrong([again], kept):
        raise UsageError("something else")
    assert kept.may_have(again.origin.found)
    with pytest.raises(type(error)), forgotten_if_wrong([again], kept):
        raise error
    assert not kept.may_have(again.origin.found)
    assert not imports(tmp_path / "a.onnx").origin.found  # type: ignore[union-attr]


def test_a_file_that_was_just_written_is_not_kept(
    model: ImportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_import, "_SETTLED_SECONDS", 3600.0)
    assert isinstance(model.prepared, Path)
    kept = KeptImport(KeptValues(tmp_path / "imports"), model.path, model.prepared.parent, b"")
    assert kept.found_or(lambda: model).origin is None
