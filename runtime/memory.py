"""The memory that a module allocates while it runs, as IREE's allocator counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.runtime.driver.device import fresh_cpu
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.session import Session


@dataclass(frozen=True)
class Allocated:
    """Bytes that a module allocates on its device.

    Attributes:
        loaded: after loading; 0 if its weights are mapped from the file and used there.
        peak: largest amount from then until the end of an inference, with inputs and outputs.
    """

    loaded: int
    peak: int


def allocated_bytes(
    model: Path, feeds: Mapping[str, Array], signature: Signature, parameters: Mapping[str, Path]
) -> Allocated | None:
    """Count the bytes that a CPU module allocates for one inference; None if IREE was built without statistics.

    It runs on one thread: with several, memory comes from pools of the queue, which are not counted. The module's
    allocations are the same.

    Raises:
        DeviceError: if the module does not run.
    """
    device = fresh_cpu()
    with Session(model, device=device, signature=signature, parameters=parameters, huge_pages=False) as session:
        loaded = device.peak_bytes
        session.run_device(None, dict(feeds))
        peak = device.peak_bytes
    return None if loaded is None or peak is None else Allocated(loaded, peak)
