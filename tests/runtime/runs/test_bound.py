"""Runs on memory that stays where it is; that the entry for them is right is tested where modules are stitched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sartor.errors import UsageError
from sartor.runtime.driver.device_array import DeviceArray
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import Manifest
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
