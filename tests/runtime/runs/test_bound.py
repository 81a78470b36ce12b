"""Runs on memory that stays where it is, short calls on the calling thread, and numbers of rows that there are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import DeviceArray, upload
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import Manifest
from sartor.runtime.runs.row_limits import RowLimits
from sartor.runtime.runs.short_calls import HELD, LONGEST_SECONDS, ShortCalls
from sartor.runtime.session import Session

Feeds = dict[str, Array]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_module_without_an_entry_for_them_runs_too(model: Path, feeds: Feeds, threads: int) -> None:
    with Session(model, threads=threads) as session:
        bound = session.bind(feeds)
        total, image = bound.outputs["sum"].to_host(), bound.inputs["x"].to_host()
        for factor in (1, 2):
            image[...] = factor * feeds["x"]
            bound.run()
            np.testing.assert_array_equal(total, factor * feeds["x"] + feeds["größe"])


def test_outputs_on_vulkan_are_written(
    compile_mlir: Callable[..., Path], make_manifest: Callable[..., Manifest], feeds: Feeds, vulkan: str
) -> None:
    path = compile_mlir("model", make_manifest(devices=("vulkan",)).to_json(), "vulkan")
    with Session(path, device=vulkan) as session:
        bound = session.bind(feeds)
        bound.inputs["x"].copy_from(2 * feeds["x"])
        bound.run()
        np.testing.assert_array_equal(bound.outputs["sum"].to_host(), 2 * feeds["x"] + feeds["größe"])


def test_arrays_of_the_caller_are_used(model: Path, feeds: Feeds) -> None:
    with Session(model, threads=1) as session:
        x, total = session.to_device(feeds["x"]), session.to_device(np.zeros((4, 6), np.float32))
        bound = session.bind(feeds | {"x": x}, {"sum": total})
        bound.run()
        assert (bound.inputs["x"], bound.outputs["sum"]) == (x, total)
        np.testing.assert_array_equal(total.to_host(), feeds["x"] + feeds["größe"])
        # One run's output is another one's input.
        then = session.bind({"x": total, "größe": feeds["größe"]})
        then.run()
        np.testing.assert_array_equal(then.outputs["product"].to_host(), total.to_host() * feeds["größe"])


def test_what_cannot_be_bound_is_refused(model: Path, feeds: Feeds) -> None:
    def zeros(*shape: int) -> DeviceArray:
        return session.to_device(np.zeros(shape, np.float32))

    with Session(model, threads=1) as session, Session(model, threads=2) as other:
        x, one = zeros(4, 6), zeros(4, 6)
        refused = [
            (feeds, {"sun": one}, "has no output 'sun'; its outputs are"),
            (feeds, {"sum": zeros(4, 7)}, r"output 'sum' expects float32\[4, 6\], but got shape \[4, 7\]"),
            (feeds, {"sum": feeds["x"]}, "can be bound to an array of the device .*this one is of type ndarray"),
            (feeds, {"sum": other.to_device(feeds["x"])}, "can be bound to an array of the device .*this one is on '"),
            (feeds, [x], "outputs is of type list, expected device arrays by output name"),
            ({}, {}, "no value is given for inputs "),
            (feeds, {"sum": one, "product": one}, "'sum' and output 'product' are bound to the same memory"),
            (feeds | {"x": x}, {"sum": x}, "'x' and output 'sum' are bound to the same memory"),
            ({"x": x}, {}, "no value is given for input 'größe'"),
        ]
        for inputs, outputs, complaint in refused:
            with pytest.raises(UsageError, match=complaint):
                session.bind(inputs, outputs)  # type: ignore[arg-type]


def test_a_run_of_a_closed_session_is_refused(model: Path, feeds: Feeds) -> None:
    with Session(model, threads=1) as session:
        bound = session.bind(feeds)
        bound.run()
    with pytest.raises(UsageError, match="the session is closed"):
        bound.run()
    assert bound.outputs["sum"].to_host().shape == (4, 6)


def test_sessions_may_be_forgotten_before_their_runs(model: Path, feeds: Feeds) -> None:
    bound = Session(model, threads=2).bind(feeds)
    bound.run()
    np.testing.assert_array_equal(bound.outputs["sum"].to_host(), feeds["x"] + feeds["größe"])


Seconds = Callable[[int], float]


class _Model:
    """A model that takes a time for each number of elements, by a clock of its own, and notes where calls ran."""

    def __init__(self, on_all: Seconds, inline: Seconds) -> None:
        self.now, self.ran = 0.0, list[str]()
        self._seconds = {"all": on_all, "inline": inline}
        self.calls = ShortCalls(lambda: self.now)

    def run(self, elements: int, times: int = 1) -> list[str]:
        """Where so many calls ran."""
        feeds = {"x": np.zeros(elements, np.float32)}
        for _ in range(times):
            (found,) = self.calls.run(feeds, lambda: self._ran("all", feeds), lambda: self._ran("inline", feeds))
            assert found is feeds["x"]
        return self.ran[-times:]

    def _ran(self, where: str, feeds: Mapping[str, Array]) -> list[Array]:
        self.now += self._seconds[where](feeds["x"].size)
        self.ran.append(where)
        return [feeds["x"]]


def _woken(elements: int) -> float:
    return 5e-5 + 5e-7 * elements


def _alone(elements: int) -> float:
    return 1e-6 * elements


def test_short_calls_stay_on_the_thread_and_others_go_to_all() -> None:
    model = _Model(_woken, _alone)
    for elements, where in ((10, "inline"), (70, "inline"), (500, "all"), (10, "inline")):
        model.run(elements, 20)
        assert set(model.run(elements, 20)) == {where}


def test_long_calls_are_not_tried_alone() -> None:
    model = _Model(lambda _: 2 * LONGEST_SECONDS, lambda _: 1.0)
    assert set(model.run(100, 2 * HELD)) == {"all"}


def test_one_slow_call_on_all_threads_does_not_tell_that_calls_are_long() -> None:
    late = iter([1.0, 2e-3, 1.0])
    model = _Model(lambda _: next(late, 3 * LONGEST_SECONDS), lambda _: 1e-4)
    model.run(40, 20)
    assert set(model.run(40, 20)) == {"inline"}


def test_calls_that_take_much_longer_alone_are_tried_twice() -> None:
    model = _Model(lambda _: 0.9 * LONGEST_SECONDS, lambda _: 3 * LONGEST_SECONDS)
    assert model.run(40, 2 * HELD // 3).count("inline") == 2


def test_sizes_that_are_similar_are_tried_together() -> None:
    model = _Model(_woken, _alone)
    for elements in (17, 31, 23, 19) * 5:
        model.run(elements)
    assert model.run(29) == ["inline"]


def test_a_decision_is_made_anew_after_many_calls() -> None:
    slowness = [4.0]
    model = _Model(lambda _: 1e-4 * slowness[0], lambda _: 2e-4)
    model.run(40, 20)
    assert model.run(40) == ["inline"]
    slowness[0] = 1.0
    model.run(40, HELD + 20)
    assert model.run(40) == ["all"]


def test_a_call_that_fails_counts_for_nothing() -> None:
    calls = ShortCalls()

    def fail() -> list[Array]:
        raise ValueError("no")

    for _ in range(40):
        with pytest.raises(ValueError, match="no"):
            calls.run({"x": np.zeros(3)}, fail, fail)
    assert calls.run({"x": np.zeros(3)}, lambda: [np.ones(1)], lambda: [np.ones(1)])[0].size == 1


LIMITS = RowLimits({"ids": 11})


@pytest.mark.parametrize("numbers", [[], [10], [-11], [0, -11, 10]])
def test_rows_of_the_table_pass(numbers: list[int]) -> None:
    LIMITS.check([("ids", np.array(numbers, np.int32)), ("others", np.array([99]))])


@pytest.mark.parametrize(("numbers", "wrong"), [([11], 11), ([-12], -12), ([0, 99, 3], 99), ([0, 2**40, -13], 2**40)])
def test_others_are_refused(numbers: list[int], wrong: int) -> None:
    said = f"input 'ids' has {wrong}, and .* 11 rows: expected numbers from 0 to 10, or from -11 to -1"
    array = np.array(numbers, np.int64)
    for value in (array, upload(array, open_device("cpu", 1))):
        with pytest.raises(UsageError, match=said):
            LIMITS.check([("ids", value)])
