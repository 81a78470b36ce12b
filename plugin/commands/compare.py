"""``sartor compare``: whether a module computes what ONNX Runtime computes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.commands.options import (
    DeviceOption,
    JsonOption,
    ModuleArgument,
    ThreadsOption,
    check_error_bound,
    existing_file,
)
from sartor.config import DEFAULT_MAX_ERROR
from sartor.errors import SartorError
from sartor.feeds import make_feeds, read_archive
from sartor.module_facts import module_signature
from sartor.onnx_model.load import load_model
from sartor.runtime.reference import OnnxRuntimeReference, output_error
from sartor.runtime.session import Session
from sartor.runtime.signature import Array
from sartor.sigmoid_outputs import output_floors
from sartor.terminal import show_json, show_table
from sartor.tolerance import tolerance


class DifferentResultError(SartorError):
    """The module's outputs are further from ONNX Runtime's than allowed."""


def compare(
    module: ModuleArgument,
    vs: Annotated[Path, typer.Option(metavar="MODEL.onnx", help="The model it was compiled from.")],
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="One array per input. (default: random values)")
    ] = None,
    max_error: Annotated[
        float, typer.Option(help="Relative error allowed, if the model's own types do not round off more.")
    ] = DEFAULT_MAX_ERROR,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a module's outputs with ONNX Runtime's; exit code 1 if they differ too much."""
    check_error_bound(max_error)
    signature = module_signature(module)
    model = load_model(existing_file(vs))
    allowed = tolerance(model, max_error)
    feeds = make_feeds(signature.inputs, {}) if inputs is None else read_archive(inputs)
    with Session(module, device=device, threads=threads) as session:
        outputs = session.run(None, feeds)
    reference = OnnxRuntimeReference(vs)
    expected = dict(zip(reference.output_names, reference(feeds), strict=True))
    floors = dict(zip(reference.output_names, output_floors(model), strict=True))
    errors = {
        spec.name: _error(output, expected.get(spec.name), floors.get(spec.name, 0.0))
        for spec, output in zip(signature.outputs, outputs, strict=True)
    }
    _show(module, errors, allowed, json)
    worst = max(errors, key=lambda name: errors[name], default=None)
    if worst is not None and errors[worst] > allowed:
        raise DifferentResultError(
            f"output '{worst}' has the relative error {errors[worst]:.2g}, {allowed:g} is allowed for this model"
        )


def _error(output: Array, expected: Array | None, floor: float) -> float:
    return math.inf if expected is None else output_error(output, expected, floor=floor)


def _show(module: Path, errors: dict[str, float], max_error: float, as_json: bool) -> None:
    """Infinite errors are null in JSON, which has no word for them."""
    if as_json:
        listed: list[dict[str, Any]] = [
            {"name": name, "relative_error": error if math.isfinite(error) else None, "within": error <= max_error}
            for name, error in errors.items()
        ]
        show_json({"max_error": max_error, "outputs": listed})
        return
    rows = [[name, f"{error:.2g}", "yes" if error <= max_error else "NO"] for name, error in errors.items()]
    show_table(str(module), ("output", "relative error", f"within {max_error:g}"), rows, right=(1,))
