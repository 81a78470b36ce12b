"""Later runs of a small model go through memory that the session keeps, which no caller can tell but by the clock."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime import kept_memory
from sartor.runtime import session as session_module
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.runtime.runs import owned_outputs
from sartor.runtime.runs.small import MOST_INPUT_BYTES, MOST_OUTPUT_BYTES, is_small
from sartor.runtime.session import Session

Feeds = dict[str, Array]


@pytest.fixture(scope="module")
def small(compile_mlir: Callable[..., Path], make_manifest: Callable[..., Manifest]) -> Path:
    """A module with an entry for bound memory."""
    return compile_mlir("small", make_manifest().to_json())


@pytest.fixture
def invoked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that were called in the ordinary way."""
    calls: list[str] = []
    invoke = Program.invoke

    def counted(self: Program, function: str, *arguments: Any) -> list[Any]:
        calls.append(function)
        return invoke(self, function, *arguments)

    monkeypatch.setattr(Program, "invoke", counted)
    return calls


def _check(results: list[Array], feeds: Feeds) -> None:
    np.testing.assert_array_equal(results[0], feeds["x"] + feeds["größe"])
    np.testing.assert_array_equal(results[1], feeds["x"] * feeds["größe"])


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_right_and_stay(small: Path, feeds: Feeds, invoked: list[str], threads: int) -> None:
    with Session(small, threads=threads) as session:
        given = [{name: factor * array for name, array in feeds.items()} for factor in (1, 2, 3)]
        results = [session.run(None, each) for each in given]
        assert invoked == ["main_graph"], "later runs need no ordinary call"
        for each, result in zip(given, results, strict=True):
            _check(result, each)
        results[1][0][...] = 7
        given[2]["x"][...] = 7
        _check(session.run(None, feeds), feeds)
    _check(results[0], given[0])


def test_outputs_are_selected_and_inputs_in_any_order_of_memory(small: Path, feeds: Feeds) -> None:
    with Session(small, threads=1) as session:
        session.run(None, feeds)
        (product,) = session.run(["product"], feeds)
        np.testing.assert_array_equal(product, feeds["x"] * feeds["größe"])
        _check(session.run(None, {name: np.asfortranarray(array) for name, array in feeds.items()}), feeds)
        product, total = session.run(["product", "sum"], feeds)
        _check([total, product], feeds)


def test_arrays_on_the_device_and_other_mappings_run_as_before(small: Path, feeds: Feeds, invoked: list[str]) -> None:
    with Session(small, threads=1) as session:
        session.run(None, feeds)
        held = session.to_device(feeds["x"])
        _check(session.run(None, feeds | {"x": held}), feeds)
        _check(session.run(None, MappingProxyType(feeds)), feeds)
        assert len(invoked) == 3


def test_what_does_not_fit_is_refused_as_in_the_first_run(small: Path, feeds: Feeds) -> None:
    refused: list[tuple[Any, str]] = [
        ({"x": feeds["x"]}, "no value is given for input 'größe'"),
        (feeds | {"y": feeds["x"]}, "has no input 'y'"),
        (feeds | {"x": feeds["x"][:3]}, r"input 'x' expects float32\[4, 6\], but got shape \[3, 6\]"),
        (feeds | {"x": feeds["x"].astype(np.float64)}, "but got element type float64"),
        ([feeds], "feeds is of type list"),
    ]
    with Session(small, threads=1) as session:
        for first in (True, False):
            for wrong, complaint in refused:
                with pytest.raises(UsageError, match=complaint):
                    session.run(None, wrong)
            if first:
                session.run(None, feeds)
        _check(session.run(None, feeds), feeds)
    with pytest.raises(UsageError, match="the session is closed"):
        session.run(None, feeds)


@pytest.mark.parametrize(("module", "beside"), [(session_module, "owned"), (kept_memory, "bound_outputs")])
def test_a_session_that_is_closed_after_its_first_run_keeps_nothing(
    small: Path, feeds: Feeds, monkeypatch: pytest.MonkeyPatch, module: ModuleType, beside: str
) -> None:
    """The run ended with an error, or kept memory."""
    session = Session(small, threads=1)
    monkeypatch.setattr(module, beside, _closing(session, getattr(module, beside)))
    _check(session.run(None, feeds), feeds)
    assert session._kept._small is None


def test_a_run_beside_the_end_of_a_session_is_refused(
    small: Path, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with an AttributeError."""
    session = Session(small, threads=1)
    session.run(None, feeds)
    monkeypatch.setattr(session_module, "are_arrays", _closing(session, owned_outputs.are_arrays))
    with pytest.raises(UsageError, match="the session is closed"):
        session.run(None, feeds)


def _closing(session: Session, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which closes a session, as another thread may do."""

    def close(*arguments: Any, **named: Any) -> Any:
        found = function(*arguments, **named)
        session.close()
        return found

    return close


def test_threads_share_the_memory_in_turn(small: Path) -> None:
    with Session(small, threads=1) as session:

        def run(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(50):
                feeds = {name: random.random((4, 6), np.float32) for name in ("x", "größe")}
                _check(session.run(None, feeds), feeds)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(8)))


def test_a_forgotten_session_is_gone_at_once(small: Path, feeds: Feeds) -> None:
    session = Session(small, threads=1)
    for _ in range(3):
        session.run(None, feeds)
    forgotten = weakref.ref(session)
    del session
    assert forgotten() is None


def test_without_memory_to_keep_runs_go_on(
    small: Path, feeds: Feeds, invoked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("no memory")

    monkeypatch.setattr(kept_memory, "bound_outputs", fail)
    with Session(small, threads=1) as session:
        for _ in range(3):
            _check(session.run(None, feeds), feeds)
    assert len(invoked) == 3


def test_a_module_without_an_entry_for_it_runs_as_before(model: Path, feeds: Feeds, invoked: list[str]) -> None:
    with Session(model, threads=1) as session:
        for _ in range(3):
            _check(session.run(None, feeds), feeds)
    assert len(invoked) == 3


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ((MOST_INPUT_BYTES // 4,), (MOST_OUTPUT_BYTES // 4,), True),
        ((MOST_INPUT_BYTES // 4 + 1,), (1,), False),
        ((1,), (MOST_OUTPUT_BYTES // 8, 3), False),
        ((), (0, 5), True),
        ((None,), (1,), False),
        ((1,), (2, None), False),
    ],
)
def test_what_is_small(inputs: tuple[int | None, ...], outputs: tuple[int | None, ...], expected: bool) -> None:
    taken, given = TensorSpec("x", "float32", inputs), TensorSpec("y", "float32", outputs)
    assert is_small(Signature("main", (taken,), (given,))) is expected


def test_masked_arrays_are_refused_by_later_runs_too(small: Path, feeds: Feeds) -> None:
    masked = np.ma.masked_array(feeds["x"], feeds["x"] > 0)
    with Session(small) as session:
        session.run(None, feeds)
        with pytest.raises(UsageError, match="input 'x' is a masked array"):
            session.run(None, {**feeds, "x": masked})
