"""Memory that a session keeps for inputs and outputs, where that makes later runs faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sartor.errors import DeviceError
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array
from sartor.runtime.execution import Execution
from sartor.runtime.manifest import BOUND_SUFFIX
from sartor.runtime.opening import Opened
from sartor.runtime.runs.bound import bound_outputs
from sartor.runtime.runs.interface import Feeds, Interface
from sartor.runtime.runs.owned_outputs import are_arrays
from sartor.runtime.runs.small import SmallRuns, is_small, known_shape

if TYPE_CHECKING:
    from sartor.runtime.runs.sized import SizedRuns


class KeptMemory:
    """Runs through memory that stays: of a small model, or of a model of any size.

    Attributes:
        is_sized: whether the model is one of any size.
    """

    def __init__(self, execution: Execution, opened: Opened, interface: Interface) -> None:
        """For a model that was opened; of a known size nothing is kept before its first run."""
        self._execution, self._interface = execution, interface
        self._signature, self._device = opened.signature, opened.device
        is_possible = _can_keep(opened, interface)
        self._may_keep = is_possible and is_small(opened.signature)
        self._small: SmallRuns | None = None
        self._sized = _sized_runs(opened, interface) if is_possible else None
        self.is_sized = bool(opened.sizes) and is_possible

    def runs_of(self, feeds: Feeds) -> SmallRuns | None:
        """What runs these inputs, if there is such, or such can be made."""
        if (sized := self._sized) is None:
            return self._small
        shapes = sized.shapes(feeds) if isinstance(feeds, dict) and are_arrays(feeds) else None
        if shapes is None:
            return None
        if (kept := sized.of(shapes)) is not None:
            return kept
        self._execution.check_process()
        with self._execution.lock:
            try:
                return sized.make(shapes) if self._sized is sized else None
            except DeviceError:
                return None

    def run(self, small: SmallRuns, feeds: Mapping[str, Array], selected: Sequence[int]) -> list[Array]:
        """The selected outputs.

        Raises:
            UsageError, DeviceError: as ``Session.run``.
        """
        execution = self._execution
        execution.check_process()
        arrays = small.arrays(feeds)
        with execution.lock:
            execution.open_program()
            execution.overlap.begin_run()
            outputs = small.run(arrays, selected)
            execution.overlap.end_run()
        return outputs

    def keep(self) -> None:
        """Keep memory for the inputs and outputs of later runs where that pays, if there is any; called after a run."""
        if not self._may_keep:
            return
        # Not before the first inference: a process may need no second one.
        self._may_keep = False
        execution, signature = self._execution, self._signature
        if not isinstance(program := execution.program, Program):
            return
        try:
            inputs = [upload(np.zeros(known_shape(spec), spec.numpy_dtype), self._device) for spec in signature.inputs]
            outputs = list(bound_outputs(signature, {}, self._device).values())
        except DeviceError:
            return
        call = program.prepare(signature.entry + BOUND_SUFFIX, [array.view for array in (*inputs, *outputs)])
        taken, given = ([array.to_host() for array in arrays] for arrays in (inputs, outputs))
        runs = SmallRuns(call, signature.inputs, taken, given, self._interface.limits)
        with execution.lock:
            # It may have been closed meanwhile.
            if execution.program is program:
                self._small = runs

    def release(self) -> None:
        """Give the memory back, as the session is closed."""
        self._small, self._sized = None, None


def _can_keep(opened: Opened, interface: Interface) -> bool:
    """Whether runs may go through memory that is kept for their inputs and outputs."""
    has_entry = opened.signature.entry + BOUND_SUFFIX in opened.functions
    is_one = len(opened.signatures) == 1 and opened.takeover is None and isinstance(opened.program, Program)
    return opened.device.host_memory and has_entry and is_one and not interface.cuts


def _sized_runs(opened: Opened, interface: Interface) -> SizedRuns | None:
    """What makes runs in memory that is kept for any size; None if a size is known only after the run."""
    program, manifest = opened.program, opened.manifest
    if not opened.sizes or manifest is None or not isinstance(program, Program):
        return None
    from sartor.runtime.runs.sized import OpenShapes, SizedRuns

    signature = opened.signature
    shapes = OpenShapes(signature, opened.sizes, manifest.given)
    prepare = partial(program.prepare, signature.entry + BOUND_SUFFIX)
    runs = SizedRuns(signature, shapes, opened.device, prepare, interface.limits)
    return runs if shapes.are_known else None
