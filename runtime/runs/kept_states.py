"""The states that a loaded module keeps between calls: they begin again, are copied out, and are copied back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.device_array import DeviceArray, from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec, check_array, plain_array
from sartor.runtime.driver.state import RESET_SUFFIX, RESTORE_SUFFIX, STATES_SUFFIX


class KeptStates:
    """The states of one sequence of calls. Calls must not overlap, which is up to the caller.

    Args:
        entry: the module's function without states, after which those for states are named.
        specs: names, element types and shapes of the states, in the module's order.

    Attributes:
        length, most: as of ``KeptCaches``; states have no positions.
    """

    length = most = 0

    def __init__(self, program: Program, entry: str, specs: Sequence[TensorSpec]) -> None:
        self._program, self._entry, self._specs = program, entry, tuple(specs)

    def of(self, program: Program) -> KeptStates:
        """The same of another context of the module."""
        return KeptStates(program, self._entry, self._specs)

    def reset(self) -> None:
        """Let all states begin again.

        Raises:
            DeviceError: if the device fails.
        """
        self._program.invoke(self._entry + RESET_SUFFIX, [])

    def held(self) -> list[DeviceArray]:
        """The memory of the states as the next call reads it, which later calls may overwrite.

        Raises:
            DeviceError: if the device fails.
        """
        views = self._program.invoke(self._entry + STATES_SUFFIX, [])
        return [from_view(view, self._program.device, spec) for view, spec in zip(views, self._specs, strict=True)]

    def apart(self, outputs: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Outputs of a call that may have given a state's memory as an output too, which its caller could overwrite."""
        held = [array.to_host() for array in self.held() if array.shares_host_memory]
        return [self._copied(output) if _share(output, held) else output for output in outputs]

    def _copied(self, array: DeviceArray) -> DeviceArray:
        return upload(array.to_host(), self._program.device)

    def save(self) -> dict[str, Array]:
        """Copies of all states, by the names of their inputs.

        Raises:
            DeviceError: if the device fails.
        """
        return {spec.name: array.to_host().copy() for spec, array in zip(self._specs, self.held(), strict=True)}

    def restore(self, saved: Mapping[str, Array]) -> None:
        """Let the next call read other states.

        Raises:
            UsageError: if a state is missing or unknown, or of another element type or shape.
            DeviceError: if the device fails.
        """
        arrays = self._checked(saved)
        views = [upload(array, self._program.device).view for array in arrays]
        self._program.invoke(self._entry + RESTORE_SUFFIX, views)

    @staticmethod
    def explained(error: DeviceError) -> DeviceError | UsageError:
        """What a failed call is told as."""
        return error

    def _checked(self, saved: Mapping[str, Array]) -> list[Array]:
        arrays = given_states(saved, [spec.name for spec in self._specs])
        for spec, array in zip(self._specs, arrays, strict=True):
            check_array(spec, array.dtype, array.shape, "state")
        return arrays


def given_states(saved: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
    """The arrays of states, in order.

    Raises:
        UsageError: if one is missing, unknown or no array.
    """
    if not isinstance(saved, Mapping):
        raise UsageError(f"saved is of type {type(saved).__name__}, expected arrays by state, as save() gives them")
    if unknown := [name for name in saved if name not in names]:
        raise UsageError(f"the model has no state '{unknown[0]}'; its states are {names}")
    if missing := [name for name in names if name not in saved]:
        raise UsageError(f"no value is given for the state '{missing[0]}'; restore all of {names}")
    return [plain_array(saved[name], f"the state '{name}'") for name in names]


def _share(array: DeviceArray, held: Sequence[Array]) -> bool:
    return array.shares_host_memory and any(np.may_share_memory(array.to_host(), array_held) for array_held in held)
