"""Options that choose one of the plans of a file, and the choice that inputs make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.options.common import read_shapes
from sartor.runtime.several.choice import PlanChoice
from sartor.samples.array_stream import array_names, is_archive, is_array, stored_array
from sartor.samples.feeds import is_file

PlanShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,3,224,224",
        help="Of a file with several plans the one for this shape of an input; repeatable. (default: that of the given "
        "inputs, else the file's first)",
    ),
]
PlanLevelOption = Annotated[
    str | None,
    typer.Option(
        "--cpu", metavar="LEVEL", help="Of a file with several CPU levels this one. (default: the one chosen here)"
    ),
]


def read_choice(
    shapes: Sequence[str] | None,
    device: str | None,
    sources: Mapping[str, str] | None = None,
    archive: Path | None = None,
    level: str | None = None,
) -> PlanChoice:
    """The plan that is meant: by ``--shape``, or else by the shapes of the inputs' files.

    Args:
        shapes: texts of ``--shape``.
        device: as for ``Session``.
        sources: of the inputs, by name.
        archive: a .npz file with the inputs.
        level: of the CPU.

    Raises:
        UsageError: if a text has another form, or a file cannot be read.
    """
    given_shapes = {
        name: stored_array(Path(source)).shape
        for name, source in (sources or {}).items()
        if is_file(source) and not is_archive(Path(source))
    }
    if archive is not None and not is_array(archive):
        given_shapes |= {name: stored_array(archive, name).shape for name in array_names(archive)}
    return PlanChoice(read_shapes(shapes), given_shapes, device, level)
