"""How much memory a module takes while it runs, as IREE's own allocator counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.runtime.driver.device import fresh_cpu
from sartor.runtime.driver.signature import Array, Signature
from sartor.runtime.session import Session


@dataclass(frozen=True)
class Allocated:
    """Bytes that a module asks its device for.

    Attributes:
        loaded: when it is loaded; nothing if its weights are mapped from the file and used there.
        peak: at most, from then until the end of an inference, inputs and outputs included.
    """

    loaded: int
    peak: int


def allocated_bytes(
    model: Path, feeds: Mapping[str, Array], signature: Signature, parameters: Mapping[str, Path]
) -> Allocated | None:
    """What a CPU module allocates for one inference; None if IREE was built without statistics.

    One thread computes: with several, memory comes from pools of the queue, which nothing counts. What a module asks
    for is the same.

    Raises:
        DeviceError: if it does not run.
    """
    device = fresh_cpu()
    with Session(model, device=device, signature=signature, parameters=parameters, huge_pages=False) as session:
        loaded = device.peak_bytes
        session.run_device(None, dict(feeds))
        peak = device.peak_bytes
    return None if loaded is None or peak is None else Allocated(loaded, peak)
