from __future__ import annotations

import copy
import os
import pickle
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sartor.errors import DeviceError, UsageError
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.signature import Array, Signature, TensorSpec
from sartor.runtime.manifest import Manifest
from sartor.runtime.runs.interface import NodeArg
from sartor.runtime.session import Session
from tests.runtime.mapping.test_background import refused

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


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_waited_for_any_time_that_is_one(model: Path, feeds: Feeds, threads: int) -> None:
    with Session(model, threads=threads) as session:
        run = session.run_async(None, feeds)
        for wrong in (-1, float("nan"), "1"):
            with pytest.raises(UsageError, match="timeout is"):
                run.result(wrong)  # type: ignore[arg-type]
        assert len(run.result(float("inf"))) == len(run.device_result(1e300))


def test_a_run_beside_others_says_that_no_thread_can_be_started(
    model: Path, feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refused)
    with Session(model, threads=1) as session:
        monkeypatch.setattr(session, "_has_async_entry", False)
        with pytest.raises(DeviceError, match="can't start new thread; call run instead"):
            session.run_async(None, feeds)
        assert session.run(None, feeds)


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


@pytest.mark.parametrize("threads", [1, 2])
def test_asynchronous_runs_give_the_same(model: Path, feeds: Feeds, threads: int) -> None:
    with Session(model, threads=threads) as session:
        runs = [session.run_async(["product"], feeds | {"x": feeds["x"] * i}) for i in range(8)]
        for i, run in enumerate(runs):
            np.testing.assert_allclose(run.result(timeout=60)[0], i * np.multiply(*_numeric(feeds)), rtol=1e-6)
            assert run.done()


def test_an_asynchronous_run_can_be_awaited(model: Path, feeds: Feeds) -> None:
    import asyncio

    async def both(session: Session) -> list[list[Array]]:
        return await asyncio.gather(*(_await(session, feeds) for _ in range(2)))

    async def _await(session: Session, feeds: Feeds) -> list[Array]:
        return await session.run_async(["sum"], feeds)

    with Session(model) as session:
        for [total] in asyncio.run(both(session)):
            np.testing.assert_array_equal(total, np.add(*_numeric(feeds)))


def test_a_failing_asynchronous_run_reports_it(foreign: Path) -> None:
    spec = TensorSpec("a", "float32", (2, 3))
    with Session(foreign, signature=Signature("f64", (spec,), (spec,))) as session:
        run = session.run_async(None, {"a": np.zeros((2, 3), np.float32)})
        with pytest.raises(DeviceError, match="element type mismatch"):
            run.result(timeout=60)
        assert run.done()


@pytest.mark.parametrize("threads", [1, 2])
def test_closing_waits_and_refuses_more(model: Path, feeds: Feeds, threads: int) -> None:
    session = Session(model, threads=threads)
    run = session.run_async(["sum"], feeds)
    session.close()
    session.close()
    assert run.done()
    np.testing.assert_array_equal(run.result()[0], np.add(*_numeric(feeds)))
    for call in (session.run, session.run_async):
        with pytest.raises(UsageError, match="session is closed"):
            call(None, feeds)


