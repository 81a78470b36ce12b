"""onnxslim runs apart, keeps names and signature, and may fail without harm."""

from __future__ import annotations

import gc
import logging
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from onnx import ModelProto

from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.preparing import simplify as module
from sartor.onnx_model.preparing.prepare import prepare
from sartor.onnx_model.preparing.simplify import SimplifyProcess, simplify
from sartor.onnx_model.preparing.simplify_worker import limit as limits
from sartor.onnx_model.preparing.simplify_worker import seldom_collected
from tests import serving_again
from tests.plugin.onnx_model.builders import FLOAT, model, node, relative_error, run, weights
from tests.serving_again import SimplifyHere


def _redundant() -> ModelProto:
    """Two reshapes in a row, the same product twice, and an input nothing reads."""
    nodes = [
        node("Reshape", ["x", "s1"], ["a"], name="first"),
        node("Reshape", ["a", "s2"], ["b"], name="second"),
        node("MatMul", ["b", "w"], ["c"], name="product"),
        node("MatMul", ["b", "w"], ["d"], name="again"),
        node("Add", ["c", "d"], ["y"], name="sum"),
    ]
    constants = {"s1": [3, 8], "s2": [6, 4], "w": weights(4, 5)}
    built = model(nodes, [("x", (2, 3, 4), FLOAT), ("unused", (1,), FLOAT)], ["y"], constants)
    infer_shapes(built)
    return built


def test_names_and_signature_survive(capfd: pytest.CaptureFixture[str]) -> None:
    built = _redundant()
    feeds = {"x": weights(2, 3, 4, seed=1), "unused": weights(1)}
    expected = run(built, feeds)["y"]
    removed = simplify(built)
    assert {"again", "product"} & set(removed)
    assert {item.name for item in built.graph.node} <= {"first", "second", "product", "again", "sum"}
    assert [value.name for value in built.graph.input] == ["x", "unused"]
    assert relative_error(run(built, feeds)["y"], expected) <= 1e-6
    assert capfd.readouterr() == ("", "")


def test_models_with_sequences_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of the product is looked for in the shape of a sequence."""
    nodes = [node("SequenceConstruct", ["x"], ["list"]), node("Mul", ["list", "x"], ["y"])]
    built = model(nodes, [("x", (2, 3), FLOAT)], ["y"])
    monkeypatch.setattr(module, "_run_worker", lambda given: pytest.fail("onnxslim runs"))
    assert simplify(built) == ()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.abort()", "onnxslim failed"),
        ("raise SystemExit('cannot')", "cannot"),
        ("raise OSError(28, 'No room')", "onnxslim failed (OSError: [Errno 28] No room)"),
        ("pass", "could not be run"),
        ("open(sys.stdin.read().splitlines()[1] + '/out.onnx', 'wb').write(b'rubbish')", "could not be run"),
    ],
)
def test_failure_is_a_warning(
    program: str, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!{sys.executable}\nimport sys\nsys.argv.pop(1)\n{program}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    built = _redundant()
    before = built.SerializeToString()
    with caplog.at_level(logging.WARNING):
        assert simplify(built) == ()
    assert message in caplog.text
    assert built.SerializeToString() == before


@pytest.mark.parametrize("kind", [SimplifyProcess, SimplifyHere])
def test_changed_signature_is_refused(
    kind: type[SimplifyProcess], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = _redundant()
    other.graph.output[0].name = "c"
    with kind() as process, caplog.at_level(logging.WARNING):
        monkeypatch.setattr(process, "run", lambda model, seconds: other)
        assert simplify(_redundant(), process) == ()
        assert process.has_failed
    assert "changed the outputs" in caplog.text


def test_tests_limit_time_of_a_processor_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def keep_busy(data: bytes) -> bytes:
        while True:
            pass

    def wait(data: bytes) -> bytes:
        time.sleep(0.5)
        return data

    monkeypatch.setattr(module, "_LIMIT_SECONDS", 0.1)
    with SimplifyHere() as process, caplog.at_level(logging.WARNING):
        monkeypatch.setattr(serving_again, "simplify_bytes", wait)
        simplify(_redundant(), process)
        assert not process.has_failed
        monkeypatch.setattr(serving_again, "simplify_bytes", keep_busy)
        assert simplify(_redundant(), process) == ()
        assert process.has_failed
    assert "onnxslim failed (TimeoutError" in caplog.text


def test_a_model_that_keeps_a_processor_busy_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Time of a processor counts, which other programs do not use up."""
    busy = f"from {limits.__module__} import limit; limit(1 << 40, 0)\nwhile True: pass"
    with SimplifyProcess() as process, caplog.at_level(logging.WARNING):
        assert process._process is not None
        process._process.kill()
        process._process = subprocess.Popen(
            [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert simplify(_redundant(), process) == ()
        assert process.has_failed
    assert f"onnxslim failed ({-signal.SIGXCPU})" in caplog.text


def test_prepare_reports_what_it_did() -> None:
    prepared = prepare(_redundant())
    changes = {change.rewrite: change.names for change in prepared.changes}
    assert set(changes) == {"simplify"}
    assert [item.op_type for item in prepared.model.graph.node].count("MatMul") == 1


def test_a_process_that_was_started_before_gives_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    expected, built = _redundant(), _redundant()
    removed = simplify(expected)
    with SimplifyProcess() as process:
        assert simplify(built, process) == removed
    assert built == expected
    assert capfd.readouterr() == ("", "")


def test_a_process_that_is_not_needed_ends() -> None:
    with SimplifyProcess() as process:
        pass
    assert process._process is not None
    assert process._process.returncode is not None


def test_without_a_program_there_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    assert simplify(_redundant()) == ()
    assert "could not be run (FileNotFoundError)" in caplog.text


def test_garbage_is_collected_as_before_even_after_a_failure() -> None:
    before = gc.get_threshold()
    with suppress(ValueError), seldom_collected():
        assert gc.get_threshold()[0] > before[0]
        raise ValueError
    assert gc.get_threshold() == before
