"""The command line as its user sees it: exit codes, and what goes to which stream."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sartor
from benchmarks import zoo
from sartor.runtime.benchmark import Samples
from tests.plugin.calling import assert_refused, call, parsed, program


@dataclass(frozen=True)
class Compiled:
    """LeNet-5, compiled once for all tests."""

    model: Path
    module: Path
    plan: Path
    database: Path
    summary: dict[str, Any]
    progress: str
    report: Path


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.write("lenet5", tmp_path_factory.mktemp("lenet"))


@pytest.fixture(scope="module")
def compiled(lenet: Path) -> Compiled:
    names = ("lenet.vmfb", "plan.json", "tuning.db", "report.html")
    module, plan, database, report = (lenet.parent / name for name in names)
    options = ["--save-plan", plan, "--tuning-db", database, "--threads", 1, "--plans", 3, "--report", report, "--json"]
    result = call("compile-to-vmfb", lenet, "-o", module, *options)
    return Compiled(lenet, module, plan, database, parsed(result), result.stderr, report)


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
        (["--pin", "conv"], "'conv' is no pin"),
        (["--plans", "0"], "plans"),
        (["--selector", "magic"], "'magic' is no selector, choose among auto"),
        (["--target", "tpu"], "'tpu' is not a target"),
        (["--target", "vulkan", "--cpu", "host"], "--arch"),
        (["--target", "cpu,tpu"], "'tpu' is not a target"),
        (["--target", "vulkan,cuda"], "several devices are cpu,vulkan or cpu,cuda"),
        (["--arch", "sm_80"], "--cpu"),
        (["--cpu", "nonsense"], "no architecture 'nonsense' of the target cpu; name host, generic"),
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


def test_compiling_reports_what_it_did(compiled: Compiled) -> None:
    summary = compiled.summary
    assert summary["size_bytes"] == compiled.module.stat().st_size
    assert summary["relative_error"] < 1e-4
    known = [summary[each] for each in ("stock_ms", "stock_estimate_ms") if summary[each] is not None]
    assert len(known) == 1
    assert summary["measured_ms"] <= known[0]
    assert sum(summary["routines"].values()) == summary["layers"]
    steps = compiled.progress.splitlines()
    assert steps[0] == "importing"
    assert all(one != other for one, other in itertools.pairwise(steps))


def test_a_plan_replays_to_the_same_bytes(compiled: Compiled, tmp_path: Path) -> None:
    again = tmp_path / "again.vmfb"
    summary = parsed(call("sartor", "compile", compiled.model, "-o", again, "--plan", compiled.plan, "--json"))
    assert again.read_bytes() == compiled.module.read_bytes()
    assert summary["routines"] == compiled.summary["routines"]
    assert summary["relative_error"] == compiled.summary["relative_error"]


def test_the_same_database_gives_the_same_bytes_in_another_folder(compiled: Compiled, tmp_path: Path) -> None:
    """Another process with another seed of hashes, whose files are elsewhere, and which may measure nothing."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "temporary").mkdir(parents=True)
    for path in (compiled.model, compiled.database):
        shutil.copy(path, elsewhere)
    command = program("compile-to-vmfb", compiled.model.name, "-o", "again.vmfb", "--tuning-db", compiled.database.name)
    env = {**os.environ, "PYTHONHASHSEED": "1", "TMPDIR": str(elsewhere / "temporary")}
    options = ["--threads", "1", "--plans", "3"]
    result = subprocess.run([*command, *options], cwd=elsewhere, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "compiling (" not in result.stderr, "all is in the database"
    shown = call("sartor", "inspect", "--diff", compiled.module, elsewhere / "again.vmfb", "--json")
    assert parsed(shown)["differing"] == []
    assert (elsewhere / "again.vmfb").read_bytes() == compiled.module.read_bytes()


def test_the_report_has_what_was_measured(compiled: Compiled, tmp_path: Path) -> None:
    (model,) = _reported(compiled.report)["models"]
    assert len(model["layers"]) == compiled.summary["layers"]
    assert model["totals"]["measured"] * 1e3 == pytest.approx(compiled.summary["measured_ms"])
    assert all(each["seconds"] for each in model["layers"])
    tried = [[each for each in case["candidates"] if each["seconds"]] for case in model["cases"]]
    assert all(len(each) > 1 for each in tried)
    assert all(sum(each["chosen"] for each in listed) == 1 for listed in tried)
    assert any(case["rejected"] for case in model["cases"])
    later = tmp_path / "later.html"
    call("sartor", "report", compiled.module, "-o", later, "--plan", compiled.plan, "--tuning-db", compiled.database)
    (again,) = _reported(later)["models"]
    assert again["layers"] == model["layers"]


def _reported(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


def test_a_plan_of_another_model_is_refused(compiled: Compiled, tmp_path: Path) -> None:
    plan = json.loads(compiled.plan.read_text()) | {"model_sha256": "0" * 64}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    output = tmp_path / "out.vmfb"
    result = call("compile-to-vmfb", compiled.model, "-o", output, "--plan", tmp_path / "plan.json")
    assert_refused(result, 2, "another model")
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--threads", 2], "--threads 2 contradicts --plan"),
        (["--cpu", "x86-64-v3"], "another target: cpu:host, not cpu:x86-64-v3"),
        (["--target", "vulkan"], "another target: cpu:host, not vulkan:llvmpipe"),
        (["--precision", "bf16"], "--plan settles what --precision asks for"),
        (["--pin", "*=*"], "--plan settles what --pin asks for"),
        (["--time-budget", 0], "--plan settles what --time-budget asks for"),
        (["--memory-limit", "1MB"], "--plan settles what --memory-limit asks for"),
        (["--calibration-method", "mse"], "--plan settles what --calibration-method asks for"),
    ],
)
def test_options_that_say_otherwise_than_the_plan_are_refused(
    compiled: Compiled, tmp_path: Path, options: list[object], said: str
) -> None:
    output = tmp_path / "out.vmfb"
    result = call("compile-to-vmfb", compiled.model, "-o", output, "--plan", compiled.plan, *options)
    assert_refused(result, 2, said)
    assert "importing" not in result.stderr
    assert not output.exists()


