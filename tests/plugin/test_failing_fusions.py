"""A fused pair that fails on a GPU, or hangs, is two layers again, and tuning goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.costing import candidates, layer_costs
from sartor.pipeline import compile_model
from sartor.runtime.driver.device import is_available
from sartor.tuning.measuring.tuner import TuneSettings
from sartor.tuning.records.measurement import Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.disturbances import Usage
from tests.plugin.planted_fusions import FailingFusion
from tests.tiny_models import Builder
from tests.tuning.measuring.device_faults import DeviceFault, Hang, LaunchFailure

pytestmark = pytest.mark.vulkan

FAULTS: Mapping[str, tuple[DeviceFault, Status]] = {
    "launch": (LaunchFailure(), Status.CRASHED),
    "hang": (Hang(), Status.TIMEOUT),
}
# A worker that hangs is killed after this time, with the other variants and alone.
_PATIENCE = 6.0
_WAS_STARVED = Usage.was_starved


def _separable(folder: Path) -> Path:
    """A depthwise and a 1x1 convolution, which are a fused pair."""
    builder = Builder()
    spatial = builder.op("Conv", "spatial", "x", builder.weight(16, 1, 3, 3), pads=[1, 1, 1, 1], group=16)
    mixed = builder.op("Conv", "mixed", spatial, builder.weight(24, 16, 1, 1))
    path = folder / "separable.onnx"
    onnx.save(builder.model([("x", (1, 16, 12, 12))], [(mixed, (1, 24, 12, 12))]), path)
    return path


@pytest.mark.parametrize("fault", FAULTS)
def test_tuning_goes_on_without_the_pair(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_available("vulkan"):
        pytest.skip("no Vulkan device")
    planted, status = FAULTS[fault]

    def impatient(*given: Any) -> object:
        return replace(TuneSettings(*given), measure_timeout=_PATIENCE)

    monkeypatch.setattr(layer_costs, "TuneSettings", impatient)
    starved: list[bool] = []

    def told(now: Usage, since: Usage) -> bool:
        starved.append(_WAS_STARVED(now, since))
        return starved[-1]

    monkeypatch.setattr(Usage, "was_starved", told)
    monkeypatch.setattr(candidates, "fused_routines", lambda: (Stock(), FailingFusion(planted)))
    config = CompileConfig(target=Target.create("vulkan"), database=tmp_path / "tuning.db")
    artifact = compile_model(_separable(tmp_path), tmp_path / "separable.vmfb", config)
    with Store.open_to_read(config.database) as store:
        found = list(store.measurements())
    # A hang beside which other programs took the processors from the driver's threads tells nothing, and is not kept.
    ends = {each.status for each in found if ".failing" in each.key.variant}
    assert ends == {status} or (fault == "hang" and not ends and any(starved))
    assert {each.status for each in found if ".failing" not in each.key.variant} == {Status.OK}
    # The unsplit model, whose plan has no layers, may be the fastest of so small a network.
    assert not any(".failing" in layer.variant for layer in artifact.plan.layers)
    assert artifact.error is not None
    assert artifact.error < 1e-4
