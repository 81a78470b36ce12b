"""The files that models and modules consist of, which no output may overwrite."""

from __future__ import annotations

from pathlib import Path

from sartor.cli.options.common import existing_file
from sartor.onnx_model.reading.read_apart import external_files
from sartor.runtime.manifest import find_manifest
from sartor.runtime.module import open_module
from sartor.runtime.module_facts import module_weights

UsedFiles = list[tuple[str, Path]]
"""What each file is, in words, and the file."""


def model_files(model: Path) -> UsedFiles:
    """An ONNX model's file and those of its external data.

    Raises:
        UsageError: if one is not there or cannot be read.
        UnsupportedModelError: if it is no ONNX model, or names data outside its folder.
    """
    weights = external_files(existing_file(model))
    return [("the model", model), *(("weights of the model", weight) for weight in weights)]


def module_files(module: Path) -> UsedFiles:
    """A compiled module's file, which need not be there, and those of its weights.

    Raises:
        UsageError: if the file is no IREE module.
    """
    manifest = find_manifest(open_module(module)) if module.is_file() else None
    weights = module_weights(module, manifest).values()
    return [("the module", module), *(("weights of the module", weight) for weight in weights)]
