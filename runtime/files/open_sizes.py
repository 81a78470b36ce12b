"""Sizes that callers choose, within the ranges that a module was compiled for, and those of outputs that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.errors import UsageError
from sartor.runtime.files.json_fields import Fields, checked, listed, text, whole

Shapes = Mapping[str, Sequence[int]]


def _check_size(size: int) -> None:
    if size < 0:
        raise ValueError(f"{size} is no size")


def _check_divisor(divisor: int) -> None:
    if divisor < 1:
        raise ValueError(f"{divisor} divides no size")


_SIZE, _DIVISOR = checked(whole, _check_size), checked(whole, _check_divisor)


@dataclass(frozen=True)
class Place:
    """A dimension of an input.

    Attributes:
        input: the input's name.
        axis: number of the dimension.
        offset: what is added to the size there.
        besides: dimensions whose sizes are added there, too, as that of a past to what is joined to it.
    """

    input: str
    axis: int
    offset: int = 0
    besides: tuple[Place, ...] = ()

    @staticmethod
    def read(content: object, where: str = "") -> Place:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a place.
        """
        fields = Fields(content, where)
        name, axis, offset = fields.take("input", text), fields.take("axis", _SIZE), fields.take("offset", whole, 0)
        place = Place(name, axis, offset, fields.take("besides", listed(Place.read), ()))
        fields.end()
        return place

    def to_json(self) -> dict[str, object]:
        """The fields as JSON data, without those that have nothing."""
        content: dict[str, object] = {"input": self.input, "axis": self.axis}
        if self.offset:
            content["offset"] = self.offset
        if self.besides:
            content["besides"] = [place.to_json() for place in self.besides]
        return content

    def size(self, shapes: Shapes) -> int:
        """The size where inputs have these shapes."""
        return shapes[self.input][self.axis] - self.offset - sum(place.size(shapes) for place in self.besides)

    def __str__(self) -> str:
        """The dimension as messages name it."""
        added = f", which has {abs(self.offset)} {'less' if self.offset < 0 else 'more'}" if self.offset else ""
        besides = "".join(f", less {place}" for place in self.besides)
        return f"dimension {self.axis} of input '{self.input}'{added}{besides}"


@dataclass(frozen=True)
class OpenSize:
    """A size that callers choose.

    Attributes:
        name: that of the dimension.
        least: the smallest size.
        most: the largest size.
        multiple: what every size is a multiple of.
        places: the dimensions that have it.
    """

    name: str
    least: int
    most: int
    multiple: int
    places: tuple[Place, ...]

    @staticmethod
    def read(content: object, where: str = "") -> OpenSize:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a size.
        """
        fields = Fields(content, where)
        name = fields.take("name", text)
        least, most, multiple = (fields.take(field_name, _SIZE) for field_name in ("least", "most", "multiple"))
        size_read = OpenSize(name, least, most, multiple, fields.take("places", listed(Place.read)))
        fields.end()
        return size_read

    def __str__(self) -> str:
        """The name and the range."""
        steps = f", a multiple of {self.multiple}" if self.multiple != 1 else ""
        return f"'{self.name}' from {self.least} to {self.most}{steps}"

    def allows(self, size: int) -> bool:
        """Whether the size is in the range."""
        return self.least <= size <= self.most and size % self.multiple == 0

    def nearest(self, size: int) -> int:
        """The largest size in the range that is not above another one, or the smallest of all."""
        least = -(-self.least // self.multiple) * self.multiple
        return max(least, min(size, self.most) // self.multiple * self.multiple)

    def check(self, shapes: Shapes) -> None:
        """Make sure that inputs of these shapes have the size, within its range, wherever they have it.

        Raises:
            UsageError: if not; the message names the inputs and the range.
        """
        sizes = {place: place.size(shapes) for place in self.places}
        (first, size), *others = sizes.items()
        for place, other in others:
            if other != size:
                raise UsageError(f"'{self.name}' is {size} in {first} and {other} in {place}; give both the same size")
        if not self.allows(size):
            taken = f"'{self.name}' is {size} in {first}" if first.offset else f"{first} has the size {size}"
            raise UsageError(
                f"{taken}, but the module takes {self}; compile it with a range of --shape that has the size"
            )


@dataclass(frozen=True)
class GivenSize:
    """A size of an output: ``factor`` times the product of sizes that callers choose, plus ``offset``, divided and
    rounded down.

    Attributes:
        output: the output's name.
        axis: number of the dimension.
        sizes: names of those that callers choose.
    """

    output: str
    axis: int
    sizes: tuple[str, ...]
    factor: int
    offset: int
    divisor: int

    @staticmethod
    def read(content: object, where: str = "") -> GivenSize:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of such a size.
        """
        fields = Fields(content, where)
        output, axis, sizes = (
            fields.take("output", text),
            fields.take("axis", _SIZE),
            fields.take("sizes", listed(text)),
        )
        factor, offset = fields.take("factor", whole), fields.take("offset", whole)
        size = GivenSize(output, axis, sizes, factor, offset, fields.take("divisor", _DIVISOR))
        fields.end()
        return size
