"""The inputs and outputs of a whole network's module, and of its segments."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.codegen.ir.graph import ENTRY
from sartor.codegen.ir.layer import NetworkValue
from sartor.codegen.linking.entries import Entry, Port
from sartor.runtime.driver.signature import Signature, TensorSpec
from sartor.runtime.segments.record import Segment


def net_signature(values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]]) -> Signature:
    """The signature of a network's module; ``values`` are its inputs and its outputs."""
    return Signature(ENTRY, *(tuple(map(value_spec, each)) for each in values))


def value_spec(value: NetworkValue) -> TensorSpec:
    """Name, element type and shape of a network input or output."""
    return TensorSpec(value.name, value.dtype, value.type.shape)


def part_name(device: str, first: str) -> str:
    """The part of a network's file with the module of a device; empty for the first device, whose module begins it."""
    return "" if device == first else f"{device}.vmfb"


def segments_of(entries: Sequence[Entry], first: str, outputs: Sequence[NetworkValue]) -> tuple[Segment, ...]:
    """The record of a network's entries on several devices.

    Args:
        entries: in order.
        first: the device whose module begins the file.
        outputs: of the network.
    """
    known = {each.name: value_spec(each) for each in outputs}
    return tuple(
        Segment(
            entry=entry.name,
            device=entry.device,
            inputs=tuple(each.name for each in entry.inputs),
            outputs=tuple(known.get(each.name) or _port_spec(each) for each in entry.outputs),
            part=part_name(entry.device, first),
        )
        for entry in entries
    )


def _port_spec(port: Port) -> TensorSpec:
    """Name, element type and shape in memory of a value that goes from one segment to another."""
    return TensorSpec(port.name, port.type.numpy_dtype.name, port.type.shape)
