"""The inputs and outputs of a whole network's module."""

from __future__ import annotations

from sartor.codegen.ir.layer import ENTRY, NetworkValue
from sartor.runtime.driver.signature import Signature, TensorSpec


def net_signature(values: tuple[tuple[NetworkValue, ...], tuple[NetworkValue, ...]]) -> Signature:
    """The signature of a network's module; ``values`` are its inputs and its outputs."""
    return Signature(ENTRY, *(tuple(map(value_spec, each)) for each in values))


def value_spec(value: NetworkValue) -> TensorSpec:
    """Name, element type and shape of a network input or output."""
    return TensorSpec(value.name, value.dtype, value.type.shape)
