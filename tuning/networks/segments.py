"""The record of a network's segments, as its manifest has it."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.layer import NetworkValue
from sartor.codegen.linking.functions.entries import Entry, Port
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.segments.record import Segment, part_name
from sartor.tuning.records.signature import value_spec


def segments_of(entries: Sequence[Entry], first: str, outputs: Sequence[NetworkValue]) -> tuple[Segment, ...]:
    """The record of a network's entries on several devices.

    Args:
        entries: in order.
        first: the device whose module begins the file.
        outputs: of the network.
    """
    known = {output.name: value_spec(output) for output in outputs}
    return tuple(
        Segment(
            entry=entry.name,
            device=entry.device,
            inputs=tuple(port.name for port in entry.inputs),
            outputs=tuple(known.get(output.name) or _port_spec(output) for output in entry.outputs),
            part=part_name(entry.device, first),
        )
        for entry in entries
    )


def _port_spec(port: Port) -> TensorSpec:
    """Name, element type and shape in memory of a value that goes from one segment to another."""
    return TensorSpec(port.name, port.type.numpy_dtype.name, port.type.shape)
