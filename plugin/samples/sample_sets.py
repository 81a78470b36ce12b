"""The samples of a compilation: the user's, or random ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sartor.frontend.imported_model import ImportedModel
from sartor.onnx_model.graphs.prepared import prepared_model
from sartor.reference.random_inputs import USUAL, InputSampler, Style
from sartor.reference.sample_styles import NO_DOUBTS, Doubts
from sartor.runtime.driver.signature import Array
from sartor.samples.given_samples import HeldSamples, Samples, SampleSource
from sartor.samples.sized_samples import SizedSamples
from sartor.tuning.records.signature import value_spec

DRAWN = 8
"""Number of samples that are drawn for a lower precision if the user gives none."""

MOST_VERIFIED = 100
"""A module's error is measured on at most this number of samples, the first ones."""

# Number of samples of each style, if several styles are needed.
_EACH = 2
_BLOCK = 1 << 20


@dataclass(frozen=True)
class DrawnSamples:
    """Random inputs of a model, drawn when they are used.

    Attributes:
        skeleton: the model; weights are not read.
        count: number of samples.
        styles: in which they are drawn, in turn.
    """

    skeleton: bytes
    count: int
    styles: tuple[Style, ...] = (USUAL,)

    def __len__(self) -> int:
        return self.count

    def since(self, start: int) -> Iterator[Mapping[str, Array]]:
        """Yield the samples from index ``start`` on; the first is the one that the import used."""
        sampler = InputSampler(prepared_model(self.skeleton))
        for number in range(start, self.count):
            seed, style = divmod(number, len(self.styles))
            yield sampler(seed, self.styles[style])


@dataclass(frozen=True)
class SampleSet:
    """Samples that fit the model.

    Attributes:
        source: the samples.
        digest: identifies the samples in caches; empty for those that every compilation of the model draws.
        doubts: about outputs that cannot be checked on them, as they are constant or not finite.
        tie_spread: relative error on them by rounding ties to the other side (``tie_spread``).
        permitted_error: relative error on them by all the rounding that the model permits.
    """

    source: SampleSource
    digest: str
    doubts: Doubts = NO_DOUBTS
    tie_spread: float = 0.0
    permitted_error: float = 0.0

    def __len__(self) -> int:
        return len(self.source)

    @property
    def are_given(self) -> bool:
        """Whether they are the user's."""
        return isinstance(self.source, (Samples, SizedSamples))

    @property
    def first(self) -> Mapping[str, Array]:
        """The first sample.

        Raises:
            UsageError: if it cannot be read.
        """
        return next(self.source.since(0))


def sample_set(imported: ImportedModel, given: Path | None, *, narrow: bool) -> SampleSet:
    """The user's samples, checked against the model. Without any, the import's sample, and more for a lower precision.

    Args:
        imported: the model.
        given: the user's file or directory, or None.
        narrow: whether layers may compute in narrower types than the model.

    Raises:
        UsageError: if a file does not fit; the message names the file and the input.
    """
    if given is not None:
        if imported.open_inputs:
            shapes = {value.name: value.type.shape for value in imported.graph.inputs}
            return SampleSet(SizedSamples.open(given, imported.open_inputs, shapes), _digest(given))
        return SampleSet(Samples.open(given, list(map(value_spec, imported.graph.inputs))), _digest(given))
    styles, known = imported.styles, (imported.doubts, imported.tie_spread)
    named = "" if styles == (USUAL,) else f" {styles}"
    if narrow:
        return SampleSet(DrawnSamples(imported.skeleton, DRAWN, styles), f"{DRAWN} drawn{named}", *known)
    if len(styles) == 1:
        return SampleSet(HeldSamples((imported.samples,)), named, *known)
    count = _EACH * len(styles)
    return SampleSet(DrawnSamples(imported.skeleton, count, styles), f"{count} drawn{named}", *known)


def samples_of_calls(imported: ImportedModel, samples: SampleSet, count: int) -> SampleSource:
    """Samples for calls one after another, which should differ, or a row in the place of another one is not seen.

    The user's own are as many as there are; otherwise so many are drawn, also where single runs need fewer.
    """
    return samples.source if samples.are_given else DrawnSamples(imported.skeleton, count, imported.styles)


def check_shapes(imported: ImportedModel, given: Path, shapes: Iterable[Mapping[str, tuple[int, ...]]]) -> None:
    """Make sure, before anything is tuned, that the user's samples fit the model with each of several shapes.

    Raises:
        UsageError: if a file does not fit.
    """
    specs = list(map(value_spec, imported.graph.inputs))
    for shape in shapes:
        # A dimension that one input names may be that of another, too, whose shape is then not known here.
        if shape.keys() >= {spec.name for spec in specs}:
            Samples.open(given, [replace(spec, shape=shape[spec.name]) for spec in specs])


def _digest(path: Path) -> str:
    """Hash of the files' names and contents."""
    paths: Sequence[Path] = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    hashed = hashlib.sha256()
    for sample in paths:
        hashed.update(f"{sample.name}\0{sample.stat().st_size}\0".encode(errors="surrogateescape"))
        with sample.open("rb") as file:
            while block := file.read(_BLOCK):
                hashed.update(block)
    return hashed.hexdigest()
