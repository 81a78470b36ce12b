"""The option that names several sizes of dimensions, all combinations of which are timed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sartor.cli.options.sizes import read_sizes
from sartor.errors import UsageError
from sartor.runtime.files.open_sizes import OpenSize
from sartor.runtime.manifest import find_manifest
from sartor.runtime.module import open_module

_RANGE, _LIST = r"(?P<least>[0-9]{1,9})\.\.(?P<most>[0-9]{1,9})", r"(?P<listed>[0-9]{1,9}(?:,[0-9]{1,9})*)"
_TEXT = re.compile(rf"(?:(?P<name>.+)=)?(?:{_RANGE}|{_LIST})")
# Sizes of a range lie an octave apart, or nearer where it has few octaves.
_FEWEST_STEPS = 4
_MOST_SIZES = 100

Sizes = Mapping[str, int]

SizesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sizes",
        metavar="[NAME=]1..512|[NAME=]1,7,64",
        help="Of a module for any size the sizes of a dimension that are timed in one run, of a range its ends and "
        "those between by octaves; repeatable, all combinations are timed.",
    ),
]


def swept_sizes(module: Path, texts: Sequence[str], fixed: Sequence[str] | None) -> list[Sizes]:
    """Each combination of the sizes of ``--sizes`` with those of ``--size``, by the names of dimensions.

    Args:
        module: a file for any size.
        texts: each ``NAME=1..512`` or ``NAME=1,7,64``; the name may be missing where one dimension is left.
        fixed: of ``--size``.

    Raises:
        UsageError: if a text cannot be read, or names a dimension that the module does not have, or twice; or if there
            are too many combinations.
    """
    manifest = find_manifest(open_module(module))
    known = {size.name: size for size in manifest.sizes} if manifest is not None else {}
    if not known:
        raise UsageError(f"'{module}' has no dimension of any size; leave --sizes out")
    sizes = read_sizes(fixed)
    swept = dict[str, Sequence[int]]()
    for text in texts:
        name, numbers = _read(text, known, {*sizes, *swept})
        swept[name] = numbers
    combinations: list[Sizes] = [
        {**sizes, **dict(zip(swept, numbers, strict=True))} for numbers in itertools.product(*swept.values())
    ]
    if len(combinations) > _MOST_SIZES:
        raise UsageError(
            f"--sizes has {len(combinations)} combinations, at most {_MOST_SIZES} are timed in one run; name fewer"
        )
    return combinations


def as_texts(sizes: Sizes) -> list[str]:
    """Sizes as ``--size`` takes them."""
    return [f"{name}={size}" for name, size in sizes.items()]


def _read(text: str, known: Mapping[str, OpenSize], given: set[str]) -> tuple[str, Sequence[int]]:
    """The dimension that a text names, and its sizes in the order of the text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise UsageError(f"--sizes '{text}' cannot be read, expected for example sequence=1..512 or sequence=1,7,64")
    name = match["name"] or _only(text, [name for name in known if name not in given])
    if name not in known:
        raise UsageError(f"--sizes names '{name}'; the dimensions of any size are: {', '.join(known)}")
    if name in given:
        raise UsageError(f"'{name}' has sizes twice; name it once in --sizes or --size")
    if match["listed"]:
        numbers = list(dict.fromkeys(map(int, match["listed"].split(","))))
        if others := [number for number in numbers if not known[name].allows(number)]:
            raise UsageError(f"--sizes gives '{name}' the size {others[0]}, but the module takes {known[name]}")
        return name, numbers
    return name, _spread(known[name], int(match["least"]), int(match["most"]))


def _only(text: str, names: Sequence[str]) -> str:
    if len(names) != 1:
        of = ", ".join(names) or "none"
        raise UsageError(f"--sizes '{text}' names no dimension, and of these have no size yet: {of}; write NAME={text}")
    return names[0]


def _spread(of: OpenSize, least: int, most: int) -> Sequence[int]:
    """The ends of a range, and sizes between that the module takes, which are evenly spread as ratios count."""
    if least > most or not of.allows(least) or not of.allows(most):
        raise UsageError(f"--sizes has the range {least}..{most}, but the module takes {of}")
    steps = max((most // max(least, 1)).bit_length() - 1, _FEWEST_STEPS)
    between = (round(max(least, 1) * (most / max(least, 1)) ** (step / steps)) for step in range(1, steps))
    return sorted({least, most, *(of.nearest(size) for size in between)})
