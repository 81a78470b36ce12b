"""Valid files of every kind that Sartor reads, as a base for mutations."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

from sartor.codegen.linking.stitching import compile_unsplit
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.guessed_recipe import guessed_recipe
from sartor.planning.recipe import unsplit_recipe
from sartor.runtime.driver.iree_runtime import write_parameters
from sartor.runtime.manifest import Manifest
from sartor.tuning.records.measurement import Measurement, MeasurementKey, Status
from sartor.tuning.store.export import write_export
from sartor.tuning.store.store import Store
from sartor.tuning.workers.protocol import WorkerError
from tests.plugin.onnx_model.cases import CASES
from tests.plugin.onnx_model.quantized_cases import DYNAMIC, QUANTISED
from tests.tiny_models import MODELS

PLANNED = "residual"
"""Name of the model that plans are made for."""

_MEASUREMENTS = 40


def write_corpus(folder: Path) -> None:
    """Write all files, in one folder for each kind; takes a few seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"model": models(), **_compiled(folder)}
    made |= {"arrays": _arrays(), "database": _database(folder), "export": _export()}
    for kind, files in made.items():
        (folder / kind).mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / kind / name).write_bytes(content)


def models() -> dict[str, bytes]:
    """Return small serialised models by file name; together they use all rewrites."""
    made: dict[str, ModelProto] = {name: make() for name, make in {**CASES, **QUANTISED, **DYNAMIC, **MODELS}.items()}
    return {f"{_plain(name)}.onnx": model.SerializeToString() for name, model in made.items()}


def _plain(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)


def imported_model(path: Path) -> ImportedModel:
    """Return an imported model."""
    imported = run_import(path, {}, None)
    assert not isinstance(imported, WorkerError), imported
    return imported


def _compiled(folder: Path) -> dict[str, Mapping[str, bytes]]:
    """Compile a model, and return plans, manifests, a module and weights by kind and file name."""
    model = folder / "planned.onnx"
    onnx.save(MODELS[PLANNED](), model)
    config = CompileConfig(threads=1)
    imported = imported_model(model)
    candidates = find_candidates(imported, config.planning)
    guessed = guessed_recipe(imported, candidates.variants, config.planning).plan
    stock = unsplit_recipe(imported, config.planning)
    manifest = stock.manifest(imported, config.header)
    module = folder / "module.vmfb"
    compile_unsplit(imported.unsplit, imported.weights, config.target, manifest, module)
    split = json.dumps(guessed.to_json())
    full = replace(Manifest.from_json(manifest), plan=guessed.to_json()).to_json()
    archive = folder / "weights.irpa"
    write_parameters(archive, {"p0": np.zeros((3, 4), np.float32), "p1": np.ones(5, np.int8)})
    return {
        "plan": {"split.json": split.encode(), "unsplit.json": json.dumps(stock.plan.to_json()).encode()},
        "manifest": {"stock.json": manifest.encode(), "split.json": full.encode()},
        "module": {"stock.vmfb": module.read_bytes()},
        "weights": {"weights.irpa": archive.read_bytes()},
    }


def _arrays() -> dict[str, bytes]:
    image = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    files: dict[str, bytes] = {}
    for name, array in {"one": image, "many": np.repeat(image, 5, 0)}.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        files[f"{name}.npy"] = buffer.getvalue()
        for suffix, save in (("plain", np.savez), ("packed", np.savez_compressed)):
            buffer = io.BytesIO()
            save(buffer, x=array)
            files[f"{name}-{suffix}.npz"] = buffer.getvalue()
    return files


def _measurements() -> list[Measurement]:
    return [
        Measurement(
            MeasurementKey(f"task{index % 3}", f"cpu:f32/v{index}", "code", "machine", 1, "runtime", "cpu/host"),
            Status.OK if index % 4 else Status.CRASHED,
            samples=(0.1, 0.2) if index % 4 else (),
            baseline_samples=(0.3,) if index % 4 else (),
            error=1e-6 if index % 4 else None,
            created=1000.0 + index,
            facts="conv n=1",
        )
        for index in range(_MEASUREMENTS)
    ]


def _database(folder: Path) -> dict[str, bytes]:
    path = folder / "made.db"
    with Store.open_to_write(path) as store:
        store.put_many(_measurements())
    return {"t.db": path.read_bytes()}


def _export() -> dict[str, bytes]:
    text = io.StringIO()
    write_export(text, _measurements()[:5])
    return {"t.jsonl": text.getvalue().encode()}
