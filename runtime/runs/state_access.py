"""What callers do with the states that a session keeps between runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

from sartor.errors import UsageError
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import Manifest
from sartor.runtime.runs.given_arguments import check_type
from sartor.runtime.runs.interface import Interface, NodeArg
from sartor.runtime.runs.part_sizes import PartSizes

if TYPE_CHECKING:
    from sartor.runtime.runs.kept_caches import KeptCaches
    from sartor.runtime.runs.kept_states import KeptStates

_NO_CACHES = (
    "the model keeps no caches that grow; compile a decoder that takes and gives its caches, without --no-state"
)
NO_PROMPTS = "the model takes one token a run, and forgets none of its positions but by reset() and restore()"


class StateAccess(ABC):
    """The part of a session that reads and writes states; most models have none.

    The session sets its manifest, and its inputs and outputs.
    """

    _manifest: Manifest | None
    _interface: Interface

    @property
    @abstractmethod
    def _states(self) -> KeptStates | KeptCaches | None:
        """The states that the session keeps, if it keeps any."""

    @abstractmethod
    def _using_states(self) -> AbstractContextManager[KeptStates | KeptCaches]:
        """The states, while no run reads or writes them.

        Raises:
            UsageError: if the session keeps no states, or is closed.
            DeviceError: if the device fails.
        """

    def get_states(self) -> list[NodeArg]:
        """The states that the session keeps between runs, by the names of their inputs; none of most models."""
        return self._interface.described(self._manifest.state_specs) if self._states and self._manifest else []

    @property
    def cached_positions(self) -> int:
        """Positions that the caches have which the session keeps, of a model that was compiled with caches that grow.

        Raises:
            UsageError: if it keeps none, or is closed.
            DeviceError: if the device fails.
        """
        with self._using_states() as states:
            if not states.most:
                raise UsageError(_NO_CACHES)
            return states.length

    @property
    def most_positions(self) -> int:
        """Positions that there is room for in the caches which the session keeps.

        Raises:
            UsageError: if it keeps none, or is closed.
        """
        with self._using_states() as states:
            if not states.most:
                raise UsageError(_NO_CACHES)
            return states.most

    @cached_property
    def prompt_parts(self) -> PartSizes:
        """The parts of a prompt that a run may take beside one token."""
        known = self._manifest is not None and self._states is not None and self._manifest.prompts
        return PartSizes({prompt.tokens: prompt.calls for prompt in known or ()})

    @property
    def prompt_tokens(self) -> int:
        """The most tokens that a run takes as a part of a prompt; 0 if it takes one only."""
        return max(self.prompt_parts.sizes, default=0)

    @property
    def least_prompt_tokens(self) -> int:
        """From how many tokens on a part of a prompt, filled up, takes less time than a run for each; 0 if the model
        takes one only."""
        return self.prompt_parts.least

    def truncate(self, length: int) -> None:
        """Forget the positions that the caches have behind the first ``length``, as of tokens that filled up a prompt.

        Raises:
            UsageError: if there are fewer, if the model keeps no caches or takes no prompts, or the session is closed.
            DeviceError: if the device fails.
        """
        check_type("length", length, (int,), "a number of positions")
        from sartor.runtime.runs.kept_caches import KeptCaches

        with self._using_states() as states:
            if not isinstance(states, KeptCaches):
                raise UsageError(_NO_CACHES)
            if not self.prompt_tokens:
                raise UsageError(NO_PROMPTS)
            if length < 0:
                raise UsageError(f"length is {length}, expected 0 or more")
            states.truncate(length)

    def reset(self) -> None:
        """Let all states begin again, as in a session that was just opened.

        Raises:
            UsageError: if the session keeps no states, or is closed.
            DeviceError: if the device fails.
        """
        with self._using_states() as states:
            states.reset()

    def save(self) -> dict[str, Array]:
        """Copies of all states, by the names of their inputs: ``restore`` takes them, also in another session.

        Raises:
            UsageError, DeviceError: as ``reset``.
        """
        with self._using_states() as states:
            return states.save()

    def restore(self, saved: Mapping[str, Array]) -> None:
        """Let the next run read other states, as ``save`` gave them; they are copied.

        Raises:
            UsageError: also if a state is missing or unknown, or of another element type or shape.
            DeviceError: as ``reset``.
        """
        with self._using_states() as states:
            states.restore(saved)