@pytest.mark.parametrize("threads", [0, 1000])
def test_a_plan_for_threads_that_no_machine_starts_is_refused(compiled: Compiled, tmp_path: Path, threads: int) -> None:
    plan = json.loads(compiled.plan.read_text()) | {"threads": threads}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    result = call("compile-to-vmfb", compiled.model, "-o", tmp_path / "out.vmfb", "--plan", tmp_path / "plan.json")
    assert_refused(result, 2, f"threads is {threads}, expected an integer from 1 to 256")


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


def test_run_reads_and_writes_arrays(compiled: Compiled, tmp_path: Path) -> None:
    image = np.random.default_rng(1).standard_normal((1, 1, 32, 32)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    source, folder = f"input={tmp_path / 'image.npy'}", tmp_path / "out"
    (output,) = parsed(
        call("sartor", "run", compiled.module, "--input", source, "--output-dir", folder, "--threads", 1, "--json")
    )["outputs"]
    values = np.load(folder / "logits.npy")
    assert (output["name"], output["shape"]) == ("logits", [1, 10])
    assert output["max"] == pytest.approx(float(values.max()))


def test_run_refuses_wrong_inputs(compiled: Compiled, tmp_path: Path) -> None:
    np.save(tmp_path / "small.npy", np.zeros((1, 1), np.float32))
    for option, said in (("nothing=zeros", "nothing"), (f"input={tmp_path / 'small.npy'}", "'input' expects")):
        assert_refused(call("sartor", "run", compiled.module, "--input", option), 2, said)


def test_bench_times_peers_in_the_same_rounds(compiled: Compiled) -> None:
    options = ["--vs", compiled.model, "--rounds", 3, "--threads", 1, "--dispatches", "--json"]
    result = parsed(call("sartor", "bench", compiled.module, *options))
    assert [run["name"] for run in result["runs"]] == ["sartor", "onnxruntime"]
    assert {len(run["samples_ms"]) for run in result["runs"]} == {3}
    ratio = result["runs"][1]["sartor_is_faster_by"]
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert len(result["dispatches"]["dispatches"]) >= 3


def test_bench_times_first_inferences_and_inspect_draws_them(compiled: Compiled, tmp_path: Path) -> None:
    options = ["--vs", compiled.model, "--peers", "onnxruntime,iree", "--rounds", 1, "--threads", 1]
    result = call("sartor", "bench", "--cold", compiled.module, *options, "--json")
    found = parsed(result)["cold"]
    phases = parsed(result)["phases"]
    assert phases["layers"][-1]["layer"] == "the rest"
    # Of one process, the sums are exact; the module is too small to be read ahead.
    assert sum(each["first_ms"] for each in phases["layers"]) == pytest.approx(phases["first_ms"])
    assert all(each["read_ms"] == {} for each in phases["layers"])
    names = {"sartor", "iree", "onnxruntime", "onnxruntime, .ort"}
    assert {(each["runtime"], each["files"]) for each in found} == {
        (name, state) for name in names for state in ("in memory", "dropped")
    }
    own = next(each for each in found if each["runtime"] == "sartor")
    assert 0 < own["load_and_first_ms"] < own["whole_ms"]
    assert len(own["typical"]["runs"]) == len(own["samples"][0]["runs"]) >= 3
    times, picture = tmp_path / "cold.json", tmp_path / "cold.svg"
    times.write_text(result.stdout, encoding="utf-8")
    assert call("sartor", "inspect", times, "--cold", picture).returncode == 0
    drawn = picture.read_text(encoding="utf-8")
    assert "onnxruntime, .ort, dropped" in drawn
    assert all(f">{each['layer']}: " in drawn for each in phases["layers"] if each["first_ms"])
    assert_refused(call("sartor", "inspect", times, "--cold", times), 2, "would overwrite the times to draw")
    tables = call("sartor", "bench", "--cold", compiled.module, "--rounds", 1, "--threads", 1)
    assert "files dropped" in tables.stdout
    assert "phases by layer" in tables.stdout
    assert_refused(call("sartor", "bench", "--cold", "--dispatches", compiled.module), 2, "leave it or --cold out")


def test_bench_measures_the_machine_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sartor.tuning.cost_tables.roofline._MOST_BYTES", 16 << 20)
    arguments = ["bench", "--peak", "--threads", 1, "--tuning-db", tmp_path / "tuning.db"]
    first = call("sartor", *arguments, "--json")
    (row,) = parsed(first)["peak"]
    assert row["threads"] == 1
    assert row["gflops"] > 1
    assert row["read_gb_per_s"] > 0.5
    assert "measuring" in first.stderr
    again = call("sartor", *arguments)
    assert again.stderr == ""
    assert f"{row['gflops']:.1f}" in again.stdout


def test_compare_says_whether_results_agree(compiled: Compiled, tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", input=np.ones((1, 1, 32, 32), np.float32))
    options = ["--vs", compiled.model, "--inputs", tmp_path / "inputs.npz"]
    (output,) = parsed(call("sartor", "compare", compiled.module, *options, "--json"))["outputs"]
    assert output["within"]
    too_strict = call("sartor", "compare", compiled.module, *options, "--max-error", "1e-15")
    assert too_strict.returncode == 1
    assert "error: output 'logits' has the relative error" in too_strict.stderr


def test_plans_that_ran_beside_the_shipped_one_are_in_summary_and_plan(compiled: Compiled) -> None:
    # How many ran depends on how well this machine can tell them apart, and on what times in the network select.
    listed = compiled.summary["compared"]
    assert all(each["predicted_ms"] and each["changes"] for each in listed)
    assert len({json.dumps(each["changes"], sort_keys=True) for each in listed}) == len(listed)
    saved = parsed(call("sartor", "inspect", compiled.plan, "--json"))["compared"]
    assert [each["changes"] for each in saved] == [each["changes"] for each in listed]


def test_inspect_shows_the_plans_that_ran_beside_the_saved_one(compiled: Compiled, tmp_path: Path) -> None:
    plan = json.loads(compiled.plan.read_text(encoding="utf-8"))
    plan["compared"] = [{"predicted": 0.0015, "measured": 0.0123, "changes": {plan["layers"][0]["layer"]: "another"}}]
    edited = tmp_path / "plan.json"
    edited.write_text(json.dumps(plan), encoding="utf-8")
    shown = call("sartor", "inspect", edited).stdout
    assert "other plans that ran" in shown
    assert "1.500" in shown
    assert "12.300" in shown
    assert "another" in shown
    assert call("sartor", "inspect", edited, "--verify").returncode == 2


def test_inspect_shows_every_layer(compiled: Compiled) -> None:
    manifest = parsed(call("sartor", "inspect", compiled.module, "--json"))
    layers = [layer["layer"] for layer in manifest["plan"]["layers"]]
    shown = call("sartor", "inspect", compiled.module).stdout
    assert len(layers) == compiled.summary["layers"]
    assert all(layer in shown for layer in layers)
    peak = manifest["plan"]["peak"]
    assert compiled.summary["peak_gflops"] == pytest.approx(peak / 1e9)
    assert f"{peak / 1e9:.1f}" in shown
    rates = [layer["operations"] / layer["seconds"] for layer in manifest["plan"]["layers"] if layer["operations"]]
    assert len(rates) >= 5, "two convolutions and three products"
    assert all(f"{rate / 1e9:.1f}" in shown and f"{rate / peak:.0%}" in shown for rate in rates)


def test_routines_say_why_they_do_not_apply(compiled: Compiled) -> None:
    layers = parsed(call("sartor", "routines", compiled.model, "--json"))["layers"]
    assert all("stock" in layer["candidates"][0] for layer in layers)
    assert any(rejection["reason"] for layer in layers for rejection in layer["rejected"])
    assert all(layer["has_kernel"] for layer in layers if layer["kind"] in ("convolution", "contraction", "pooling"))


def test_ctrl_c_ends_a_compilation_with_one_line(lenet: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.vmfb"
    arguments = program("compile-to-vmfb", lenet, "-o", output, "--tuning-db", tmp_path / "t.db")
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "importing\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "interrupted; what was measured is kept"
    assert "Traceback" not in rest
    assert not output.exists()


def test_ctrl_c_while_modules_are_loaded_is_no_traceback() -> None:
    code = (
        "import os, signal, sys; from sartor.cli.main import main; "
        # The finder is asked for the first module that is not there yet: in the midst of loading.
        "find = lambda *_: os.kill(os.getpid(), signal.SIGINT); "
        "sys.meta_path.insert(0, type('Finder', (), {'find_spec': find})); main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_the_interpreter_ends_changes_nothing(number: signal.Signals) -> None:
    """What was registered before is run after what the command line registers."""
    code = (
        f"import atexit, os, sys; from sartor.cli.main import main; atexit.register(os.kill, os.getpid(), {number}); "
        "sys.argv[1:] = ['--version']; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("sartor")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        result = subprocess.run(program("sartor", "routines", "--json"), stdout=closed, stderr=subprocess.PIPE)
    assert result.returncode == 141
    assert not result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_for_which_there_is_no_room_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(program("sartor", "routines", "--json"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (7, "error: No space left on device\n")


def test_importing_sartor_loads_nothing_heavy() -> None:
    code = "import sys, sartor; print(sorted({'numpy', 'onnx', 'iree', 'typer'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_onnx_runtime_reports_nothing(tmp_path: Path) -> None:
    """What it would report by has a file in the temporary folder."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    code = "import sartor.runtime.reference"
    subprocess.run([sys.executable, "-c", code], env={**environment, "TMPDIR": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []


def test_the_public_names_are_there() -> None:
    assert sartor.CompileConfig(threads=1).threads == 1
    assert all(getattr(sartor, name) is not None for name in sartor.__all__)
    with pytest.raises(AttributeError, match="absent"):
        _ = sartor.absent


def test_an_interrupt_while_something_is_printed_ends_the_process() -> None:
    """Python's streams cannot be entered twice."""
    code = (
        "import io, os, signal, sys; from sartor.cli.output.signals import ending_at_once\n"
        "class Raw(io.RawIOBase):\n"
        " def writable(self): return True\n"
        " def write(self, data): os.kill(os.getpid(), signal.SIGTERM); return len(data)\n"
        "sys.stderr = io.TextIOWrapper(io.BufferedWriter(Raw()))\n"
        "with ending_at_once(): print('x', file=sys.stderr, flush=True)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (143, "error: interrupted\n")


@pytest.mark.parametrize("name", ["sartor", "compile-to-vmfb"])
def test_both_programs_say_their_version(name: str) -> None:
    result = call(name, "--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"sartor {sartor.__version__} (IREE ")


def test_without_arguments_there_is_the_help() -> None:
    result = call("sartor")
    assert result.returncode == 2
    assert "compile" in result.stdout + result.stderr
    assert "error:" not in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "/dev/null"], "'/dev/null' is a device"),
        (["-o", "o.vmfb", "--save-plan", "/dev/null"], "'/dev/null' is a device"),
        (["-o", "o.vmfb", "--external-weights", "pipe"], "'pipe' is a pipe"),
        (["-o", "t.db", "--tuning-db", "t.db"], "-o 't.db' would overwrite the tuning database"),
        (["-o", "t.db-wal", "--tuning-db", "t.db"], "would overwrite the tuning database"),
        (["-o", "o.vmfb", "--save-plan", "t.db", "--tuning-db", "t.db"], "--save-plan 't.db' would overwrite"),
        (["-o", "o.vmfb", "--external-weights", "o.vmfb"], "would overwrite what -o writes"),
        (["-o", "samples/a.npy", "--calibration", "samples"], "would overwrite samples for calibration"),
        (["-o", "samples/a.npy", "--calibration", "samples/a.npy"], "would overwrite samples for calibration"),
        (["-o", "link.py", "--error-measure", "measure.py:f"], "would overwrite the file of the error measure"),
        (["-o", "hard.onnx"], "would overwrite the model"),
        (["-o", "plan.json", "--plan", "plan.json"], "would overwrite --plan"),
    ],
)
def test_nothing_that_is_used_is_overwritten(compiled: Compiled, tmp_path: Path, options: list[str], said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
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


def test_the_measure_of_the_speed_reads_well_both_ways(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"sartor": (2.0, 2.0), "onnxruntime": (0.5, 0.5), "openvino": (3.0, 3.0)}
    samples = {name: Samples(seconds) for name, seconds in times.items()}
    monkeypatch.setattr("sartor.cli.commands.bench.time_in_worker", lambda _: samples)
    result = call("sartor", "bench", compiled.module, "--vs", compiled.model, "--peers", "onnxruntime,openvino")
    assert "4.00 times as slow (4.00 to 4.00)" in result.stdout
    assert "1.50 times as fast (1.50 to 1.50)" in result.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_traceback(compiled: Compiled, tmp_path: Path, closed: str) -> None:
    """Nor does a file that is opened get what was meant for them."""
    command = program("sartor", "run", compiled.module, "--threads", "1", "--output-dir", tmp_path)
    result = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (b"logits" in result.stdout) == (">&-" not in closed.replace("2>&-", ""))
    assert np.load(tmp_path / "logits.npy").shape == (1, 10)


def test_a_full_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(program("sartor", "--version"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (7, "error: No space left on device\n")


def test_who_does_not_listen_to_progress_gets_the_module(compiled: Compiled, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    output = tmp_path / "out.vmfb"
    command = program("compile-to-vmfb", compiled.model, "-o", output, "--plan", compiled.plan)
    with os.fdopen(writing, "w") as closed:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=closed, text=True)
    assert result.returncode == 0
    assert output.read_bytes() == compiled.module.read_bytes()
    assert "out.vmfb" in "".join(result.stdout.split()), "a long path is broken at the end of a line"


@pytest.mark.parametrize(
    ("make", "said"), [(lambda path: None, "make it, or set TMPDIR"), (lambda path: path.touch(), "Not a directory")]
)
def test_a_temporary_folder_that_cannot_be_used_is_named(
    lenet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], said: str
) -> None:
    folder, output = tmp_path / "absent", tmp_path / "out.vmfb"
    make(folder)
    monkeypatch.setenv("TMPDIR", str(folder))
    result = call("compile-to-vmfb", lenet, "-o", output, "--tuning-db", tmp_path / "t.db")
    assert_refused(result, 2, f"the folder for temporary files '{folder}' cannot be used", said)
    assert not output.exists()


def test_a_current_folder_that_was_removed_is_named(lenet: Path, tmp_path: Path) -> None:
    gone, output = tmp_path / "gone", tmp_path / "out.vmfb"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = program("compile-to-vmfb", lenet, "-o", output, "--tuning-db", tmp_path / "t.db")
    result = subprocess.run(["sh", "-c", script, "sh", str(gone), *command], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == (
        f"error: the current folder '{gone}' is no longer there (No such file or directory); change to one that is\n"
    )
    assert not output.exists()


def test_inspect_verifies_the_whole_file(compiled: Compiled, tmp_path: Path) -> None:
    assert "as they were written" in call("sartor", "inspect", compiled.module, "--verify").stdout
    content, damaged = bytearray(compiled.module.read_bytes()), tmp_path / "damaged.vmfb"
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    for command in (["inspect", damaged, "--verify"], ["run", damaged, "--threads", 1]):
        assert_refused(call("sartor", *command), 2, "damaged.vmfb' is damaged, the checksum of its part")


_RELU = """
util.func private @inner(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %zero = arith.constant dense<0.0> : tensor<2x3xf32>
  %y = arith.maximumf %x, %zero : tensor<2x3xf32>
  util.return %y : tensor<2x3xf32>
}
"""
# As IREE makes it of a function, but without a record of what it takes.
_BARE_ENTRY = """
util.func public @main(%view: !hal.buffer_view) -> !hal.buffer_view attributes {iree.abi.stub} {
  %x = hal.tensor.import %view : !hal.buffer_view -> tensor<2x3xf32>
  %y = util.call @inner(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %out = hal.tensor.export %y : tensor<2x3xf32> -> !hal.buffer_view
  util.return %out : !hal.buffer_view
}
"""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What IREE compiles alone: one function that says what it takes, and one that does not."""
    folder = tmp_path_factory.mktemp("stock")
    relu = helper.make_node("Relu", ["x"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([relu], "graph", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    (folder / "told.mlir").write_text(_RELU.replace("util.", "func.").replace("private @inner", "@main"))
    (folder / "silent.mlir").write_text(_RELU + _BARE_ENTRY)
    tool = Path(sys.executable).parent / "iree-compile"
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    for name in ("told", "silent"):
        files = [str(folder / f"{name}.mlir"), "-o", str(folder / f"{name}.vmfb")]
        subprocess.run([str(tool), *files, *flags], check=True, capture_output=True)
    return {name: folder / name for name in ("told.vmfb", "silent.vmfb", "m.onnx")}


def test_what_iree_compiled_runs_with_its_signature(stock: dict[str, Path]) -> None:
    silent, model = stock["silent.vmfb"], stock["m.onnx"]
    signature = "func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>)"
    asked: list[list[object]] = [["run", silent], ["bench", silent], ["compare", silent, "--vs", model]]
    for command in asked:
        assert_refused(call("sartor", *command), 2, "pass the signature, with --signature 'func @main(%x: tensor<")
        result = call("sartor", *command, "--signature", signature, "--threads", 1, "--json")
        assert result.returncode == 0, result.stderr
    (output,) = parsed(call("sartor", "run", silent, "--signature", signature, "--json"))["outputs"]
    assert (output["name"], output["shape"]) == ("y", [2, 3])
    assert output["min"] >= 0


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("nonsense(", "cannot be read, expected the form func @main"),
        ("func @main(%x: tensor<2x3xf32>, nonsense) -> ()", "cannot be read"),
        ("func @main(%x: i32) -> (%y: tensor<2xf32>)", "a session passes dense tensors only"),
        ("func @main(%x: tensor<2xf32>, %x: tensor<2xf32>) -> (%y: tensor<2xf32>)", "two tensors the same name"),
        ("func @other(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>)", "exports no function 'other'"),
        ("other", "exports no function 'other'"),
        ("main", "does not record"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(stock: dict[str, Path], signature: str, said: str) -> None:
    assert_refused(call("sartor", "run", stock["silent.vmfb"], "--signature", signature), 2, said)


def test_a_signature_in_vain_is_refused(compiled: Compiled, stock: dict[str, Path]) -> None:
    assert_refused(call("sartor", "run", compiled.module, "--signature", "main"), 2, "leave --signature out")
    assert parsed(call("sartor", "run", stock["told.vmfb"], "--signature", "main", "--json"))["outputs"]


def test_external_weights_come_with_the_command_that_runs_them(compiled: Compiled, tmp_path: Path) -> None:
    output, weights = tmp_path / "out.vmfb", tmp_path / "out.irpa"
    options = ["-o", output, "--external-weights", weights, "--plan", compiled.plan, "--json"]
    command = parsed(call("sartor", "compile", compiled.model, *options))["run"]
    np.save(tmp_path / "input.npy", np.zeros((1, 1, 32, 32), np.float32))
    tool = Path(sys.executable).parent / command[0]
    result = subprocess.run([tool, *command[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "1x10xf32" in result.stdout
    assert "as they were written" in call("sartor", "inspect", output, "--verify").stdout
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert_refused(call("sartor", "inspect", output, "--verify"), 2, str(weights), "copy or compile both again")
    weights.unlink()
    assert_refused(call("sartor", "inspect", output, "--verify"), 2, str(weights), "No such file")
