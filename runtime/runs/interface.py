"""What a model takes and gives: finds the signature that inputs fit, and turns values into device arrays and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sartor.errors import UsageError
from sartor.runtime.driver.counts import find_cuts, shown_outputs
from sartor.runtime.driver.device_array import DeviceArray, from_view, upload
from sartor.runtime.driver.native_device import NativeDevice
from sartor.runtime.driver.signature import (
    Array,
    Signature,
    TensorSpec,
    check_array,
    check_names,
    merged,
    plain_array,
)
from sartor.runtime.runs.row_limits import RowLimits

if TYPE_CHECKING:
    from sartor.runtime.files.open_sizes import OpenSize

Feeds = Mapping[str, Array | DeviceArray]
"""Inputs by name."""


class NodeArg(NamedTuple):
    """Description of one input or output, as ONNX Runtime's class of this name; a dynamic dimension is None."""

    name: str
    type: str
    shape: list[int | None]


class Interface:
    """Inputs and outputs of a model on a device.

    Args:
        signature: of the first plan.
        signatures: one for each of the shapes that the model has a plan for; all have the same names.
        device: where arguments are.
        sizes: those that callers choose.
        limits: of inputs that are rows of tables.
    """

    def __init__(
        self,
        signature: Signature,
        signatures: Sequence[Signature],
        device: NativeDevice,
        sizes: Sequence[OpenSize] = (),
        limits: RowLimits | None = None,
    ) -> None:
        self._signature, self._signatures = signature, signatures
        self._device = device
        self._sizes = sizes
        self.limits = limits or RowLimits({})
        self.cuts = find_cuts([spec.name for spec in self._signature.outputs])
        """Outputs that are as large as they can be, with those that count what is valid of them."""
        self._positions = {spec.name: index for index, spec in enumerate(self._signature.outputs)}
        self._names = {spec.name for spec in self._signature.inputs}
        self._varying = _varying([signature.inputs for signature in signatures])

    def inputs(self) -> list[NodeArg]:
        """The inputs in order; a size in which plans differ is None."""
        return _node_args(merged([signature.inputs for signature in self._signatures]))

    def outputs(self) -> list[NodeArg]:
        """The outputs in order, without counts; a size in which plans differ is None."""
        return _node_args(shown_outputs(merged([signature.outputs for signature in self._signatures])))

    @staticmethod
    def described(specs: Sequence[TensorSpec]) -> list[NodeArg]:
        """Tensors as ONNX Runtime describes them."""
        return _node_args(specs)

    def selected(self, output_names: Sequence[str] | None) -> list[int]:
        """Positions of outputs by name; None for all but counts.

        Raises:
            UsageError: if there is no such output.
        """
        positions = self._positions
        if output_names is None:
            counts = {cut.counted for cut in self.cuts.values()}
            return [index for index in positions.values() if index not in counts]
        if isinstance(output_names, str) or not isinstance(output_names, Iterable):
            raise UsageError(f"output_names is {output_names!r}, expected a list of names, or None for all outputs")
        names = list(output_names)
        if unknown := [name for name in names if not isinstance(name, str) or name not in positions]:
            raise UsageError(f"the model has no output '{unknown[0]}'; its outputs are {list(positions)}")
        return [positions[name] for name in names]

    def fitting(self, feeds: Feeds) -> Signature:
        """The signature with the shapes of these inputs, if there are several.

        Raises:
            UsageError: if there is none.
        """
        # Checking for any mapping takes longer, and a small model runs in microseconds.
        if not isinstance(feeds, dict) and not isinstance(feeds, Mapping):
            raise UsageError(f"feeds is of type {type(feeds).__name__}, expected arrays by input name")
        if len(self._signatures) == 1:
            return self._signature
        for signature, varying in zip(self._signatures, self._varying, strict=True):
            if all(getattr(feeds.get(spec.name), "shape", None) == spec.shape for spec in varying):
                return signature
        from sartor.runtime.several.choice import fitting

        check_names(self._signature.inputs, list(feeds))
        return fitting(self._signatures, {name: _shape(name, value) for name, value in feeds.items()})

    def arguments(self, signature: Signature, feeds: Feeds) -> list[DeviceArray]:
        """Inputs in order, on the device.

        Raises:
            UsageError: if a name, an element type, a shape, the row of a table or a device array's device does not fit.
            DeviceError: if the device has no memory left.
        """
        specs = signature.inputs
        if feeds.keys() != self._names:
            check_names(specs, list(feeds))
        arrays = [self._checked(spec, feeds[spec.name]) for spec in specs]
        if self._sizes:
            shapes = {spec.name: array.shape for spec, array in zip(specs, arrays, strict=True)}
            for size in self._sizes:
                size.check(shapes)
        self.limits.check(zip((spec.name for spec in specs), arrays, strict=True))
        return [self._argument(spec, array) for spec, array in zip(specs, arrays, strict=True)]

    @staticmethod
    def _checked(spec: TensorSpec, value: Array | DeviceArray) -> Array | DeviceArray:
        is_plain = type(value) is np.ndarray or isinstance(value, DeviceArray)
        array = value if is_plain else plain_array(value, f"input '{spec.name}'")
        check_array(spec, array.dtype, array.shape)
        return array

    def _argument(self, spec: TensorSpec, array: Array | DeviceArray) -> DeviceArray:
        if not isinstance(array, DeviceArray):
            return upload(array, self._device)
        if array.device is not self._device:
            raise UsageError(
                f"input '{spec.name}' is on another device ({array.device}) than the session "
                f"({self._device}); pass its to_host()"
            )
        return array

    def results(self, signature: Signature, views: Sequence[object]) -> list[DeviceArray]:
        """What a run gave, in the order of the signature.

        Raises:
            UsageError: if it gave another number of outputs.
        """
        specs = signature.outputs
        if len(views) != len(specs):
            raise UsageError(f"the model gives {len(views)} outputs, but its signature names {len(specs)}")
        return [from_view(view, self._device, spec) for view, spec in zip(views, specs, strict=True)]

    def allocate(self, input_name: str) -> DeviceArray:
        """A device array of zeros for an input.

        Raises:
            UsageError: if there is no such input or its shape is dynamic.
        """
        spec = next((spec for spec in self._signature.inputs if spec.name == input_name), None)
        if spec is None or None in spec.shape:
            raise UsageError(f"the model has no input '{input_name}' of static shape")
        return upload(np.zeros([size or 0 for size in spec.shape], spec.numpy_dtype), self._device)


def _varying(inputs: Sequence[Sequence[TensorSpec]]) -> list[list[TensorSpec]]:
    """Of each signature's inputs those that have another shape in another one."""
    return [
        [spec for spec, *others in zip(own, *inputs, strict=True) if {spec.shape} != {other.shape for other in others}]
        for own in inputs
    ]


def _node_args(specs: Sequence[TensorSpec]) -> list[NodeArg]:
    return [NodeArg(spec.name, spec.onnx_runtime_type, list(spec.shape)) for spec in specs]


def _shape(name: str, value: Array | DeviceArray) -> tuple[int, ...]:
    array = value if isinstance(value, DeviceArray) else plain_array(value, f"input '{name}'")
    return tuple(array.shape)
