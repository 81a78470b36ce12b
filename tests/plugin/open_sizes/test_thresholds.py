"""A file whose layers change their code with the size, tuned or saved, is checked on both sides of each change."""

from __future__ import annotations

from pathlib import Path

import pytest

from sartor.codegen.ir.sizes.dims import Extent, Symbol
from sartor.codegen.ir.thresholds import Threshold, described
from sartor.config import CompileConfig
from sartor.open_sizes import compilation, plans
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.profiling.network_runner import NetRunner
from sartor.settings.size_range import SizeRange
from sartor.tuning.networks.profile_job import NetRun
from tests.open_models import Dims, named, saved
from tests.tiny_models import Builder

WIDTH, MOST = 24, 200
# On sides that are checked for no other reason.
CHANGE = Threshold("y", Extent.of_symbol(Symbol("rows", 1, MOST)), {"rows": 55}, {"rows": 56})


def rows_of(runner: NetRunner) -> int:
    return int(runner._builder.imported.graph.inputs[0].type.shape[0])


def test_plans_are_checked_on_both_sides_of_a_change_tuned_and_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, real = list[int](), NetRunner.verify

    def noted(self: NetRunner, build: object) -> NetRun:
        checked.append(rows_of(self))
        return real(self, build)  # type: ignore[arg-type]

    monkeypatch.setattr(NetRunner, "verify", noted)
    for module in (compilation, plans):
        monkeypatch.setattr(module, "thresholds_of", lambda *_: [CHANGE])
    build = Builder()
    build.op("MatMul", "y", "x", build.weight(WIDTH, WIDTH))
    shapes: Dims = {name: ["rows", WIDTH] for name in "xy"}
    network = named(build.model([("x", [1, WIDTH])], [("y", [1, WIDTH])]), shapes)
    model = saved(network, tmp_path / "net.onnx")
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "t.db", plans=1, time_budget=0.0)
    opened, path = OpenConfig(config, {"x": (SizeRange(1, MOST), WIDTH)}), tmp_path / "net.vmfb"
    made = compile_open(model, path, opened)
    again = compile_open(model, path, opened, plan=made.plan)
    for artifact in (made, again):
        assert {*described([CHANGE])} <= {*artifact.sizes}
    assert [checked.count(size) for size in (55, 56)] == [2, 2]
