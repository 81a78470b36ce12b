"""The files of a compiled network, as what runs it sees them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.ir.layer import ENTRY
from sartor.codegen.linking.names import PARAMETER_SCOPE
from sartor.devices import is_cpu
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.native_device import NativeDevice


@dataclass(frozen=True)
class NetFiles:
    """Files of a compiled network: the module, and the weights if they are not inside it.

    ``weight_bytes`` is the size of the weights, inside the module or not. ``devices`` are those that run it, the one of
    inputs and outputs first; empty for the device that is asked for. ``entry`` is the function.
    """

    module: Path
    weights: Path | None
    weight_bytes: int = 0
    devices: tuple[str, ...] = ()
    entry: str = ENTRY

    def open_device(self, device: str, threads: int) -> NativeDevice:
        """The device of inputs and outputs, ``device`` by default.

        Raises:
            DeviceError: if it cannot be opened.
        """
        first = self.devices[0] if self.devices else device
        return open_device(first, threads if is_cpu(first) else None)

    @property
    def parameters(self) -> dict[str, Path]:
        """Files of weights outside the module, by parameter scope."""
        return {} if self.weights is None else {PARAMETER_SCOPE: self.weights}
