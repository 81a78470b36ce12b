"""What calls give where an output is a whole cache: its caller's own memory, and not what the module keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.cache import FULL, Cache
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import DeviceArray, from_view, upload
from sartor.runtime.driver.native_device import buffer_view
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.driver.state import STATES_SUFFIX
from sartor.runtime.files.open_sizes import OpenSize, Place
from sartor.runtime.manifest import CACHES_FORMAT, Manifest
from sartor.runtime.runs.kept_caches import KeptCaches
from sartor.runtime.runs.passed_caches import PassingProgram

MOST, LIVE, WIDTH = 6, 2, 4
PAST = TensorSpec("past", "float32", (None, WIDTH))
HISTORY = TensorSpec("history", "float32", (None, WIDTH))


class WholeCache:
    """A loaded module with one cache, along the first axis, whose calls give what lives of it in the same memory."""

    def __init__(self) -> None:
        self.device = open_device("cpu", 1)
        self.cache = upload(np.ones((MOST, WIDTH), np.float32), self.device)

    def history(self) -> DeviceArray:
        view = buffer_view(self.cache.view.get_buffer(), self.cache.dtype, (LIVE, WIDTH))
        return DeviceArray(view, self.device, self.cache.dtype, (LIVE, WIDTH))

    def invoke(self, function: str, views: Sequence[Any], fences: object = None) -> list[Any]:
        if not function.endswith(STATES_SUFFIX):
            return [self.history().view]
        return [upload(np.array([LIVE]), self.device).view, self.cache.view]

    def kept(self) -> KeptCaches:
        return KeptCaches(cast("Program", self), "main_graph", [PAST], [0], MOST)


def test_an_output_that_is_a_cache_is_copied_and_others_are_not() -> None:
    module = WholeCache()
    own, none = (upload(np.zeros((rows, WIDTH), np.float32), module.device) for rows in (MOST, 0))
    given, *others = module.kept().apart([module.history(), own, none])
    assert others == [own, none]
    module.cache.to_host()[...] = 2
    np.testing.assert_array_equal(given.to_host(), np.ones((LIVE, WIDTH)))
    given.to_host()[...] = 1000
    np.testing.assert_array_equal(module.cache.to_host(), np.full((MOST, WIDTH), 2))


def passing_program(module: WholeCache, make_manifest: Callable[..., Manifest]) -> PassingProgram:
    manifest = make_manifest(
        inputs=(PAST,),
        outputs=(TensorSpec("present", "float32", (1, WIDTH)), HISTORY),
        sizes=(OpenSize("positions", 1, MOST, 1, (Place(PAST.name, 0),)),),
        caches=(Cache(PAST.name, "present", 0),),
        format=CACHES_FORMAT,
    )
    return PassingProgram(cast("Program", module), module.kept(), manifest)


def test_it_is_copied_where_callers_pass_caches(make_manifest: Callable[..., Manifest]) -> None:
    module = WholeCache()
    passing = passing_program(module, make_manifest)
    taken = upload(np.zeros((0, WIDTH), np.float32), module.device)
    given = from_view(passing.invoke("main_graph$stateful", [taken.view])[1], module.device, HISTORY).to_host()
    module.cache.to_host()[...] = 2
    np.testing.assert_array_equal(given, np.ones((LIVE, WIDTH)))


@pytest.mark.parametrize("length", [MOST, MOST + 1])
def test_callers_who_pass_caches_without_room_are_told_to_pass_shorter_ones(
    make_manifest: Callable[..., Manifest], length: int
) -> None:
    """They were told to call reset() or restore(), which such sessions refuse."""

    class FullCache(WholeCache):
        def invoke(self, function: str, views: Sequence[Any], fences: object = None) -> list[Any]:
            if function == "main_graph$stateful":
                raise DeviceError(FULL)
            return super().invoke(function, views, fences)

    module = FullCache()
    taken = upload(np.zeros((length, WIDTH), np.float32), module.device)
    with pytest.raises(UsageError, match=f"room for {MOST} positions; pass shorter caches, or compile"):
        passing_program(module, make_manifest).invoke("main_graph$stateful", [taken.view])
    assert "; begin again by reset() or restore(), or compile" in str(module.kept().explained(DeviceError(FULL)))
