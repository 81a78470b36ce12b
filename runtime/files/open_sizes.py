"""Sizes that callers choose, within the ranges that a module was compiled for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.errors import UsageError
from sartor.runtime.files.json_fields import Fields, checked, listed, text, whole

Shapes = Mapping[str, Sequence[int]]


def _check_size(size: int) -> None:
    if size < 0:
        raise ValueError(f"{size} is no size")


_SIZE = checked(whole, _check_size)


@dataclass(frozen=True)
class Place:
    """A dimension of an input.

    Attributes:
        input: the input's name.
        axis: number of the dimension.
        offset: what is added to the size there.
    """

    input: str
    axis: int
    offset: int = 0

    @staticmethod
    def read(content: object, where: str = "") -> Place:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a place.
        """
        fields = Fields(content, where)
        found = Place(fields.take("input", text), fields.take("axis", _SIZE), fields.take("offset", whole, 0))
        fields.end()
        return found

    def __str__(self) -> str:
        """The dimension as messages name it."""
        added = f", which has {abs(self.offset)} {'less' if self.offset < 0 else 'more'}" if self.offset else ""
        return f"dimension {self.axis} of input '{self.input}'{added}"


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
        least, most, multiple = (fields.take(each, _SIZE) for each in ("least", "most", "multiple"))
        found = OpenSize(name, least, most, multiple, fields.take("places", listed(Place.read)))
        fields.end()
        return found

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
        found = {place: shapes[place.input][place.axis] - place.offset for place in self.places}
        (first, size), *others = found.items()
        for place, other in others:
            if other != size:
                raise UsageError(f"'{self.name}' is {size} in {first} and {other} in {place}; give both the same size")
        if not self.allows(size):
            taken = f"'{self.name}' is {size} in {first}" if first.offset else f"{first} has the size {size}"
            raise UsageError(
                f"{taken}, but the module takes {self}; compile it with a range of --shape that has the size"
            )
