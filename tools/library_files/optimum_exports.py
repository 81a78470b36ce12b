"""Transformers that Optimum exported: a classifier, decoders with caches, and a decoder of both kinds in one file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from optimum.exporters.onnx import main_export

from tools.library_files.transformers_models import saved

_TASKS = {"bert": "text-classification", "gpt2": "text-generation-with-past", "t5": "text2text-generation-with-past"}
_LEFT_OUT = {"decoder_model", "decoder_with_past_model"}


def files(work: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Names and models."""
    for name, task in _TASKS.items():
        folder = work / f"{name}_onnx"
        main_export(str(saved(name, work)), folder, task=task, do_validation=False)
        for path in sorted(folder.glob("*.onnx")):
            if path.stem not in _LEFT_OUT:
                yield f"optimum_{name}_{path.stem}", onnx.load_model(path)
