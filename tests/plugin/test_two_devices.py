"""A compilation for the CPU and a GPU, from the file to the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.errors import DeviceError
from sartor.pipeline import compile_model
from sartor.runtime.driver.device import open_device
from sartor.tuning.store.store import Store

pytestmark = pytest.mark.vulkan


def test_a_small_network_stays_on_the_cpu_because_of_what_was_measured(
    model_file: Callable[[str], Path], tmp_path: Path
) -> None:
    try:
        open_device("vulkan")
    except DeviceError as error:
        pytest.skip(str(error))
    target = Target.joined([Target.create("cpu"), Target.create("vulkan")])
    config = CompileConfig(target=target, threads=1, jobs=1, database=tmp_path / "tuning.db")
    plan = compile_model(model_file("softmax"), tmp_path / "net.vmfb", config).plan
    assert plan.target == "cpu:host,vulkan:llvmpipe"
    assert {layer.variant.partition(":")[0] for layer in plan.layers} <= {"cpu"}
    assert not any(adapt.is_transfer for adapt in plan.adapts)
    with Store.open_to_read(config.database) as store:
        backends = [each.backend for each in store.summary()]
    assert {backend.partition(":")[0] for backend in backends} == {"cpu", "vulkan"}
    # Transfers name both devices, in either direction.
    assert sum(" " in backend for backend in backends) == 2
