"""The command line as its user sees it: what it reports, and to which stream."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sartor
from sartor.comparison.bench_job import BenchResults
from sartor.runtime.benchmark import Samples
from tests.plugin.calling import assert_refused, call, parsed
from tests.plugin.cli.compiled import Compiled


def test_compiling_reports_what_it_did(compiled: Compiled) -> None:
    summary = compiled.summary
    assert summary["size_bytes"] == compiled.module.stat().st_size
    assert summary["relative_error"] < 1e-4
    known = [summary[name] for name in ("stock_ms", "stock_estimate_ms") if summary[name] is not None]
    assert len(known) == 1
    assert summary["measured_ms"] <= known[0]
    assert sum(summary["routines"].values()) == summary["layers"]
    steps = compiled.progress.splitlines()
    assert steps[0] == "importing"
    assert all(one != other for one, other in itertools.pairwise(steps))


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


def test_the_measure_of_the_speed_reads_well_both_ways(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"sartor": (2.0, 2.0), "onnxruntime": (0.5, 0.5), "openvino": (3.0, 3.0)}
    samples = {name: Samples(seconds) for name, seconds in times.items()}
    results = BenchResults(samples, {"sartor": 1e-7, "onnxruntime": 0.25})
    monkeypatch.setattr("sartor.cli.commands.bench.time_in_worker", lambda _: results)
    result = call("sartor", "bench", compiled.module, "--vs", compiled.model, "--peers", "onnxruntime,openvino")
    assert "4.00 times as slow (4.00 to 4.00)" in result.stdout
    assert "1.50 times as fast (1.50 to 1.50)" in result.stdout
    assert "1e-07" in result.stdout
    assert "0.25" in result.stdout


def test_inspect_verifies_the_whole_file(compiled: Compiled, tmp_path: Path) -> None:
    assert "as they were written" in call("sartor", "inspect", compiled.module, "--verify").stdout
    content, damaged = bytearray(compiled.module.read_bytes()), tmp_path / "damaged.vmfb"
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    for command in (["inspect", damaged, "--verify"], ["run", damaged, "--threads", 1]):
        assert_refused(call("sartor", *command), 2, "damaged.vmfb' is damaged, the checksum of its part")


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
