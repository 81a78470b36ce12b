"""Memories of the interpreter: what was written when, by which thread, and what is still being copied."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_NOBODY, _SEVERAL = -1, -2


class KernelFault(Exception):
    """A kernel does what a GPU does not define, or what would be slow by design."""


@dataclass
class GlobalMemory:
    """A buffer. Each element of a result is written once."""

    values: np.ndarray
    written: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.written = np.zeros(self.values.shape, bool)

    def read(self, places: np.ndarray) -> np.ndarray:
        """Elements at these places.

        Raises:
            KernelFault: if one is outside.
        """
        self._check(places)
        found: np.ndarray = self.values[places]
        return found

    def write(self, places: np.ndarray, values: np.ndarray) -> None:
        """Store elements.

        Raises:
            KernelFault: if one is outside, or was written before.
        """
        self._check(places)
        flat = places.ravel()
        if self.written[flat].any() or len(np.unique(flat)) != flat.size:
            raise KernelFault("an element of the result is written twice")
        self.written[flat] = True
        self.values[places] = values

    def _check(self, places: np.ndarray) -> None:
        if places.size and (places.min() < 0 or places.max() >= self.values.size):
            raise KernelFault(f"element {places.min()} to {places.max()} of a buffer of {self.values.size}")


@dataclass
class SharedMemory:
    """Shared memory of one workgroup.

    A location that a copy is under way to may be neither read nor written. What a thread wrote may be read by another
    one after a barrier, and what one thread reads may be overwritten by another one after a barrier.

    Attributes:
        values: elements.
        epoch: number of barriers so far.
    """

    values: np.ndarray
    epoch: int = 0
    _written: np.ndarray = field(init=False)
    _writer: np.ndarray = field(init=False)
    _read: np.ndarray = field(init=False)
    _reader: np.ndarray = field(init=False)
    _under_way: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        size = self.values.size
        self._written, self._read = np.full(size, -1), np.full(size, -1)
        self._writer, self._reader = np.full(size, _NOBODY), np.full(size, _NOBODY)
        self._under_way = np.zeros(size, bool)

    def read(self, places: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Elements at these places, ``threads`` being the reader of each.

        Raises:
            KernelFault: if one is not there yet.
        """
        self._check(places)
        if self._under_way[places].any():
            raise KernelFault("shared memory is read while a copy to it is under way")
        if (self._written[places] < 0).any():
            raise KernelFault("shared memory is read that was never written")
        if ((self._written[places] == self.epoch) & (self._writer[places] != threads)).any():
            raise KernelFault("shared memory is read that another thread wrote, without a barrier between")
        flat, who = places.ravel(), np.broadcast_to(threads, places.shape).ravel()
        is_known = (self._read[flat] == self.epoch) & (self._reader[flat] != who)
        self._reader[flat] = np.where(is_known, _SEVERAL, who)
        self._mark_several(flat, who)
        self._read[flat] = self.epoch
        found: np.ndarray = self.values[places]
        return found

    def _mark_several(self, flat: np.ndarray, who: np.ndarray) -> None:
        """Places that several threads read at once have no single reader."""
        order = np.argsort(flat, kind="stable")
        same = flat[order][1:] == flat[order][:-1]
        differ = same & (who[order][1:] != who[order][:-1])
        self._reader[flat[order][1:][differ]] = _SEVERAL

    def start(self, places: np.ndarray, threads: np.ndarray) -> None:
        """A copy to these places begins.

        Raises:
            KernelFault: if another thread may still read what is there.
        """
        self._claim(places, threads)
        self._under_way[places] = True

    def land(self, places: np.ndarray, threads: np.ndarray, values: np.ndarray) -> None:
        """A copy to these places ends, as its thread waited for it."""
        self._under_way[places] = False
        self._store(places, threads, values)

    def write(self, places: np.ndarray, threads: np.ndarray, values: np.ndarray) -> None:
        """Store elements.

        Raises:
            KernelFault: if another thread may still read what is there.
        """
        self._claim(places, threads)
        self._store(places, threads, values)

    def _claim(self, places: np.ndarray, threads: np.ndarray) -> None:
        self._check(places)
        if self._under_way[places].any():
            raise KernelFault("shared memory is overwritten while a copy to it is under way")
        if ((self._read[places] == self.epoch) & (self._reader[places] != threads)).any():
            raise KernelFault("shared memory is overwritten that another thread reads, without a barrier between")
        if ((self._written[places] == self.epoch) & (self._writer[places] != threads)).any():
            raise KernelFault("two threads write to one place of shared memory, without a barrier between")
        if len(np.unique(places)) != places.size:
            raise KernelFault("two threads write to one place of shared memory at once")

    def _store(self, places: np.ndarray, threads: np.ndarray, values: np.ndarray) -> None:
        self._written[places], self._writer[places] = self.epoch, threads
        self.values[places] = values

    def _check(self, places: np.ndarray) -> None:
        if places.size and (places.min() < 0 or places.max() >= self.values.size):
            raise KernelFault(f"element {places.min()} to {places.max()} of {self.values.size} in shared memory")


def bank_conflicts(addresses: np.ndarray, width: int) -> int:
    """How many times an access to shared memory takes longer than it has to, at most.

    Args:
        addresses: in bytes, ``[accesses, threads]``, of threads that are served at once.
        width: bytes that each thread reads.
    """
    banks = 128 // width
    worst = 1
    for row in addresses.reshape(-1, addresses.shape[-1]):
        unique = np.unique(row // width)
        counts = np.bincount(unique % banks, minlength=1)
        worst = max(worst, int(counts.max()))
    return worst
