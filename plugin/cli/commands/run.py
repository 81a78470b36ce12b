"""``sartor run``: one inference."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from sartor.cli.options.common import (
    DeviceOption,
    InputOption,
    JsonOption,
    ModuleArgument,
    SignatureOption,
    ThreadsOption,
    read_sources,
)
from sartor.cli.options.plan_choice import PlanShapesOption, read_choice
from sartor.cli.options.sizes import SizeOption, sized_inputs
from sartor.cli.output.terminal import show_json, show_table
from sartor.errors import UsageError
from sartor.publishing import check_apart, publication
from sartor.runtime.driver.counts import shown_outputs
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.manifest import find_manifest
from sartor.runtime.module import open_module
from sartor.runtime.module_facts import (
    bound_inputs,
    check_passes_all,
    input_names,
    module_signature,
    module_weights,
    noise_inputs,
    session_signature,
)
from sartor.runtime.output_error import count_not_finite
from sartor.runtime.session import Session
from sartor.samples.feeds import make_feeds

_LOG = logging.getLogger(__name__)
_LONGEST_NAME = 200


def run(
    module: ModuleArgument,
    input: InputOption = None,
    output_dir: Annotated[Path | None, typer.Option(help="Write every output to this folder as .npy.")] = None,
    shape: PlanShapesOption = None,
    size: SizeOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
    signature: SignatureOption = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the model's random operators. (default: another each time)"),
    ] = None,
    no_state: Annotated[
        bool, typer.Option("--no-state", help="Pass states as inputs, and show them as outputs.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run a module once and show what its outputs look like; states begin as in a new session."""
    if no_state:
        check_passes_all(module)
    sources = read_sources(input, input_names(module, signature))
    known = module_signature(module, signature, read_choice(shape, device, sources))
    known = known if no_state else _without_states(module, known, sources)
    # The session draws them by the seed.
    drawn = {noise_input.name for noise_input in noise_inputs(module)} - set(sources)
    given = [spec for spec in sized_inputs(module, known.inputs, size) if spec.name not in drawn]
    feeds = make_feeds(given, sources, bound_inputs(module), noise_inputs(module))
    names = [spec.name for spec in shown_outputs(known.outputs)]
    with _folder(output_dir):
        files = {} if output_dir is None else _named_files(names, output_dir)
        _check_files(files, module, sources)
        told = session_signature(module, known)
        keeps = not no_state
        with Session(module, device=device, threads=threads, signature=told, seed=seed, keep_states=keeps) as session:
            outputs = dict(zip(names, session.run(None, feeds), strict=True))
        _warn_of_what_is_not_finite(outputs)
        with publication() as published:
            for name, path in files.items():
                with published.written(path) as new:
                    _save(new, outputs[name])
    described = [_describe(name, value, files.get(name)) for name, value in outputs.items()]
    if json:
        show_json({"outputs": described})
    else:
        columns = ("output", "type", "shape", "min", "mean", "max")
        show_table(str(module), columns, [_row(value) for value in described], right=(3, 4, 5))


def _without_states(module: Path, known: Signature, sources: Mapping[str, str]) -> Signature:
    """The function that keeps states, of a module that has it.

    Raises:
        UsageError: if a state is given as an input.
    """
    manifest = find_manifest(open_module(module))
    if manifest is None or not (manifest.states or manifest.caches):
        return known
    kept = [*(state.input for state in manifest.states), *(cache.input for cache in manifest.caches)]
    if given := [name for name in kept if name in sources]:
        raise UsageError(
            f"'{given[0]}' is a state that '{module}' keeps itself; leave it out, or pass all states with --no-state"
        )
    return manifest.stateful_signature


def _warn_of_what_is_not_finite(outputs: Mapping[str, Array]) -> None:
    for name, value in outputs.items():
        if count := count_not_finite(value):
            _LOG.warning(
                "output '%s' holds NaN or infinities, %d of %d elements; min, mean and max are of the others",
                name,
                count,
                value.size,
            )


@contextmanager
def _folder(path: Path | None) -> Iterator[None]:
    """Make the folder for outputs; if the block fails, folders that are new and empty are removed.

    Raises:
        UsageError: if it cannot be made.
    """
    absent = [] if path is None else [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        if path is not None:
            _make(path)
        yield
    except BaseException:
        with suppress(OSError):
            for folder in absent:
                folder.rmdir()
        raise


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output-dir '{folder}' cannot be made: {error.strerror}") from None


def _save(path: Path, value: Array) -> None:
    """Write an array as .npy; of a failure numpy itself would say only how much was written, and not why."""
    content = io.BytesIO()
    np.save(content, value)
    path.write_bytes(content.getbuffer())


def _named_files(names: Sequence[str], folder: Path) -> dict[str, Path]:
    """A .npy file per output, named after it, with other characters than letters, digits, - and _ replaced, and without
    the end of a name that is longer than file systems take."""
    files: dict[str, Path] = {}
    for index, name in enumerate(names):
        path = folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)[:_LONGEST_NAME]}.npy"
        while path in files.values():
            path = path.with_stem(f"{path.stem}_{index}")
        files[name] = path
    return files


def _check_files(files: Mapping[str, Path], module: Path, sources: Mapping[str, str]) -> None:
    weights = module_weights(module, find_manifest(open_module(module)))
    used = [("the module", module), *(("the weights", path) for path in weights.values())]
    used += [(f"the input '{name}'", Path(source)) for name, source in sources.items()]
    check_apart({f"output '{name}'": path for name, path in files.items()}, used)


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
    # The sum may exceed what float64 holds, the mean may not.
    mean = float((finite / finite.size).sum())
    return {"min": float(finite.min()), "mean": mean, "max": float(finite.max())}


def _row(value: Mapping[str, Any]) -> list[str]:
    shape = "x".join(map(str, value["shape"]))
    numbers = ["-" if value[key] is None else f"{value[key]:.6g}" for key in ("min", "mean", "max")]
    return [value["name"], value["dtype"], shape, *numbers]
