"""What the front end makes of models: the one way in which tests import them."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto

from sartor.frontend.import_job import run_import
from sartor.frontend.imported_model import ImportedModel

ImportedOf = Callable[[str], ImportedModel]
"""The fixture ``imported_of``."""
ModelFile = Callable[[str], Path]
"""The fixture ``model_file``."""

_FOLDER = tempfile.TemporaryDirectory(prefix="models-of-tests-")
_known: dict[tuple[bytes, bytes], ImportedModel] = {}


def imported_model(
    model: Path | ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None, **options: Any
) -> ImportedModel:
    """A model as layers.

    Args:
        model: its file; or the model, which is imported once with equal options.
        shapes, options: as of ``run_import``.
    """
    if isinstance(model, Path):
        found = run_import(model, dict(shapes or {}), None, **options)
        assert isinstance(found, ImportedModel), found
        return found
    key = model.SerializeToString(deterministic=True), pickle.dumps((shapes, options))
    if key not in _known:
        path = Path(tempfile.mkdtemp(dir=_FOLDER.name), "model.onnx")
        onnx.save(model, path)
        _known[key] = imported_model(path, shapes, **options)
    return _known[key]
