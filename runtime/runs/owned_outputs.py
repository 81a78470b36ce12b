"""Outputs of runs as arrays that their callers own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
from numpy.lib.array_utils import byte_bounds

from sartor.runtime.driver.counts import Cut, to_host
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.native_device import Fences
from sartor.runtime.driver.signature import Array
from sartor.runtime.mapping.overlap import Overlap
from sartor.runtime.runs.interface import Feeds


def are_arrays(feeds: Feeds) -> TypeGuard[dict[str, Array]]:
    """Whether no input is on a device already."""
    return isinstance(feeds, dict) and not any(isinstance(array, DeviceArray) for array in feeds.values())


def shared_inputs(feeds: Feeds) -> list[DeviceArray]:
    """Inputs whose memory the device does not copy, so that an output may be the same."""
    return [] if are_arrays(feeds) else [array for array in feeds.values() if isinstance(array, DeviceArray)]


def owned(
    outputs: list[DeviceArray], selected: Sequence[int], cuts: Mapping[int, Cut], given: Sequence[DeviceArray] = ()
) -> list[Array]:
    """The selected outputs, cut to their counts.

    A model may return one buffer as two outputs, or an input. Callers own their outputs, so these share no memory.

    Args:
        outputs: of a run, with counts.
        selected: their indices.
        cuts: which of them are cut, by index.
        given: inputs whose memory an output may be.
    """
    inputs = [array.host_bytes for array in given]
    arrays: list[Array] = []
    for array in to_host(outputs, selected, cuts):
        begin, end = byte_bounds(array)
        is_input = any(begin < other.stop and other.start < end for other in inputs)
        is_shared = is_input or any(np.may_share_memory(array, other) for other in arrays)
        arrays.append(array.copy() if is_shared else array)
    return arrays


def when_finished(
    fences: Fences, overlap: Overlap, outputs: list[DeviceArray], timeout: float | None
) -> list[DeviceArray]:
    """The outputs of a run that was started, once it has finished.

    Raises:
        TimeoutError: if it has not within ``timeout`` seconds.
        DeviceError: if it failed.
    """
    if not fences.wait(timeout):
        raise TimeoutError(f"the run has not finished after {timeout} s")
    overlap.end_run()
    return outputs
