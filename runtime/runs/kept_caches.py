"""The caches that a loaded module keeps, which grow with each call: they begin again, are copied out, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.cache import DISAGREES, FULL, TRUNCATE_SUFFIX
from sartor.runtime.driver.device_array import DeviceArray, from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec, check_array
from sartor.runtime.driver.state import RESET_SUFFIX, RESTORE_SUFFIX, STATES_SUFFIX
from sartor.runtime.mapping.heap import take_by_pages, take_huge_pages
from sartor.runtime.runs.kept_states import given_states

_LENGTH = TensorSpec("length", "int64", (1,))


class KeptCaches:
    """The caches of one sequence of calls. Calls must not overlap, which is up to the caller.

    Args:
        entry: the module's function without caches, after which those for caches are named.
        specs: names, element types and shapes of the caches as callers have them, in the module's order; a length is
            None.
        axes: along which these have their positions.
        most: positions that there is room for.

    Attributes:
        advice: what callers can do where there is no room.
    """

    def __init__(
        self, program: Program, entry: str, specs: Sequence[TensorSpec], axes: Sequence[int], most: int
    ) -> None:
        self._program, self._entry, self._specs = program, entry, tuple(specs)
        self._axes, self.most = tuple(axes), most
        self.advice = "begin again by reset() or restore()"
        # The buffers stay where they are as long as the module is loaded.
        self._shared = self.places() if program.device.host_memory else []
        self._are_moved = False
        if not self.length:
            self._take_by_pages()

    def _take_by_pages(self) -> None:
        """Let buffers have memory for what lives, and not in huge pages, before anything does."""
        for address, size in self._shared:
            take_by_pages(address, size)

    def _take_huge_pages(self) -> None:
        """Let buffers that are half full have huge pages, as all of what lives is read in each call. That takes longer
        than a call, so it is done where much is copied anyway."""
        if self._are_moved or not self._shared or 2 * self.length < self.most:
            return
        self._are_moved = True
        # Blocks lie side by side, and huge pages begin where they do not.
        begin = min(address for address, _ in self._shared)
        end = max(address + size for address, size in self._shared)
        if end - begin < 2 * sum(size for _, size in self._shared):
            take_huge_pages(begin, end - begin)

    def places(self) -> list[tuple[int, int]]:
        """Addresses and bytes of the whole buffers, as of their copies on a device that does not share memory.

        Raises:
            DeviceError: if the device fails.
        """
        _, *views = self._program.invoke(self._entry + STATES_SUFFIX, [])
        held = [self._program.device.map(view.get_buffer()) for view in views]
        return [(content.ctypes.data, content.nbytes) for content in held]

    def of(self, program: Program) -> KeptCaches:
        """The same of another context of the module."""
        return KeptCaches(program, self._entry, self._specs, self._axes, self.most)

    def reset(self) -> None:
        """Let all caches begin again, without positions.

        Raises:
            DeviceError: if the device fails.
        """
        self._program.invoke(self._entry + RESET_SUFFIX, [])

    @property
    def length(self) -> int:
        """Positions that the caches have.

        Raises:
            DeviceError: if the device fails.
        """
        return self._length(self._program.invoke(self._entry + STATES_SUFFIX, [])[0])

    def _length(self, view: object) -> int:
        return int(from_view(view, self._program.device, _LENGTH).to_host()[0])

    def apart(self, outputs: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Outputs of a call, which may have given a cache's memory as an output too, with copies of these."""
        return [upload(output.to_host(), output.device) if self._is_shared(output) else output for output in outputs]

    def _is_shared(self, array: DeviceArray) -> bool:
        if not self._shared or not array.nbytes:
            return False
        # Asked in each call: numpy's object for ctypes takes a microsecond more.
        begin = array.to_host().__array_interface__["data"][0]
        return any(begin < start + size and start < begin + array.nbytes for start, size in self._shared)

    def truncate(self, length: int) -> None:
        """Forget the positions behind the first ``length``; the module has a function for prompts.

        Raises:
            UsageError: if there are fewer.
            DeviceError: if the device fails.
        """
        if length > (held := self.length):
            raise UsageError(f"the caches have {held} positions, fewer than {length}")
        self._program.give(self._entry + TRUNCATE_SUFFIX, length)

    def save(self) -> dict[str, Array]:
        """Copies of the live positions of all caches, by the names of their inputs.

        Raises:
            DeviceError: if the device fails.
        """
        first, *views = self._program.invoke(self._entry + STATES_SUFFIX, [])
        length = self._length(first)
        caches: dict[str, Array] = {}
        for view, spec, axis in zip(views, self._specs, self._axes, strict=True):
            others = spec.shape[:axis] + spec.shape[axis + 1 :]
            kept = TensorSpec(spec.name, spec.dtype, (self.most, *others))
            live = from_view(view, self._program.device, kept).to_host()[:length]
            caches[spec.name] = np.moveaxis(live, 0, axis).copy()
        return caches

    def restore(self, saved: Mapping[str, Array]) -> None:
        """Let the next call follow other positions.

        Raises:
            UsageError: if a cache is missing or unknown, of another element type or shape, longer than there is room
                for, or of another length than the others.
            DeviceError: if the device fails.
        """
        arrays = given_states(saved, [spec.name for spec in self._specs])
        for spec, array in zip(self._specs, arrays, strict=True):
            check_array(spec, array.dtype, array.shape, "state")
        lengths = {array.shape[axis] for array, axis in zip(arrays, self._axes, strict=True)}
        if len(lengths) > 1:
            raise UsageError(f"the caches have different lengths: {sorted(lengths)}")
        (length,) = lengths
        if length > self.most:
            raise UsageError(f"the caches have {length} positions; {self._room}")
        if not length:
            self.reset()
            return
        moved = [np.moveaxis(array, axis, 0) for array, axis in zip(arrays, self._axes, strict=True)]
        views = [upload(np.ascontiguousarray(array), self._program.device).view for array in moved]
        self._program.invoke(self._entry + RESTORE_SUFFIX, views)
        self._take_huge_pages()

    def explained(self, error: DeviceError) -> DeviceError | UsageError:
        """What a failed call is told as."""
        if FULL in str(error):
            return UsageError(f"{FULL}: {self._room}")
        if DISAGREES in str(error):
            return UsageError(
                f"the size of an input {DISAGREES}: the caches have {self.length} before the call, to which its own add"
            )
        return error

    @property
    def _room(self) -> str:
        return (
            f"there is room for {self.most} positions; {self.advice}, or compile the model with a "
            f"larger range of --shape for '{self._specs[0].name}', if its tables of positions have more"
        )
