"""Plans that are saved, replayed, shown and refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.plugin.calling import assert_refused, call, parsed, program
from tests.plugin.cli.compiled import Compiled


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
        (["--fast"], "--plan settles what --fast asks for"),
        (["--tune-until", "1%"], "--plan settles what --tune-until asks for"),
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


@pytest.mark.parametrize(
    ("option", "value", "code", "message"),
    [
        ("--device", "vulkan", 6, "has no plan for the device 'vulkan', its only one is for cpu"),
        ("--device", "gpu", 2, "'gpu' is not a device"),
        ("--cpu", "none", 2, "has no plan for the level none, its only one is for host"),
    ],
)
def test_a_plan_that_a_file_does_not_have_is_refused(
    compiled: Compiled, tmp_path: Path, option: str, value: str, code: int, message: str
) -> None:
    assert_refused(call("sartor", "inspect", compiled.module, option, value), code, message)
    page = tmp_path / "page.html"
    assert_refused(call("sartor", "report", compiled.module, "-o", page, option, value), code, message)
    assert not page.exists()
