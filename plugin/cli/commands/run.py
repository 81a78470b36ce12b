"""``sartor run``: one inference."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sartor.cli.options.common import (
    DeviceOption,
    InputOption,
    JsonOption,
    ModuleArgument,
    ThreadsOption,
    read_sources,
)
from sartor.cli.output.terminal import show_json, show_table
from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.module_facts import module_signature
from sartor.runtime.output_error import count_not_finite
from sartor.runtime.session import Session
from sartor.samples.feeds import make_feeds

_LOG = logging.getLogger(__name__)


def run(
    module: ModuleArgument,
    input: InputOption = None,
    output_dir: Annotated[Path | None, typer.Option(help="Write every output to this folder as .npy.")] = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Run a module once and show what its outputs look like."""
    signature = module_signature(module)
    feeds = make_feeds(signature.inputs, read_sources(input))
    with Session(module, device=device, threads=threads) as session:
        values = session.run(None, feeds)
    outputs = dict(zip((spec.name for spec in signature.outputs), values, strict=True))
    _warn_of_what_is_not_finite(outputs)
    files = {} if output_dir is None else _write(outputs, output_dir)
    described = [_describe(name, value, files.get(name)) for name, value in outputs.items()]
    if json:
        show_json({"outputs": described})
    else:
        columns = ("output", "type", "shape", "min", "mean", "max")
        show_table(str(module), columns, [_row(each) for each in described], right=(3, 4, 5))


def _warn_of_what_is_not_finite(outputs: Mapping[str, Array]) -> None:
    for name, value in outputs.items():
        if found := count_not_finite(value):
            _LOG.warning(
                "output '%s' holds NaN or infinities, %d of %d elements; min, mean and max are of the others",
                name,
                found,
                value.size,
            )


def _write(outputs: Mapping[str, Array], folder: Path) -> dict[str, Path]:
    """Write a .npy file per output, named after it, with other characters than letters, digits, - and _ replaced."""
    files: dict[str, Path] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for index, (name, value) in enumerate(outputs.items()):
            path = folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}.npy"
            files[name] = path.with_stem(f"{path.stem}_{index}") if path in files.values() else path
            np.save(files[name], value)
    except OSError as error:
        raise UsageError(f"the outputs cannot be written to '{folder}': {error.strerror}") from None
    return files


def _describe(name: str, value: Array, file: Path | None) -> dict[str, Any]:
    return {
        "name": name,
        "dtype": value.dtype.name,
        "shape": list(value.shape),
        **_statistics(value),
        "file": None if file is None else str(file),
    }


def _statistics(value: Array) -> dict[str, float | None]:
    """Statistics of the finite elements; JSON cannot represent others."""
    numbers = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return {"min": None, "mean": None, "max": None}
    return {"min": float(finite.min()), "mean": float(finite.mean()), "max": float(finite.max())}


def _row(each: Mapping[str, Any]) -> list[str]:
    shape = "x".join(map(str, each["shape"]))
    numbers = ["-" if each[key] is None else f"{each[key]:.6g}" for key in ("min", "mean", "max")]
    return [each["name"], each["dtype"], shape, *numbers]
