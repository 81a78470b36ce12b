from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.native_device import Fences
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.runtime.runs.interface import NodeArg
from sartor.runtime.session import Session

Feeds = dict[str, Array]


def _numeric(feeds: Feeds) -> tuple[Array, Array]:
    return feeds["x"], feeds["größe"]


@pytest.mark.parametrize("threads", [None, 1, 2, 3])
def test_run_gives_all_outputs_in_order(model: Path, feeds: Feeds, threads: int | None) -> None:
    x, y = _numeric(feeds)
    with Session(model, threads=threads) as session:
        total, product = session.run(None, feeds)
    np.testing.assert_array_equal(total, np.add(x, y))
    np.testing.assert_array_equal(product, np.multiply(x, y))


def test_run_gives_chosen_outputs(model: Path, feeds: Feeds) -> None:
    with Session(str(model)) as session:
        product, total = session.run(["product", "sum"], feeds)
        assert session.run([], feeds) == []
    np.testing.assert_array_equal(total, np.add(*_numeric(feeds)))
    np.testing.assert_array_equal(product, np.multiply(*_numeric(feeds)))


def test_the_content_runs_as_the_file_does(model: Path, feeds: Feeds) -> None:
    with Session(model) as from_file, Session(model.read_bytes()) as from_bytes:
        np.testing.assert_array_equal(from_file.run(None, feeds), from_bytes.run(None, feeds))


def test_inputs_and_outputs_are_described(model: Path) -> None:
    with Session(model) as session:
        assert session.get_inputs()[1] == NodeArg("größe", "tensor(float)", [4, 6])
        assert [output.name for output in session.get_outputs()] == ["sum", "product"]
        assert session.manifest is not None
        assert session.manifest.model == "modèle"


