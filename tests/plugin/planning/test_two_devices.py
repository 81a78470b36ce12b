"""Plans for two devices."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import LayerKind
from tests.importing import ImportedOf
from tests.plugin.planning.two_devices import devices_of, selected, transfers


def test_layers_go_where_they_are_fastest_if_transfers_pay(imported_of: ImportedOf) -> None:
    imported = imported_of("lenet")
    recipe = selected(imported, transfers(1e-5, 1e-5))
    kinds = {layer.name: layer.task.kind for layer in imported.graph.layers}
    assert devices_of(recipe) == {
        name: "vulkan" if kind is LayerKind.CONVOLUTION else "cpu" for name, kind in kinds.items()
    }
    assert recipe.devices == ("cpu", "vulkan")


@pytest.mark.parametrize(("to_gpu", "to_cpu"), [(1e-2, 1e-5), (1e-5, 1e-2)])
def test_all_layers_stay_on_the_cpu_if_a_direction_costs_more(
    imported_of: ImportedOf, to_gpu: float, to_cpu: float
) -> None:
    recipe = selected(imported_of("lenet"), transfers(to_gpu, to_cpu))
    assert recipe.devices == ("cpu",)


def test_nothing_crosses_without_a_measured_transfer(imported_of: ImportedOf) -> None:
    assert selected(imported_of("lenet"), {}).devices == ("cpu",)


def test_transfers_are_conversions_of_the_plan(imported_of: ImportedOf) -> None:
    plan = selected(imported_of("lenet"), transfers(2e-5, 3e-5)).plan
    crossing = [adapt for adapt in plan.adapts if adapt.source.partition(":")[0] != adapt.target.partition(":")[0]]
    seconds = {(each.source.partition(":")[0], round(each.seconds or 0.0, 5)) for each in crossing}
    assert {("cpu", 2e-5), ("vulkan", 3e-5)} <= seconds
    parts = [*(layer.seconds or 0.0 for layer in plan.layers), *(adapt.seconds or 0.0 for adapt in plan.adapts)]
    assert plan.predicted == pytest.approx(sum(parts))
