"""``sartor doctor`` on machines that lack something."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sartor.cli.apps import app
from sartor.cli.commands import doctor as command
from sartor.doctor import processor, quietness, software
from sartor.doctor.drivers import examine_devices
from sartor.doctor.finding import Finding, State
from sartor.runtime.driver.cores import Cores
from sartor.runtime.driver.device import DeviceInfo
from sartor.tuning.records.hardware import Hardware
from sartor.tuning.records.isa_level import level_of
from sartor.tuning.workers.sharing import Load

V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "popcnt", "sse4_1", "sse4_2", "ssse3")
V4 = (*V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
MACHINE = Hardware("x86_64", ("a processor",), V4, 4)


def _named(findings: list[Finding], name: str) -> Finding:
    (found,) = (finding for finding in findings if finding.name == name)
    return found


@pytest.mark.parametrize(
    ("features", "level"), [(V4, "x86-64-v4"), (V3, "x86-64-v3"), (V4[1:], "x86-64-v2"), ((), "x86-64")]
)
def test_a_level_needs_all_that_lower_levels_need(features: tuple[str, ...], level: str) -> None:
    assert level_of(features) == level


def test_a_matrix_unit_that_the_system_withholds_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "tiles_granted", lambda: False)
    with_unit = replace(MACHINE, features=(*V4, "amx_bf16"))
    refused = _named(list(processor.examine_processor(with_unit, tmp_path)), "AMX")
    absent = _named(list(processor.examine_processor(MACHINE, tmp_path)), "AMX")
    assert (refused.state, absent.state) == (State.LIMITED, State.OK)
    assert refused.advice


def test_what_the_processor_means_for_quantised_models_is_said(tmp_path: Path) -> None:
    without = replace(MACHINE, features=tuple(each for each in MACHINE.features if "vnni" not in each))
    for feature, state in (("avx2", State.LIMITED), ("avx_vnni", State.OK), ("avx512_vnni", State.OK)):
        machine = replace(without, features=(*without.features, feature))
        found = _named(list(processor.examine_processor(machine, tmp_path)), "quantised models")
        assert found.state is state
        assert ("saturate" in found.advice) == (state is State.LIMITED)


def test_efficiency_cores_and_a_quota_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "find_cores", lambda _: Cores(24, 16, 8, 2, quota=3.5))
    findings = list(processor.examine_processor(MACHINE, tmp_path))
    cores, quota = _named(findings, "cores"), _named(findings, "quota")
    assert "8 efficiency cores, which get no worker" in cores.found
    assert "8 on one of 2 NUMA nodes" in cores.found
    assert (quota.state, "3.5 processors" in quota.found, "3 workers" in quota.found) == (State.LIMITED, True, True)
    monkeypatch.setattr(processor, "find_cores", lambda _: Cores(24, 16, 16, 1, efficiency=8))
    cores = _named(list(processor.examine_processor(MACHINE, tmp_path)), "cores")
    assert "8 efficiency cores, which get workers for modules that ran faster with 24 than with 16" in cores.found


def test_caches_are_listed_by_level(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate([("1", "Data", "32K"), ("3", "Unified", "16384K")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n", encoding="ascii")
    assert _named(list(processor.examine_processor(MACHINE, tmp_path)), "caches").found == "L1d 32KiB, L3 16384KiB"


def test_a_kind_of_device_that_is_missing_comes_with_advice() -> None:
    findings = list(examine_devices([DeviceInfo("cpu", "a processor"), DeviceInfo("vulkan:0", "a GPU")]))
    assert _named(findings, "vulkan").found == "vulkan:0 (a GPU)"
    cuda = _named(findings, "cuda")
    assert (cuda.state, cuda.found) == (State.MISSING, "")
    assert "driver" in cuda.advice


def test_halves_of_different_versions_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"iree-base-compiler": "3.13.0", "iree-base-runtime": "3.12.0"}
    monkeypatch.setattr(software, "_version", lambda name: versions.get(name, "1"))
    found = _named(list(software.examine_software()), "IREE's two halves")
    assert (found.state, found.advice) == (State.LIMITED, "pip install iree-base-runtime==3.13.0")


def test_a_cache_folder_that_cannot_be_made_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(software, "user_cache_path", lambda _: tmp_path / "absent" / "sartor")
    monkeypatch.setattr("os.access", lambda path, _: path != tmp_path)
    found = _named(list(software.examine_software()), "cache folder")
    assert found.state is State.BROKEN
    assert "cannot be written" in found.found


@pytest.mark.parametrize("name", ["absent", "of two words"])
def test_a_temporary_folder_that_no_command_takes_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    if name != "absent":
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    assert _named(list(software.examine_software()), "temporary folder").state is State.BROKEN


def test_a_file_is_no_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(software, "user_cache_path", lambda _: tmp_path / "file" / "sartor")
    assert _named(list(software.examine_software()), "cache folder").state is State.BROKEN


def test_spread_is_by_how_much_nine_of_ten_runs_are_longer() -> None:
    assert quietness.spread_of([2.0] * 10) == 0.0
    assert quietness.spread_of([1.0] * 5 + [1.5] * 5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("busy", "times", "state"),
    [(0.0, [1.0] * 9, State.OK), (1.0, [1.0] * 9, State.LIMITED), (0.0, [1.0, 1.2, 1.2], State.LIMITED)],
)
def test_a_machine_is_quiet_without_other_programs_and_without_noise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, busy: float, times: list[float], state: State
) -> None:
    loads = iter([Load(0.0, 0.0, 0.0, 2), Load(1.0, 1.0 + busy, 1.0, 2)])
    monkeypatch.setattr(Load, "now", lambda _: next(loads))
    monkeypatch.setattr(quietness, "_times", lambda _: times)
    assert _named(list(quietness.examine_quietness(tmp_path)), "verdict").state is state


def test_clocks_that_change_are_said(tmp_path: Path) -> None:
    (tmp_path / "policy0").mkdir()
    (tmp_path / "policy0" / "scaling_governor").write_text("powersave\n", encoding="ascii")
    found = _named(list(quietness.examine_quietness(tmp_path, 0.01)), "frequency scaling")
    assert (found.found, found.state) == ("powersave", State.LIMITED)


def test_the_command_tells_of_every_topic() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    findings = json.loads(result.stdout)
    assert result.exit_code == 0
    assert {finding["topic"] for finding in findings} == {"processor", "devices", "software", "quietness"}
    assert all(finding["advice"] or finding["state"] == "ok" for finding in findings)


def test_what_is_broken_has_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "examine", lambda: [Finding("software", "onnx", "", State.BROKEN, "pip install onnx")])
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 6
