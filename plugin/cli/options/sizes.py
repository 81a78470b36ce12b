"""The option that gives a module for any size those sizes that its inputs shall have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sartor.errors import UsageError
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.files.open_sizes import OpenSize
from sartor.runtime.manifest import find_manifest
from sartor.runtime.module import open_module

_TEXT = re.compile(r"(?P<name>.+)=(?P<size>[0-9]{1,9})")

SizeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="NAME=NUMBER",
        help="Of a module for any size the size of this dimension, for inputs that are made up; repeatable.",
    ),
]


def sized_inputs(
    module: Path, specs: Sequence[TensorSpec], texts: Sequence[str] | None, *, fills: bool = False
) -> list[TensorSpec]:
    """The inputs of a module with the sizes of ``--size``; others as they are, or where it ``fills`` them in the middle
    of their ranges, as ratios count. Of drawn noise whose length no other input tells there is as much as can be read.

    Raises:
        UsageError: if a text has another form, or names a dimension that the module does not have, or a size that is
            out of its range.
    """
    sized = list(specs)
    if not texts and not fills:
        return sized
    manifest = find_manifest(open_module(module))
    known = {size.name: size for size in manifest.sizes} if manifest is not None else {}
    drawn = {noise.name for noise in manifest.noise} if manifest is not None else set[str]()
    usual = {
        name: size.most if drawn.issuperset(place.input for place in size.places) else _middle(size)
        for name, size in (known.items() if fills else ())
    }
    for name, size in {**usual, **read_sizes(texts)}.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(f"--size names '{name}'; the dimensions of any size in '{module}' are: {names}")
        sized = _with_size(sized, known[name], size)
    return _with_sums(sized, known.values())


def _with_sums(specs: Sequence[TensorSpec], sizes: Iterable[OpenSize]) -> list[TensorSpec]:
    """The inputs with sizes that are sums of others, where these are known."""
    shapes = {spec.name: list(spec.shape) for spec in specs}
    for own, place in ((size.places[0], place) for size in sizes for place in size.places if place.besides):
        known = {term.input: [dim for dim in shapes[term.input] if dim is not None] for term in (own, *place.besides)}
        if all(len(known[name]) == len(shapes[name]) for name in known):
            terms = (term.size(known) for term in (own, *place.besides))
            shapes[place.input][place.axis] = sum(terms) + place.offset
    return [replace(spec, shape=tuple(shapes[spec.name])) for spec in specs]


def _middle(of: OpenSize) -> int:
    """The size in the middle of a range, or the least above it that the module takes."""
    middle = math.isqrt(max(of.least, 1) * of.most)
    return min(max(-(-middle // of.multiple) * of.multiple, of.least), of.most)


def read_sizes(texts: Sequence[str] | None) -> dict[str, int]:
    """Sizes by the names of dimensions.

    Raises:
        UsageError: if a text has another form.
    """
    sizes = dict[str, int]()
    for text in texts or ():
        match = _TEXT.fullmatch(text)
        if match is None:
            raise UsageError(f"--size '{text}' cannot be read, expected for example sequence=77")
        sizes[match["name"]] = int(match["size"])
    return sizes


def _with_size(specs: Sequence[TensorSpec], of: OpenSize, size: int) -> list[TensorSpec]:
    if not of.allows(size):
        raise UsageError(f"--size gives '{of.name}' the size {size}, but the module takes {of}")
    known = {(place.input, place.axis): size + place.offset for place in of.places if not place.besides}
    return [
        replace(spec, shape=tuple(known.get((spec.name, axis), old) for axis, old in enumerate(spec.shape)))
        for spec in specs
    ]
