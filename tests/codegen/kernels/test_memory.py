"""Every kernel stays inside its buffers, writes each number of the result once, and shares no workspace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters
from sartor.codegen.kernels.layers.kernel_layer import KernelRoutine
from sartor.codegen.routines.vector.direct import Direct
from sartor.codegen.routines.vector.fused_winograd import FusedWinograd
from sartor.codegen.routines.vector.product import Product
from sartor.codegen.routines.vector.window import SlidingWindow
from tests.codegen.kernels.tracing import traces
from tests.codegen.routines.harness import layers
from tests.codegen.routines.kernel_cases import EXTREME, extreme_winograd
from tests.codegen.routines.layer_cases import Cases

ROUTINES: Mapping[str, KernelRoutine] = {
    each.name: each
    for each in (
        Direct(),
        Direct("direct_blocked", blocked=True),
        Product(),
        SlidingWindow(),
        SlidingWindow("window_blocked", blocked=True),
        FusedWinograd(),
        FusedWinograd("fused_winograd_blocked", blocked=True),
        FusedWinograd("transforming_winograd", transforms_filters=True),
    )
}
# The layer that each routine is followed on, and the case whose parameters it is given.
LAYERS = {
    "direct": ("few_channels", "images3"),
    "direct_blocked": ("blocks", "uneven_padding"),
    "fused_winograd": ("winograd", "images3"),
    "fused_winograd_blocked": ("winograd_blocks", "uneven_padding"),
    "window": ("apart", "apart_stride3"),
    "window_blocked": ("apart_blocks", "apart_wide_padding"),
    "product": ("rows", "odd"),
}
CHOICES = [(name, parameters) for name, (_, case) in LAYERS.items() for parameters in EXTREME[case][name]]
CHOICES += [("fused_winograd", parameters) for parameters in extreme_winograd(4, 6)]
LAYERS["transforming_winograd"] = LAYERS["fused_winograd"]
CHOICES += [("transforming_winograd", parameters) for parameters in extreme_winograd(4)]
AVX2 = Target.create("cpu", "x86-64-v3")


def _cases() -> Cases:
    cases = Cases()
    cases.convolution("few_channels", (2, 3, 5, 7), 21, residual=True, pads=[2, 0, 1, 3])
    cases.convolution("blocks", (1, 8, 5, 4), 24, (3, 2), pads=[1, 0, 1, 0], stride=2)
    cases.convolution("winograd", (2, 17, 5, 3), 18, residual=True)
    cases.convolution("winograd_blocks", (1, 16, 5, 3), 24)
    cases.convolution("apart", (2, 19, 5, 7), 19, pads=[2, 0, 1, 3], groups=19)
    cases.convolution("apart_blocks", (1, 24, 3, 3), 24, (3, 2), pads=[5] * 4, groups=24)
    cases.product("rows", (7, 5), (5, 21))
    return cases


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    models = {"traced": lambda: _cases().model()}
    return {layer.name: layer.task for layer, _ in layers(models)}


@pytest.mark.parametrize(("name", "parameters"), CHOICES, ids=str)
def test_each_number_is_written_once_by_the_only_user_of_its_workspace(
    name: str, parameters: Parameters, tasks: dict[str, Task]
) -> None:
    layer = ROUTINES[name].layer(tasks[LAYERS[name][0]], parameters, AVX2)
    reads, written = len(layer.kernel.reads), np.zeros(layer.kernel.results[0].elements, np.int64)
    users = np.zeros(layer.workspace.elements if layer.workspace else 0, np.int64)
    for _, trace in traces(layer):
        assert not any(write.any() for write in trace.writes[:reads])
        assert not trace.reads[reads].any()
        written += trace.writes[reads]
        if layer.workspace is not None:
            users += (trace.reads[-1] + trace.writes[-1]) > 0
    assert (written == 1).all()
    assert (users <= 1).all()


def _extreme(name: str) -> Parameters:
    return next(parameters for routine, parameters in CHOICES if routine == name)


@pytest.mark.parametrize("name", LAYERS)
def test_every_input_and_weight_is_read(name: str, tasks: dict[str, Task]) -> None:
    task = tasks[LAYERS[name][0]]
    layer = ROUTINES[name].layer(task, _extreme(name), AVX2)
    total = [np.zeros(read.elements, np.int64) for read in layer.kernel.reads]
    for _, trace in traces(layer):
        for every, each in zip(total, trace.reads, strict=False):
            every += each
    assert all(each.all() for each in total[: len(task.inputs)])
    assert all(each.any() for each in total)
