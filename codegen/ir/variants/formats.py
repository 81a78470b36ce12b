"""Algorithms and formats: what a routine computes and how, apart from how its numbers lie in memory and are multiplied.

A routine is an algorithm in a format. A table lists the pairs that there are, and each other pair has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sartor.codegen.ir.variants.routine import Routine
from sartor.codegen.ir.variants.traits import Instruction
from sartor.devices import CPU, KINDS

BLOCKS = "blocks"
"""Weights that the model has as codes in blocks, each with a scale."""


class Layout(Enum):
    """How images lie in memory: as an algorithm has them, with channels last in most kernels, or in another way."""

    OWN = "own"
    BLOCKED = "blocks of channels"
    PLANES = "planes"


class Work(Enum):
    """What an algorithm does with weights; the value says why formats of weights and products are not for it."""

    MULTIPLIES = ""
    WINDOWS = "it sums no products over channels, and has few weights"
    MOVES = "it multiplies by no weights"
    LOWERED = "IREE decides how its weights are stored and multiplied"


@dataclass(frozen=True, eq=False)
class Format:
    """How the numbers of a layer lie in memory and are multiplied.

    Attributes:
        name: of the format, as it is shown.
        suffix: what it adds to an algorithm's name in descriptors.
        product: name in descriptors of products and convolutions in it, if they are called by how they multiply.
        element: type of the layers; None for the types that a kernel is written for.
        storage: narrower type of activations and results in memory; None for the layer's own.
        result: type of results, if it is another one.
        layout: of images.
        weights: type that weights alone are stored in, or ``BLOCKS``; None for as the algorithm reads them.
        block: rows of a block that weights of floats are rounded in; None if they are not.
        vectors: of a panel of weights, where that is all that differs; None if it is not.
        arithmetic: type that numbers of f32 are rounded to where they are multiplied; None for none.
        instruction: multiplies groups of numbers; None if they are multiplied one by one.
        devices: that have it.
        wrap: makes the routine of one that computes the same in wider types; None if it needs no other.
        only: why no other algorithms have it than those that the table lists, if these do not say why.
    """

    name: str
    suffix: str = ""
    product: str | None = None
    element: str | None = None
    storage: str | None = None
    result: str | None = None
    layout: Layout = Layout.OWN
    weights: str | None = None
    block: int | None = None
    vectors: int | None = None
    arithmetic: str | None = None
    instruction: Instruction | None = None
    devices: tuple[str, ...] = KINDS
    wrap: Callable[[Any], Routine] | None = None
    only: str = ""

    @property
    def fields(self) -> dict[str, object]:
        """What a class of kernels takes, without what is as in the model's own format."""
        given = {
            "storage": self.storage,
            "output": self.result,
            "weights": None if self.weights == BLOCKS else self.weights,
            "arithmetic": self.arithmetic,
            "element": self.instruction,
            "blocked": self.layout is Layout.BLOCKED,
            "by_planes": self.layout is Layout.PLANES,
        }
        return {name: value for name, value in given.items() if value}

    @property
    def is_of_weights(self) -> bool:
        """Whether it says how weights are stored or multiplied, and not only what is stored between layers."""
        return bool(self.weights or self.instruction or self.arithmetic or self.vectors is not None)


@dataclass(frozen=True, eq=False)
class Algorithm:
    """What a routine computes, and how, whatever the format.

    Attributes:
        name: of the routine in the model's own format.
        make: the routine of a name in a format.
        only: why it has no other formats than those that the table lists; empty if these say why.
        work: what it does with numbers.
        layouts: of images that it reads, if it reads images.
        devices: that it has code for.
        by_product: whether routines are called by how they multiply.
        names: in descriptors, by format, where they are made of neither.
    """

    name: str
    make: Callable[[str, Format], Routine]
    only: str = ""
    work: Work = Work.MULTIPLIES
    layouts: tuple[Layout, ...] = (Layout.OWN,)
    devices: tuple[str, ...] = (CPU,)
    by_product: bool = False
    names: Mapping[Format, str] = field(default_factory=dict)

    def routine(self, form: Format) -> Routine:
        """The routine in a format."""
        own = form.product if self.by_product and form.product else self.name + form.suffix
        made = self.make(self.names.get(form, own), form)
        return made if form.wrap is None else form.wrap(made)


def kernel(kind: Callable[..., Routine], **given: object) -> Callable[[str, Format], Routine]:
    """What makes routines of a class, whose fields are those of ``Format.fields`` and the given ones."""
    return lambda name, form: kind(name=name, **form.fields, **given)


def alone(kind: Callable[[], Routine]) -> Callable[[str, Format], Routine]:
    """What makes the only routine of a class."""
    return lambda _name, _form: kind()


@dataclass(frozen=True)
class Row:
    """Algorithms that exist in each of some formats.

    Attributes:
        algorithms: in the order in which they are asked.
        formats: of each of them, in that order.
    """

    algorithms: Sequence[Algorithm]
    formats: Sequence[Format]

    @property
    def pairs(self) -> Iterator[tuple[Algorithm, Format]]:
        """The pairs."""
        return ((algorithm, form) for algorithm in self.algorithms for form in self.formats)


@dataclass(frozen=True)
class Absence:
    """A pair that there is no routine of.

    Attributes:
        algorithm: its name.
        form: the name of the format.
        reason: why.
    """

    algorithm: str
    form: str
    reason: str


def absences(pairs: Iterable[tuple[Algorithm, Format]]) -> Iterator[Absence]:
    """Why the pairs of algorithms and formats that are not among ``pairs`` do not exist."""
    listed = dict.fromkeys(pairs)
    formats = dict.fromkeys(form for _, form in listed)
    for algorithm in dict.fromkeys(algorithm for algorithm, _ in listed):
        for form in formats:
            if (algorithm, form) not in listed:
                reason = excluding(algorithm, form) or algorithm.only or form.only
                yield Absence(algorithm.name, form.name, reason)


def excluding(algorithm: Algorithm, form: Format) -> str | None:
    """Why what an algorithm does and what a format is exclude each other; None if they do not."""
    if not {*algorithm.devices} & {*form.devices}:
        return f"it is for {' and '.join(algorithm.devices)}, and the format for {' and '.join(form.devices)}"
    if form.layout not in algorithm.layouts:
        return f"it has no form for images in {form.layout.value} beside its own layout"
    return algorithm.work.value or None if form.is_of_weights else None
