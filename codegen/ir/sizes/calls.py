"""Calls of a network of open sizes: for which sizes plans are selected, and how many of all calls have each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SizedCall:
    """The calls that have some sizes.

    Attributes:
        sizes: size of each symbol, by name, in the order of the symbols.
        share: fraction of all calls; 0 for sizes at which code is checked alone.
    """

    sizes: tuple[tuple[str, int], ...]
    share: float

    def __str__(self) -> str:
        """The sizes with their share, as keys of measurements have them."""
        return f"{self.named}*{self.share:.3g}"

    @property
    def named(self) -> str:
        """The sizes by name, as messages show them."""
        return ", ".join(f"{name}={size}" for name, size in self.sizes)

    @property
    def by_name(self) -> Mapping[str, int]:
        """The sizes, by name."""
        return dict(self.sizes)
