"""Runs with any number of tokens of a decoder that keeps its caches: by parts of a prompt, and by single tokens.

The plans for both tell where tokens are: along the axes in which their inputs and outputs differ. A part that is not
whole is filled up, and what it was filled up with is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from sartor.errors import SartorError, UsageError
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.runs.given_arguments import check_type
from sartor.runtime.runs.part_sizes import PartSizes

_Places = Mapping[str, tuple[int, ...]]


class Decoding(Protocol):
    """What runs tokens: a session."""

    @property
    def cached_positions(self) -> int:
        """Positions that the caches have."""

    @property
    def most_positions(self) -> int:
        """Positions that there is room for."""

    def truncate(self, length: int) -> None:
        """Forget the positions behind the first ``length``."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Array]:
        """Run one token, or a part of a prompt."""


class TokenParts:
    """The parts in which a decoder takes tokens.

    Args:
        one: what a run of one token takes and gives.
        many: what a run of a part of a prompt takes and gives.
        sizes: of the parts.
    """

    def __init__(self, one: Signature, many: Signature, sizes: PartSizes) -> None:
        self._sizes = sizes
        self._taken, self._given = _places(one.inputs, many.inputs), _places(one.outputs, many.outputs)
        self._ranks = {spec.name: len(spec.shape) for spec in many.inputs}
        self._rows = {
            spec.name: tuple(axis for axis, size in enumerate(spec.shape) if size is None) for spec in one.inputs
        }

    def arrays(self, feeds: object) -> dict[str, Array]:
        """The inputs of a run with so many tokens that no plan takes them at once; nothing for other runs."""
        if not isinstance(feeds, Mapping) or feeds.keys() != self._ranks.keys():
            return {}
        inputs = {name: array for name, array in feeds.items() if isinstance(array, np.ndarray)}
        if len(inputs) < len(feeds) or any(inputs[name].ndim != rank for name, rank in self._ranks.items()):
            return {}
        return inputs if self._count(inputs) not in (0, 1, *self._sizes.sizes) else {}

    def check(self, feeds: object, count: int) -> int:
        """Make sure that inputs are a part of a prompt, and ``count`` some of its tokens; returns how many it has.

        Raises:
            UsageError: if not.
        """
        check_type("count", count, (int, np.integer), "a number of tokens")
        given = feeds if isinstance(feeds, Mapping) else {}
        # Arrays of a device are not copied for their shapes.
        arrays = {
            name: array if hasattr(array, "shape") else np.asarray(array)
            for name, array in given.items()
            if name in self._taken
        }
        is_part = {name: len(array.shape) for name, array in arrays.items()} == self._ranks
        if not is_part or (tokens := self._count(arrays)) not in self._sizes.sizes:
            told = " or ".join(map(str, self._sizes.sizes))
            raise UsageError(f"the inputs are no part of a prompt, which has {told} tokens")
        if not 1 <= count <= tokens:
            raise UsageError(f"count is {count}, expected one of the part's {tokens} tokens")
        return tokens

    def behind(self, names: Sequence[str], outputs: Sequence[Array], count: int) -> list[Array]:
        """What a run of a part gave for the last of its first ``count`` tokens."""
        rows = list[Array]()
        for name, output in zip(names, outputs, strict=True):
            for axis in self._given[name]:
                output = output.take(range(count - 1, count), axis)
            rows.append(output)
        return rows

    def _count(self, inputs: Mapping[str, Array]) -> int:
        """How many tokens inputs have; 0 if they differ."""
        counts = {inputs[name].shape[axis] for name, axes in self._taken.items() for axis in axes}
        return counts.pop() if len(counts) == 1 else 0

    def run(self, session: Decoding, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """What a run gives of which ``arrays`` told the inputs.

        Raises:
            UsageError: if the caches have no room, or a size does not fit; the caches are as before then.
            DeviceError: if the device fails.
        """
        before, count, results = session.cached_positions, self._count(feeds), list[list[Array]]()
        if before + count > session.most_positions:
            raise UsageError(
                f"the run has {count} tokens, and the caches hold {before} positions of {session.most_positions}; give "
                "fewer, or begin again by reset()"
            )
        self._check(feeds, before + count)
        done = 0
        try:
            while done < count:
                filled = self._next_part(count - done, session.most_positions - before - done, names)
                part = min(count - done, filled)
                outputs = session.run(names, self._cut(feeds, done, filled, count, before))
                done += part
                if part < filled:
                    session.truncate(before + done)
                results.append([self._first(*named, part) for named in zip(names, outputs, strict=True)])
        except SartorError:
            session.truncate(before)
            raise
        joined = zip(names, zip(*results, strict=True), strict=True)
        return [
            np.concatenate(parts, self._given[name][0]) if self._given[name] else parts[-1] for name, parts in joined
        ]

    def _check(self, feeds: Mapping[str, Array], total: int) -> None:
        """Make sure that inputs which have all positions have as many as there are."""
        for name, axes in self._rows.items():
            for axis in axes:
                if (size := feeds[name].shape[axis]) != total:
                    raise UsageError(
                        f"input '{name}' has the size {size} in dimension {axis}, and the caches have {total} "
                        "positions with those of the run"
                    )

    def _next_part(self, left: int, room: int, names: Sequence[str]) -> int:
        """The tokens of the next run, which is filled up if not as many are left.

        What has no axis of tokens is right behind whole parts alone.
        """
        may_fill = all(self._given[name] for name in names)
        return self._sizes.next(left, room if may_fill else min(left, room))

    def _cut(self, feeds: Mapping[str, Array], done: int, filled: int, count: int, before: int) -> dict[str, Array]:
        """The inputs of a run with the tokens behind the first ``done``, filled up with the last one."""
        tokens = np.minimum(np.arange(done, done + filled), count - 1)
        rows = np.minimum(np.arange(before + done + filled), before + count - 1)
        inputs = dict(feeds)
        for name, axes in self._taken.items():
            for axis in axes:
                inputs[name] = inputs[name].take(tokens, axis)
            for axis in self._rows[name]:
                inputs[name] = inputs[name].take(rows, axis)
        return inputs

    def _first(self, name: str, output: Array, count: int) -> Array:
        """What a run gave for its own tokens."""
        for axis in self._given[name]:
            output = output.take(range(count), axis)
        return output


def _places(one: Sequence[TensorSpec], many: Sequence[TensorSpec]) -> _Places:
    """The axes of tokens of each input, or output."""
    return {
        spec.name: tuple(
            axis for axis, (size, larger) in enumerate(zip(spec.shape, other.shape, strict=True)) if size != larger
        )
        for spec, other in zip(one, many, strict=True)
    }
