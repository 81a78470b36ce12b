"""Small runs of any size have views of one memory, which grows with the sizes that are met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.errors import DeviceError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import upload
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.files.open_sizes import GivenSize, OpenSize, Place
from sartor.runtime.runs import sized
from sartor.runtime.runs.row_limits import RowLimits
from sartor.runtime.runs.sized import OpenShapes, SizedRuns

ROW = 1 << 10
INPUTS = (TensorSpec("x", "float32", (None, ROW)), TensorSpec("mask", "int64", (1, None)))
OUTPUTS = (TensorSpec("half", "float32", (None, 2)), TensorSpec("fixed", "int8", (3,)))
SIGNATURE = Signature("main", INPUTS, OUTPUTS)
SIZES = (OpenSize("rows", 1, 4000, 1, (Place("x", 0), Place("mask", 1, -1))),)
GIVEN = (GivenSize("half", 0, ("rows",), 1, 1, 2),)


@pytest.fixture
def calls() -> list[tuple[tuple[int, ...], ...]]:
    """The shapes of the views from which calls were made."""
    return []


@pytest.fixture
def runs(calls: list[tuple[tuple[int, ...], ...]]) -> SizedRuns:
    """Runs of a model that computes nothing."""

    def prepare(views: Sequence[Any]) -> Callable[[], None]:
        calls.append(tuple(tuple(view.shape) for view in views))
        return lambda: None

    shapes = OpenShapes(SIGNATURE, SIZES, GIVEN)
    return SizedRuns(SIGNATURE, shapes, open_device("cpu", 1), prepare, RowLimits({}))


def shapes_of(rows: int) -> sized.Shapes:
    return (rows, ROW), (1, rows - 1)


@pytest.mark.parametrize(("rows", "half"), [(1, 1), (2, 1), (7, 4), (4000, 2000)])
def test_shapes_of_outputs_follow_from_those_of_inputs(rows: int, half: int) -> None:
    assert OpenShapes(SIGNATURE, SIZES, GIVEN).outputs(shapes_of(rows)) == ((half, 2), (3,))


@pytest.mark.parametrize(
    "inputs", [shapes_of(4001), shapes_of(0), ((5, ROW), (1, 5)), ((5, 1), (1, 4)), ((5, ROW), (4,))]
)
def test_inputs_that_do_not_fit_have_no_runs(inputs: sized.Shapes, runs: SizedRuns) -> None:
    assert runs.make(inputs) is None


def test_a_sum_of_sizes_is_compared() -> None:
    inputs = (
        TensorSpec("x", "int8", (None,)),
        TensorSpec("past", "int8", (None,)),
        TensorSpec("mask", "int8", (None,)),
    )
    places = Place("past", 0), Place("mask", 0, 1, (Place("x", 0),))
    sizes = OpenSize("new", 1, 9, 1, (Place("x", 0),)), OpenSize("past", 1, 9, 1, places)
    outputs = (TensorSpec("y", "int8", (None,)),)
    shapes = OpenShapes(Signature("main", inputs, outputs), sizes, (GivenSize("y", 0, ("new",), 2, 0, 1),))
    assert shapes.outputs(((3,), (4,), (8,))) == ((6,),)
    assert shapes.outputs(((3,), (4,), (7,))) is None


def test_sizes_that_nothing_tells_are_not_known() -> None:
    assert OpenShapes(SIGNATURE, SIZES, GIVEN).are_known
    assert not OpenShapes(SIGNATURE, SIZES, ()).are_known
    assert not OpenShapes(SIGNATURE, (), GIVEN).are_known


def test_a_size_has_views_of_the_memory_of_others(
    runs: SizedRuns, calls: list[tuple[tuple[int, ...], ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated = Mock(wraps=upload)
    monkeypatch.setattr(f"{sized.__name__}.upload", allocated)
    made = {rows: runs.make(shapes_of(rows)) for rows in (16, 1, 5)}
    assert allocated.call_count == 4, "one memory for each tensor"
    assert calls == [(*shapes_of(rows), ((rows + 1) // 2, 2), (3,)) for rows in made]
    for rows, each in made.items():
        assert each is not None
        assert runs.of(shapes_of(rows)) is each
        feeds: dict[str, Array] = {"x": np.full((rows, ROW), 1, np.float32), "mask": np.zeros((1, rows - 1), np.int64)}
        outputs = each.run(each.arrays(feeds), [1, 0])
        assert [output.shape for output in outputs] == [(3,), ((rows + 1) // 2, 2)]
        assert not any(np.may_share_memory(output, kept) for output in outputs for kept in each._outputs)
    one, other = (each._inputs[0] for each in made.values() if each is not None and len(each._inputs[0]) != 1)
    assert np.shares_memory(one, other)


def test_memory_grows_in_few_steps_and_what_had_views_of_it_is_made_anew(
    runs: SizedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocated = Mock(wraps=upload)
    monkeypatch.setattr(f"{sized.__name__}.upload", allocated)
    for rows in range(1, 257):
        assert runs.make(shapes_of(rows)) is not None
    assert allocated.call_count == 4 * 5, "64 KiB of x to begin with, then twice as much until one MiB"
    assert runs.of(shapes_of(255)) is not None
    assert runs.of(shapes_of(3)) is None


def test_what_is_large_has_no_memory(runs: SizedRuns) -> None:
    assert runs.make(shapes_of(1025)) is None
    assert runs.make(shapes_of(1020)) is not None


def test_the_oldest_of_many_sizes_is_dropped(runs: SizedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sized, "_MOST_SIZES", 3)
    for rows in (9, 8, 7, 6):
        runs.make(shapes_of(rows))
    assert [runs.of(shapes_of(rows)) is not None for rows in (9, 8, 7, 6)] == [False, True, True, True]


def test_without_memory_for_a_larger_size_smaller_ones_get_theirs_anew(
    runs: SizedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runs.make(shapes_of(3)) is not None
    with monkeypatch.context() as patch:
        patch.setattr(f"{sized.__name__}.upload", Mock(side_effect=DeviceError("no memory")))
        with pytest.raises(DeviceError):
            runs.make(shapes_of(900))
    assert runs.of(shapes_of(3)) is None
    assert runs.make(shapes_of(3)) is not None
