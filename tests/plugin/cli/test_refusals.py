"""What commands refuse, by which exit code, and that nothing is overwritten or written then."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.plugin.calling import assert_refused, call
from tests.plugin.cli.compiled import Compiled


@pytest.fixture
def broken(tmp_path: Path, lenet: Path) -> dict[str, Path]:
    """Files that a command must refuse."""
    contents = {
        "text.onnx": b"this is no model\n",
        "truncated.onnx": lenet.read_bytes()[:20000],
        "unknown_op.onnx": _unknown_op(),
        "foreign.db": b"SQLite format 3\0" + bytes(200),
        "text.json": b"{",
        "other.json": b"{}",
        "text.vmfb": b"this is no module\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in contents}


def _unknown_op() -> bytes:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="the_node", domain="com.example")
    graph = helper.make_graph([node], "graph", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("text.onnx", 3, "not an ONNX model"), ("truncated.onnx", 3, "truncated"), ("unknown_op.onnx", 3, "the_node")],
)
def test_a_bad_model_is_refused_and_nothing_is_written(
    broken: dict[str, Path], tmp_path: Path, name: str, code: int, said: str
) -> None:
    output = tmp_path / "out" / "model.vmfb"
    output.parent.mkdir()
    result = call("compile-to-vmfb", broken[name], "-o", output, "--tuning-db", tmp_path / "t.db")
    assert_refused(result, code, said)
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shape", "input"], "--shape 'input'"),
        (["--shape", "input=1,x"], "'input=1,x'"),
        (["--shape", "input=1,-1"], "'input=1,-1'"),
        (["--shape", "input=0,1,32,32"], "fixes it to 1"),
        (["--shape", "input=1", "--shape", "input=1"], "twice"),
        (["--pin", "conv"], "--pin: 'conv' is no pin"),
        (["--state", "h"], "--state: the state 'h' cannot be read"),
        (["--plans", "0"], "plans"),
        (["--fast", "--plans", "3"], "--plans is about what is measured"),
        (["--selector", "magic"], "--selector is 'magic', expected one of auto"),
        (["--target", "tpu"], "'tpu' is not a target"),
        (["--target", "vulkan", "--cpu", "host"], "--arch"),
        (["--target", "cpu,tpu"], "'tpu' is not a target"),
        (["--target", "vulkan,cuda"], "several devices are cpu,vulkan or cpu,cuda"),
        (["--arch", "sm_80"], "--cpu"),
        (["--cpu", "nonsense"], "no architecture 'nonsense' of the target cpu; name host, generic"),
        (["--cpu", "x86-64-v3,nonsense"], "no architecture 'nonsense' of the target cpu; name host, generic"),
        (["--cpu", "nonsense", "--objective", "cold+latency"], "no architecture 'nonsense' of the target cpu"),
        (["--cpu", "aarch64:nonsense"], "for example aarch64:neoverse-n1"),
        (["--target", "vulkan", "--arch", "nonsense"], "name llvmpipe"),
        (["--target", "cuda", "--arch", "sm_999"], "name sm_80"),
        (["--threads", "1000"], "1000"),
        (["--max-error", "nan"], "--max-error"),
        (["--max-error", "inf"], "--max-error"),
        (["--save-plan="], "--save-plan has an empty value"),
        (["--plan", "p.json", "--pin", "a=b"], "--pin"),
        (["--plan", "absent.json"], "absent.json"),
        (["--external-weights", "elsewhere/w.irpa"], "elsewhere"),
        (["--save-plan", "out.vmfb"], "overwrite"),
    ],
)
def test_a_bad_option_is_a_usage_error(lenet: Path, tmp_path: Path, options: list[str], said: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    result = call("compile-to-vmfb", lenet, "-o", "out.vmfb", *options, folder=tmp_path)
    assert_refused(result, 2, said)
    assert not (tmp_path / "out.vmfb").exists()


@pytest.mark.parametrize("options", [["--threads", "0"], ["--objective", "beauty"], ["--frobnicate"], ["--threads"]])
def test_what_typer_refuses_has_the_same_exit_code(lenet: Path, options: list[str]) -> None:
    result = call("compile-to-vmfb", lenet, "-o", "out.vmfb", *options)
    assert_refused(result, 2, options[0])
    assert len(result.stderr.splitlines()) == 1


def test_files_that_do_not_fit_are_usage_errors(broken: dict[str, Path], lenet: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.vmfb"
    foreign = broken["foreign.db"].read_bytes()
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "absent.onnx", "-o", output], "absent.onnx"),
        ([lenet, "-o", tmp_path / "absent" / "out.vmfb"], "cannot be written"),
        ([lenet, "-o", tmp_path], "directory"),
        ([lenet, "-o", lenet], "overwrite the model"),
        ([lenet, "-o", output, "--tuning-db", broken["foreign.db"]], "not a Sartor tuning database"),
        ([lenet, "-o", output, "--tuning-db", ""], "after '--tuning-db'; give a value"),
        ([lenet, "-o", output, "--tuning-db", "/"], "the tuning database / is a folder"),
        ([lenet, "-o", output, "--plan", broken["text.json"]], "not JSON"),
        ([lenet, "-o", output, "--plan", broken["other.json"]], "no plan"),
    ]
    for arguments, said in cases:
        assert_refused(call("compile-to-vmfb", *arguments), 2, said)
    assert not output.exists()
    assert broken["foreign.db"].read_bytes() == foreign


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "absent.vmfb"], "absent.vmfb"),
        (["run", ""], "argument 2 of the command line is empty after 'run'"),
        (["inspect", ""], "argument 2 of the command line is empty"),
        (["worker", ""], "argument 2 of the command line is empty"),
        (["inspect", "text.vmfb", "text.onnx"], "'text.onnx' is one file too many"),
        (["inspect", "text.vmfb"], "text.vmfb"),
        (["bench", "text.vmfb", "--peers", "openvino"], "--vs"),
        (["bench", "text.vmfb", "--vs", "text.onnx", "--peers", "tensorrt"], "'tensorrt' is no peer"),
        (["bench"], "--peak"),
        (["bench", "--peak", "text.vmfb"], "leave MODEL.vmfb out"),
        (["bench", "--peak", "--rounds", "3"], "leave --rounds out"),
        (["bench", "--peak", "--tuning-db", "foreign.db"], "not a Sartor tuning database"),
        (["bench", "text.vmfb", "--tuning-db", "t.db"], "--tuning-db is for --peak"),
        (["compare", "text.vmfb", "--vs", "text.onnx"], "text.vmfb"),
        (["routines", "absent.onnx"], "absent.onnx"),
        (["routines", "text.onnx", "--cpu", "nonsense"], "'nonsense'"),
    ],
)
def test_other_commands_refuse_too(broken: dict[str, Path], tmp_path: Path, arguments: list[str], said: str) -> None:
    assert_refused(call("sartor", *arguments, folder=tmp_path), 2, said)


def test_run_refuses_wrong_inputs(compiled: Compiled, tmp_path: Path) -> None:
    np.save(tmp_path / "small.npy", np.zeros((1, 1), np.float32))
    for option, said in (("nothing=zeros", "nothing"), (f"input={tmp_path / 'small.npy'}", "'input' expects")):
        assert_refused(call("sartor", "run", compiled.module, "--input", option), 2, said)


def test_an_infeasible_pin_has_its_own_exit_code(compiled: Compiled, tmp_path: Path) -> None:
    output = tmp_path / "out.vmfb"
    options = ["--pin", "*=*/conv2d.direct{*", "--tuning-db", compiled.database, "--threads", 1]
    assert_refused(call("compile-to-vmfb", compiled.model, "-o", output, *options), 5, "pins")
    assert not output.exists()


@pytest.mark.parametrize("glob", ["nothing", "absent*", "gpu:*", "cpu:f32/conv2d.absent{*", "*/dense.*"])
def test_a_pin_that_can_fit_nothing_is_refused_before_any_work(lenet: Path, tmp_path: Path, glob: str) -> None:
    result = call("compile-to-vmfb", lenet, "-o", tmp_path / "out.vmfb", "--pin", f"conv1={glob}")
    assert_refused(result, 2, f"--pin 'conv1={glob}' fits no routine")
    assert len(result.stderr.splitlines()) == 1, "nothing was imported"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "/dev/null"], "'/dev/null' is a device"),
        (["-o", "o.vmfb", "--save-plan", "/dev/null"], "'/dev/null' is a device"),
        (["-o", "o.vmfb", "--external-weights", "pipe.irpa"], "'pipe.irpa' is a pipe"),
        (["-o", "t.db", "--tuning-db", "t.db"], "-o 't.db' would overwrite the tuning database"),
        (["-o", "t.db-wal", "--tuning-db", "t.db"], "would overwrite the tuning database"),
        (["-o", "o.vmfb", "--save-plan", "t.db", "--tuning-db", "t.db"], "--save-plan 't.db' would overwrite"),
        (["-o", "o.irpa", "--external-weights", "o.irpa"], "would overwrite what -o writes"),
        (["-o", "o.vmfb", "--external-weights", "o.bin"], "expected a file whose name ends in .irpa"),
        (["-o", "samples/a.npy", "--calibration", "samples"], "would overwrite samples for calibration"),
        (["-o", "samples/a.npy", "--calibration", "samples/a.npy"], "would overwrite samples for calibration"),
        (["-o", "link.py", "--error-measure", "measure.py:f"], "would overwrite the file of the error measure"),
        (["-o", "hard.onnx"], "would overwrite the model"),
        (["-o", "plan.json", "--plan", "plan.json"], "would overwrite --plan"),
    ],
)
def test_nothing_that_is_used_is_overwritten(compiled: Compiled, tmp_path: Path, options: list[str], said: str) -> None:
    os.mkfifo(tmp_path / "pipe.irpa")
    (tmp_path / "samples").mkdir()
    np.save(tmp_path / "samples" / "a.npy", np.zeros((2, 1, 1, 32, 32), np.float32))
    (tmp_path / "measure.py").write_text("def f(outputs, expected):\n    return 0.0\n")
    (tmp_path / "link.py").symlink_to("measure.py")
    (tmp_path / "model.onnx").write_bytes(compiled.model.read_bytes())
    (tmp_path / "hard.onnx").hardlink_to(tmp_path / "model.onnx")
    (tmp_path / "plan.json").write_bytes(compiled.plan.read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = call("compile-to-vmfb", "model.onnx", *options, folder=tmp_path)
    assert_refused(result, 2, said)
    assert len(result.stderr.splitlines()) == 1, "nothing was imported"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_run_overwrites_nothing_that_it_reads(compiled: Compiled, tmp_path: Path) -> None:
    np.save(tmp_path / "logits.npy", np.zeros((1, 1, 32, 32), np.float32))
    before = (tmp_path / "logits.npy").read_bytes()
    options = ["--input", f"input={tmp_path / 'logits.npy'}", "--output-dir", tmp_path, "--threads", 1]
    assert_refused(call("sartor", "run", compiled.module, *options), 2, "would overwrite the input 'input'")
    assert (tmp_path / "logits.npy").read_bytes() == before
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "logits.npy")
    result = call("sartor", "run", compiled.module, "--output-dir", tmp_path / "other", "--threads", 1)
    assert_refused(result, 2, "is a pipe")
