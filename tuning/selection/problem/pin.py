"""Pins: restrictions of layers to routines, by globs."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from sartor.errors import UsageError


@dataclass(frozen=True)
class Pin:
    """Layers whose names match one glob may only use routines whose descriptors match another."""

    layers: str
    routines: str

    def allows(self, layer: str, descriptor: str) -> bool:
        """Whether the pin lets this layer use this variant."""
        return not fnmatchcase(layer, self.layers) or fnmatchcase(descriptor, self.routines)

    @staticmethod
    def parse(text: str) -> Pin:
        """Read ``LAYER-GLOB=ROUTINE-GLOB``.

        Raises:
            UsageError: if ``text`` has not this form.
        """
        layers, equals, routines = text.partition("=")
        if not (layers and equals and routines):
            raise UsageError(f"'{text}' is no pin, expected LAYER-GLOB=ROUTINE-GLOB such as 'conv1=*nhwc*'")
        return Pin(layers, routines)

    def __str__(self) -> str:
        return f"{self.layers}={self.routines}"
