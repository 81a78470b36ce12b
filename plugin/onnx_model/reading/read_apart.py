"""Reads in a worker what a model consists of and takes, for commands that do not compile it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from sartor.errors import SartorError, UsageError
from sartor.onnx_model.reading.check_inputs import check_inputs
from sartor.onnx_model.reading.load import check_files
from sartor.tuning.workers.calls import TIMEOUT, call, open_pool
from sartor.tuning.workers.protocol import WorkerError

Described = Mapping[str, Mapping[str, Any]]
"""Inputs by name, each with its ``dtype`` and its ``shape``."""


def external_files(model: Path) -> tuple[Path, ...]:
    """The files of a model's external data.

    Raises:
        UsageError: if one is not there or cannot be read.
        UnsupportedModelError: if it is no ONNX model, or names data outside its folder.
    """
    return read_model(model, None)


def read_model(model: Path, feeds: Described | None) -> tuple[Path, ...]:
    """As ``external_files``; of a model that takes these inputs, if there are any.

    Raises:
        UsageError: also if it takes others.
        UnsupportedModelError: as ``external_files``.
    """
    # An absolute path, as workers may have another working directory. Links stay, as external data lies beside them.
    with open_pool(1) as (pool, _):
        return call(pool, checked_model, {"path": model.absolute(), "feeds": feeds}, "reading the model", TIMEOUT)


def checked_model(path: Path, feeds: Described | None) -> tuple[Path, ...] | WorkerError:
    """Worker side of ``read_model``."""
    try:
        paths = check_files(path)
        if feeds is not None:
            _check_inputs(path, feeds)
        return paths
    except SartorError as error:
        return WorkerError(error)


def _check_inputs(path: Path, feeds: Described) -> None:
    """Make sure that the model takes the inputs."""
    model = onnx.load(path, load_external_data=False)
    check_inputs(model, {*feeds})
    for value in model.graph.input:
        kind = value.type.tensor_type
        if not kind.elem_type or value.name not in feeds:
            continue
        dtype, given = helper.tensor_dtype_to_np_dtype(kind.elem_type).name, feeds[value.name]
        # Some exporters write a negative number for a size that is not known.
        sizes = tuple(
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None for dim in kind.shape.dim
        )
        fits = not kind.HasField("shape") or _accepts(sizes, given["shape"])
        if given["dtype"] != dtype or not fits:
            raise UsageError(
                f"the model's input '{value.name}' is {dtype}{_shown(sizes)}, and the module's is "
                f"{given['dtype']}{_shown(given['shape'])}; name the model that the module was compiled from"
            )


def _accepts(sizes: Sequence[int | None], shape: Sequence[int]) -> bool:
    return len(sizes) == len(shape) and all(want in (None, have) for want, have in zip(sizes, shape, strict=True))


def _shown(sizes: Sequence[int | None]) -> str:
    return str(["?" if size is None else size for size in sizes]).replace("'", "")
