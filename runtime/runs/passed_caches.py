"""A module that keeps caches which grow as a plain function: callers pass the caches, and get them longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sartor.errors import DeviceError
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.native_device import Fences
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.runtime.runs.kept_caches import KeptCaches


class PassingProgram:
    """The module's functions with caches as inputs and outputs, which are copied in and out in each call.

    Args:
        program: the module in a context of its own.
        states: its caches.
        manifest: of the module.
    """

    def __init__(self, program: Program, states: KeptCaches, manifest: Manifest) -> None:
        self.device, self._program, self._states = program.device, program, states
        # Such a session has neither reset() nor restore().
        states.advice = "pass shorter caches"
        (self._plain, *_), self._own = manifest.passing_signatures, manifest.stateful_signature
        self._specs = {spec.name: spec for spec in manifest.state_specs}
        self._outputs = {cache.output: cache.input for cache in manifest.caches}

    def invoke(self, function: str, views: Sequence[Any], fences: Fences | None = None) -> list[Any]:
        """Call a function that keeps caches on buffer views of all inputs; returns those of all outputs.

        Raises:
            DeviceError: if the device fails.
            UsageError: if the caches have different lengths, or no room for the call.
        """
        taken = dict(zip(_names(self._plain.inputs), views, strict=True))
        caches = {name: from_view(taken[name], self.device, spec).to_host() for name, spec in self._specs.items()}
        self._states.restore(caches)
        try:
            given = self._program.invoke(function, [taken[name] for name in _names(self._own.inputs)], fences)
        except DeviceError as error:
            raise self._states.explained(error) from None
        kept, specs = self._states.save(), self._own.outputs
        apart = self._states.apart(
            [from_view(view, self.device, spec) for view, spec in zip(given, specs, strict=True)]
        )
        by_name = {spec.name: array.view for spec, array in zip(specs, apart, strict=True)}
        by_name |= {output: upload(kept[input], self.device).view for output, input in self._outputs.items()}
        return [by_name[name] for name in _names(self._plain.outputs)]


def _names(specs: Sequence[TensorSpec]) -> list[str]:
    return [spec.name for spec in specs]