def test_arrays_in_any_memory_order_are_taken(model: Path, feeds: Feeds) -> None:
    x, y = _numeric(feeds)
    transposed = np.ascontiguousarray(x.T).T
    strided = np.repeat(y, 2, axis=1)[:, ::2]
    read_only = y.copy()
    read_only.setflags(write=False)
    assert not transposed.flags.c_contiguous
    assert not strided.flags.c_contiguous
    with Session(model) as session:
        for other in (strided, read_only):
            [total] = session.run(["sum"], {"x": transposed, "größe": other})
            np.testing.assert_array_equal(total, np.add(x, y))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"größe": None}, "no value is given for input 'größe'"),
        ({"z": np.zeros(1)}, "has no input 'z'; its inputs are 'x', 'größe'"),
        ({"x": np.zeros((4, 6))}, r"'x' expects float32\[4, 6\], but got element type float64"),
        ({"x": np.zeros((4, 6), ">f4")}, "'x' expects .* but got element type >f4"),
        ({"x": np.zeros((4, 7), np.float32)}, r"'x' expects float32\[4, 6\], but got shape \[4, 7\]"),
        ({"x": np.zeros(24, np.float32)}, r"'x' expects .* but got shape \[24\]"),
    ],
)
def test_feeds_that_do_not_fit_are_named(
    model: Path, feeds: Feeds, change: dict[str, Array | None], complaint: str
) -> None:
    given = {name: value for name, value in (feeds | change).items() if value is not None}
    with Session(model) as session, pytest.raises(UsageError, match=complaint):
        session.run(None, given)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"model": 1}, "model is 1, expected the path"),
        ({"model": bytearray(10**6)}, r"model is .{100}…, expected the path"),
        ({"device": 1}, "device is 1, expected"),
        ({"threads": 1.5}, "1 to 256 threads, but 1.5"),
        ({"threads": 0}, "1 to 256 threads, but 0"),
        ({"spin_us": "much"}, "not 'much'"),
        ({"parameters": ["w.irpa"]}, "parameters is .'w.irpa'., expected"),
        ({"signature": "f"}, "signature is 'f', expected a Signature"),
        ({"entry": b"f"}, "entry is b'f', expected"),
        ({"huge_pages": "no"}, "huge_pages is 'no', expected True or False"),
    ],
)
def test_an_argument_of_another_type_is_named(model: Path, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Session(**{"model": model, **arguments})


def test_inputs_of_no_sense_are_refused(model: Path, feeds: Feeds) -> None:
    with Session(model) as session:
        with pytest.raises(UsageError, match="no input '3', 'None'"):
            session.run(None, {**feeds, 3: 1, None: 2})  # type: ignore[dict-item]
        with pytest.raises(UsageError, match="input 'x' is no array: "):
            session.run(None, {**feeds, "x": [[1], [1, 2]]})  # type: ignore[dict-item]
        assert session.settle(np.float32(60))  # type: ignore[arg-type]


def test_masked_arrays_are_refused(model: Path, feeds: Feeds) -> None:
    masked = np.ma.masked_array(feeds["x"], feeds["x"] > 0)
    with Session(model) as session:
        kept = session.to_device(feeds["x"])
        taking: list[Callable[[], object]] = [
            lambda: session.run(None, {**feeds, "x": masked}),
            lambda: session.run_async(None, {**feeds, "x": masked}),
            lambda: session.to_device(masked),
            lambda: kept.copy_from(masked),
        ]
        for take in taking:
            with pytest.raises(UsageError, match="is a masked array; pass its filled"):
                take()


@pytest.mark.parametrize("given", [None, [np.zeros((4, 6), np.float32)]])
def test_feeds_that_are_not_named_are_refused(model: Path, given: Any) -> None:
    with Session(model) as session:
        for run in (session.run, session.run_device, session.run_async):
            with pytest.raises(UsageError, match=r"feeds is of type (NoneType|list), expected"):
                run(None, given)


@pytest.mark.parametrize("names", ["sum", 3])
def test_output_names_that_are_no_list_are_refused(model: Path, feeds: Feeds, names: Any) -> None:
    with Session(model) as session, pytest.raises(UsageError, match=f"output_names is {names!r}, expected a list"):
        session.run(names, feeds)


@pytest.mark.parametrize("name", [3, ["sum"], None])
def test_output_names_that_are_no_text_are_refused(model: Path, feeds: Feeds, name: Any) -> None:
    """A list among the names ended as a TypeError."""
    with Session(model) as session, pytest.raises(UsageError, match="the model has no output '"):
        session.run([name], feeds)


def test_output_names_may_be_produced_one_by_one(model: Path, feeds: Feeds) -> None:
    produced: Any = (name for name in ["product"])
    with Session(model) as session:
        [product] = session.run(produced, feeds)
    np.testing.assert_array_equal(product, np.multiply(*_numeric(feeds)))


@pytest.mark.parametrize("given", [None, [1j], "text", np.zeros(2, "M8[D]"), np.zeros(2, np.longdouble)])
def test_what_no_input_can_be_of_is_not_copied_to_a_device(model: Path, given: Any) -> None:
    with Session(model) as session, pytest.raises(UsageError, match="no input of a model can be of element type"):
        session.to_device(given)


def test_an_unknown_output_is_named(model: Path, feeds: Feeds) -> None:
    with Session(model) as session, pytest.raises(UsageError, match="no output 'y'; its outputs are"):
        session.run(["y"], feeds)


@pytest.mark.parametrize(
    ("entry", "dtype"),
    [
        ("bf16", ml_dtypes.bfloat16),
        ("f16", np.float16),
        ("f32", np.float32),
        ("f64", np.float64),
        ("i8", np.int8),
        ("i16", np.int16),
        ("i32", np.int32),
        ("i64", np.int64),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_element_type_passes(foreign: Path, entry: str, dtype: type, threads: int) -> None:
    value: Array = np.arange(-2, 4).reshape(2, 3).astype(dtype)
    with Session(foreign, entry=entry, threads=threads) as session:
        [result] = session.run(None, {"input0": value})
    assert result.dtype == value.dtype
    np.testing.assert_array_equal(result, value + value)


def test_unsigned_integers_pass_by_an_explicit_signature(foreign: Path) -> None:
    spec = TensorSpec("u", "uint8", (2, 3))
    value = np.full((2, 3), 100, np.uint8)
    with Session(foreign, signature=Signature("i8", (spec,), (spec,))) as session:
        [result] = session.run(None, {"u": value})
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, np.full((2, 3), 200))


def test_booleans_pass(foreign: Path) -> None:
    one, other = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    with Session(foreign, entry="bool") as session:
        [result] = session.run(None, {"input0": one, "input1": other})
    assert result.dtype == bool
    np.testing.assert_array_equal(result, one & other)


@pytest.mark.parametrize(
    ("entry", "shape"), [("scalar", ()), ("empty", (0, 3)), ("dynamic", (5, 3)), ("dynamic", (0, 3))]
)
def test_unusual_shapes_pass(foreign: Path, entry: str, shape: tuple[int, ...]) -> None:
    value = np.full(shape, 1.5, np.float32)
    with Session(foreign, entry=entry) as session:
        [result] = session.run(None, {"input0": value})
    assert result.shape == shape
    np.testing.assert_array_equal(result, value + value)


def test_a_model_without_inputs_runs(foreign: Path) -> None:
    with Session(foreign, entry="no_inputs") as session:
        session.run(None, {})[0][:] = 7  # the constant itself must not change
        np.testing.assert_array_equal(session.run(None, {})[0], np.array([1, 2], np.float32))


def test_outputs_do_not_share_memory(foreign: Path) -> None:
    value = np.zeros(8, np.float32)
    with Session(foreign, entry="twice_the_same") as session:
        one, other = session.run(None, {"input0": value})
    one[:] = 1
    assert not other.any()
    assert not value.any()


def test_outputs_do_not_share_memory_with_an_array_on_the_device(foreign: Path) -> None:
    """Which the caller may change, as the next run's input."""
    with Session(foreign, entry="twice_the_same") as session:
        given = session.to_device(np.zeros(8, np.float32))
        found = session.run(None, {"input0": given}) + session.run_async(None, {"input0": given}).result()
        given.copy_from(np.ones(8, np.float32))
    assert not any(each.any() for each in found)


def test_outputs_of_a_run_that_was_waited_for_do_not_share_memory(foreign: Path) -> None:
    with Session(foreign, entry="twice_the_same") as session:
        one, other = session.run_async(None, {"input0": np.zeros(8, np.float32)}).result()
    one[:] = 1
    assert not other.any()


def test_a_wrong_signature_is_an_error_not_a_crash(foreign: Path) -> None:
    spec = TensorSpec("a", "float32", (2, 3))
    value = {"a": np.zeros((2, 3), np.float32)}
    wide = TensorSpec("a", "float64", (2, 3))
    for signature, complaint in [
        (Signature("f64", (spec,), (spec,)), "element type mismatch"),
        (Signature("f32", (spec,), (wide,)), r"output 'a' should be float64\[2, 3\]"),
        (Signature("f32", (spec,), (spec, spec)), "gives 1 outputs"),
    ]:
        session = Session(foreign, signature=signature)
        with pytest.raises((DeviceError, UsageError), match=complaint):
            session.run(None, value)
    with pytest.raises(UsageError, match="exports no function 'missing'"):
        Session(foreign, signature=Signature("missing", (spec,), (spec,)))


def test_device_arrays_are_passed_without_copying(model: Path, feeds: Feeds) -> None:
    with Session(model) as session:
        x = session.to_device(feeds["x"])
        ones = session.allocate("größe")
        assert ones.shares_host_memory
        ones.to_host()[...] = 1
        [total] = session.run_device(["sum"], {"x": x, "größe": ones})
        np.testing.assert_array_equal(total.to_host(), feeds["x"] + 1)
        [again] = session.run_device(["sum"], {"x": total, "größe": ones})
        assert np.shares_memory(again.to_host(), again.to_host())
        np.testing.assert_allclose(again.to_host(), feeds["x"] + 2, rtol=1e-6)
        ones.copy_from(feeds["x"])
        np.testing.assert_array_equal(session.run(["sum"], {"x": x, "größe": ones})[0], feeds["x"] * 2)


def test_device_arrays_are_checked(model: Path, foreign: Path, feeds: Feeds) -> None:
    with Session(model, threads=1) as session, Session(model, threads=2) as other:
        with pytest.raises(UsageError, match=r"another device \(cpu with 2 threads\)"):
            session.run(None, feeds | {"x": other.to_device(feeds["x"])})
        with pytest.raises(UsageError, match="but got shape"):
            session.run(None, feeds | {"x": session.to_device(feeds["x"][:2])})
        with pytest.raises(UsageError, match="cannot take the values"):
            session.allocate("x").copy_from(feeds["x"][:2])
        with pytest.raises(UsageError, match="no input 'z'"):
            session.allocate("z")
    with Session(foreign, entry="dynamic") as session, pytest.raises(UsageError, match="static shape"):
        session.allocate("input0")


def test_sessions_of_one_device_share_arrays(model: Path, feeds: Feeds) -> None:
    device = open_device("cpu", threads=2)
    with Session(model, device=device) as one, Session(model, threads=2) as other:
        assert other.device is device
        [total] = one.run_device(["sum"], feeds)
        np.testing.assert_array_equal(
            other.run(["product"], feeds | {"x": total})[0], (feeds["x"] + feeds["größe"]) * feeds["größe"]
        )
    with pytest.raises(UsageError, match="settled when a device is opened"):
        Session(model, device=device, threads=2)


def test_results_outlive_session_and_device(model: Path, feeds: Feeds) -> None:
    session = Session(model, threads=7)
    [total] = session.run(["sum"], feeds)
    [kept] = session.run_device(["sum"], feeds)
    session.close()
    del session
    np.testing.assert_array_equal(total, np.add(*_numeric(feeds)))
    np.testing.assert_array_equal(kept.to_host(), total)


@pytest.mark.parametrize("order", ["session,total,kept", "kept,total,session", "total,session,kept", ""])
def test_a_process_ends_cleanly_with_results_alive(model: Path, order: str) -> None:
    code = (
        "import sys, numpy as np\n"
        "from sartor.runtime.session import Session\n"
        "session = Session(sys.argv[1], threads=2)\n"
        "feeds = {item.name: np.ones(item.shape, np.float32) for item in session.get_inputs()}\n"
        "[total], [kept] = session.run(['sum'], feeds), session.run_device(['sum'], feeds)\n"
        "pending = session.run_async(None, feeds)\n"
        "for name in filter(None, sys.argv[2].split(',')): del globals()[name]\n"
    )
    done = subprocess.run([sys.executable, "-c", code, model, order], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_caller_does_not_wait_inside_a_software_driver(
    compile_mlir: Callable[..., Path],
    make_manifest: Callable[..., Manifest],
    feeds: Feeds,
    vulkan: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compile_mlir("model", make_manifest(devices=(vulkan,), levels=("llvmpipe",)).to_json(), vulkan)
    wait, limits = Fences.wait, list[float | None]()

    def counted(fences: Fences, timeout: float | None) -> bool:
        limits.append(timeout)
        return wait(fences, timeout)

    monkeypatch.setattr(Fences, "wait", counted)
    with Session(compiled) as session:
        if not session.device.software:
            pytest.skip("the Vulkan device here is no software driver")
        for _ in range(3):
            session.run_device(["sum"], feeds)
    # Nothing is left to be waited for when the session is closed.
    assert limits == [None] * 3


def test_vulkan_runs_the_model(
    compile_mlir: Callable[..., Path],
    make_manifest: Callable[..., Manifest],
    feeds: Feeds,
    vulkan: str,
    model: Path,
) -> None:
    manifest = make_manifest(devices=(vulkan,), levels=("llvmpipe",))
    compiled = compile_mlir("model", manifest.to_json(), vulkan)
    with Session(compiled) as session:
        assert session.device.label == "vulkan:0"
        np.testing.assert_allclose(session.run(["sum"], feeds)[0], np.add(*_numeric(feeds)), rtol=1e-6)
        run = session.run_async(["product"], feeds)
        np.testing.assert_allclose(run.result(60)[0], np.multiply(*_numeric(feeds)), rtol=1e-6)
        ones = session.allocate("x")
        assert not ones.shares_host_memory
        ones.copy_from(np.ones((4, 6), np.float32))
        [total] = session.run_device(["sum"], feeds | {"x": ones})
        np.testing.assert_allclose(total.to_host(), feeds["größe"] + 1, rtol=1e-6)
    with pytest.raises(DeviceError, match="holds code for vulkan, which 'cpu with"):
        Session(compiled, device="cpu")
    with pytest.raises(DeviceError, match="holds code for cpu, which 'vulkan:0' cannot run; open it on cpu"):
        Session(model, device="vulkan")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "a\0b"}, "model is 'a\\x00b', expected the path"),
        ({"parameters": {1: "w.irpa"}}, "parameters is 1, expected a scope's name"),
        ({"parameters": {"model": 2}}, "parameters is 2, expected the path"),
        ({"entry": "absent"}, "only; leave entry='absent' out"),
    ],
)
def test_arguments_that_no_session_can_have_are_refused(model: Path, changes: dict[str, Any], said: str) -> None:
    arguments = {"model": model, **changes}
    with pytest.raises(UsageError, match=re.escape(said)):
        Session(arguments.pop("model"), **arguments)


def test_settling_takes_any_time_that_is_one(model: Path) -> None:
    with Session(model) as session:
        session.settle(float("inf"))
        session.settle(1e300)
        session.settle(0)
        for wrong in (-1, float("nan"), "1"):
            with pytest.raises(UsageError, match="timeout is"):
                session.settle(wrong)  # type: ignore[arg-type]


def test_arrays_of_a_device_are_not_copied(model: Path, feeds: Feeds) -> None:
    with Session(model) as session:
        array = session.to_device(next(iter(feeds.values())))
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(UsageError, match="cannot be copied or pickled"):
                copied(array)


def test_sessions_and_their_runs_are_not_copied(model: Path, feeds: Feeds) -> None:
    with Session(model) as session:
        for one in (session, session.device, session.bind(feeds), session.run_async(None, feeds)):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(UsageError, match="cannot be copied or pickled"):
                    copied(one)
