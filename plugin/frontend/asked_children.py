"""Which childnets there are on request only: those that a pin, or a plan that is replayed, names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sartor.codegen.ir.graph import Childnet
from sartor.codegen.ir.variants.descriptor import CHILDNET
from sartor.tuning.selection.problem.pin import Pin


@dataclass(frozen=True)
class AskedChildren:
    """Requests for childnets.

    Attributes:
        pins: of the user. One that restricts a layer to childnets, or a child, asks for them.
        named: layers of a plan that is replayed.
    """

    pins: Sequence[Pin] = ()
    named: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything may be asked for."""
        return bool(self.pins or self.named)

    def __call__(self, layer: str, net: Childnet) -> bool:
        """Whether a childnet of a layer is asked for."""
        children = [layer.name for layer in net.graph.layers]
        return any(child in self.named for child in children) or any(
            self._asks(pin, layer, net.descriptor, children) for pin in self.pins
        )

    def _asks(self, pin: Pin, layer: str, descriptor: str, children: Sequence[str]) -> bool:
        if fnmatchcase(layer, pin.layers):
            return f"{CHILDNET}." in pin.routines and fnmatchcase(descriptor, pin.routines)
        return any(fnmatchcase(child, pin.layers) for child in children)