def test_a_forgotten_session_waits_too(model: Path, feeds: Feeds) -> None:
    for _ in range(20):
        session = Session(model, threads=6)
        run = session.run_async(["sum"], feeds)
        del session
        assert run.done()
    np.testing.assert_array_equal(run.result()[0], np.add(*_numeric(feeds)))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_session(model: Path, feeds: Feeds, threads: int) -> None:
    wrong: list[int] = []

    def work(factor: int) -> None:
        for _ in range(50):
            [total] = session.run(["sum"], feeds | {"x": feeds["x"] * factor})
            if not np.array_equal(total, feeds["x"] * factor + feeds["größe"]):
                wrong.append(factor)

    with Session(model, threads=threads) as session:
        workers = [threading.Thread(target=work, args=(factor,)) for factor in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not wrong


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "w.irpa"
    tool = Path(sys.executable).parent / "iree-create-parameters"
    subprocess.run([tool, "--splat=w=4xf32=2.5", f"--output={file}"], check=True, capture_output=True)
    return file


def test_parameters_come_from_a_file_of_their_own(
    compile_mlir: Callable[..., Path], weights: Path, tmp_path: Path
) -> None:
    model = compile_mlir("parameters")
    value = np.arange(4, dtype=np.float32)
    with Session(model, parameters={"model": weights}) as session:
        np.testing.assert_array_equal(session.run(None, {"input0": value})[0], value + 2.5)
    with pytest.raises(UsageError, match="needs its weights"):
        Session(model)
    with pytest.raises(UsageError, match=r"weights '.*none\.irpa' are missing; pass parameters="):
        Session(model, parameters={"model": tmp_path / "none.irpa"})
    broken = tmp_path / "broken.irpa"
    broken.write_bytes(b"IRPA" + bytes(40))
    with pytest.raises(UsageError, match=r"broken\.irpa' cannot be loaded"):
        Session(model, parameters={"model": broken})


def test_small_files_may_be_overwritten_while_they_are_open(
    compile_mlir: Callable[..., Path], weights: Path, tmp_path: Path
) -> None:
    model, copy = tmp_path / "model.vmfb", tmp_path / "copy.irpa"
    model.write_bytes(compile_mlir("parameters").read_bytes())
    copy.write_bytes(weights.read_bytes())
    value = np.arange(4, dtype=np.float32)
    with Session(model, parameters={"model": copy}) as session:
        for path in (model, copy):
            path.write_bytes(bytes(path.stat().st_size))
            os.truncate(path, 1)
        np.testing.assert_array_equal(session.run(None, {"input0": value})[0], value + 2.5)


def test_parameters_are_found_beside_the_model(
    compile_mlir: Callable[..., Path],
    make_manifest: Callable[..., Manifest],
    weights: Path,
    tmp_path: Path,
) -> None:
    spec = TensorSpec("x", "float32", (4,))
    manifest = make_manifest(entry="main", inputs=(spec,), outputs=(spec,), parameters={"model": "model.irpa"})
    model = tmp_path / "model.vmfb"
    model.write_bytes(compile_mlir("parameters", manifest.to_json()).read_bytes())
    value = {"x": np.zeros(4, np.float32)}
    with pytest.raises(UsageError, match=r"model\.irpa' are missing; put them beside the module"):
        Session(model)
    (tmp_path / "model.irpa").mkdir()
    with pytest.raises(UsageError, match=r"model\.irpa' are no file; put them beside the module"):
        Session(model, parameters={"model": tmp_path / "model.irpa"})
    (tmp_path / "model.irpa").rmdir()
    with pytest.raises(UsageError, match=r"needs the weights 'model\.irpa'"):
        Session(model.read_bytes())
    with Session(model, parameters={"model": weights}) as session:
        assert session.run(None, value)[0][0] == 2.5
    with pytest.raises(UsageError, match=r"no weights of the scope 'modle' .*; it has those of 'model'"):
        Session(model, parameters={"modle": weights})
    (tmp_path / "model.irpa").write_bytes(weights.read_bytes())
    with Session(model) as session:
        assert session.run(None, value)[0][0] == 2.5


@pytest.mark.skipif(platform.machine() in ("aarch64", "arm64"), reason="this machine runs it")
def test_code_for_other_cpus_is_refused(
    compile_mlir: Callable[..., Path], make_manifest: Callable[..., Manifest]
) -> None:
    compiled = compile_mlir("model", make_manifest().to_json(), "aarch64")
    with pytest.raises(DeviceError, match="holds code for aarch64, which this machine does not run; compile it for h"):
        Session(compiled)


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


_FORK = """
import os, sys
import numpy as np
from sartor.errors import UsageError
from sartor.runtime.session import Session
session = Session(sys.argv[1], threads=int(sys.argv[2]))
feeds = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
session.run(None, feeds)
pending = session.run_async(None, feeds)
child = os.fork()
try:
    outputs = session.run(None, feeds), session.run_async(None, feeds).result()
    said = f"ran {len(outputs)}"
except UsageError as error:
    said = str(error)
with Session(sys.argv[1], threads=int(sys.argv[2])) as own:
    own.run(None, feeds)
os.write(1, bytes(f"{'child' if child == 0 else 'parent'} {said}", 'ascii') + bytes([10]))
if child:
    pending.result()
    assert os.waitpid(child, 0)[1] == 0
session.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("threads", "said"), [("1", "child ran 2"), ("2", "was opened before this process was forked")]
)
def test_a_forked_process_runs_or_says_why_not(model: Path, threads: str, said: str) -> None:
    """And ends, without waiting for threads that stayed with its parent."""
    command = [sys.executable, "-c", _FORK, str(model), threads]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    child, parent = sorted(result.stdout.splitlines())
    assert said in child
    assert child.startswith("child ")
    assert parent == "parent ran 2"


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
        for one in (session, session.bind(feeds), session.run_async(None, feeds)):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(UsageError, match="cannot be copied or pickled"):
                    copied(one)
