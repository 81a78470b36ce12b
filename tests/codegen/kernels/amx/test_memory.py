"""Kernels with AMX stay inside their buffers, write each result once, and share no workspace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Parameters
from sartor.codegen.kernels.amx.contraction import TileContraction
from sartor.codegen.kernels.layers.kernel_layer import KernelRoutine
from sartor.codegen.routines.amx.tile_convolution import TileConvolution
from sartor.codegen.routines.amx.tile_product import TileProduct
from tests.codegen.kernels.tracing import traces
from tests.codegen.routines.harness import layers
from tests.codegen.routines.layer_cases import Cases

TARGET = Target.create("cpu", "sapphirerapids")
NAMES = ("lines", "tiles", "pixels", "vectors", "depth", "row_groups", "panel_groups")
Sizes = tuple[int, int, int, int, int, int, int]
# Seven rows in as many shares, of which rounding leaves one empty and makes the second longer than the first.
UNEVEN: Sizes = (1, 1, 5, 1, 32, 7, 1)
CHOICES: dict[str, list[Sizes]] = {
    "padded": [UNEVEN, (2, 1, 3, 2, 20, 3, 2), (1, 2, 2, 1, 32, 4, 5), (3, 1, 1, 1, 32, 99, 1)],
    "apart": [(1, 1, 3, 1, 32, 7, 1), (1, 1, 3, 2, 20, 3, 2)],
    "rows": [UNEVEN, (1, 2, 4, 2, 32, 2, 3), (2, 1, 6, 2, 6, 3, 1)],
    "planes": [UNEVEN, (2, 1, 2, 1, 12, 2, 9)],
    "pixels": [(1, 1, 16, 3, 32, 2, 1), (1, 2, 9, 2, 16, 3, 3), (1, 3, 1, 1, 32, 1, 1)],
    "matrix": [(1, 1, 7, 3, 32, 1, 1), (1, 2, 2, 2, 14, 2, 3), (1, 1, 1, 6, 4, 9, 1)],
    "activations": [(1, 1, 7, 3, 32, 1, 1), (1, 2, 2, 2, 14, 2, 3), (1, 1, 5, 1, 30, 2, 2)],
    "whole_activations": [(1, 2, 5, 2, 20, 1, 1), (1, 1, 3, 1, 10, 2, 2)],
}


def _cases() -> Cases:
    cases = Cases()
    cases.convolution("padded", (2, 19, 7, 6), 40, residual=True, pads=[2, 0, 0, 1])
    cases.convolution("apart", (1, 19, 19, 7), 40, (1, 1), stride=3)
    cases.convolution("rows", (1, 5, 13, 11), 40, (3, 4), stride=2, pads=[1, 1, 1, 2])
    cases.convolution("planes", (2, 3, 7, 5), 24)
    cases.convolution("pixels", (2, 64, 5, 4), 40, (1, 1), residual=True)
    cases.convolution("streamed", (1, 64, 9, 9), 240)
    cases.product("long", (1, 9000), (9000, 60))
    cases.product("matrix", (7, 45), (45, 50))
    cases.product("activations", (2, 7, 45), (2, 45, 50), weight=False)
    cases.product("whole_activations", (2, 9, 40), (2, 40, 35), weight=False)
    return cases


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    models = {"traced": lambda: _cases().model()}
    return {layer.name: layer.task for layer, _ in layers(models)}


def _routine(name: str) -> KernelRoutine:
    is_product = name in ("matrix", "long") or name.endswith("activations")
    return TileProduct() if is_product else TileConvolution()


def _parameters(sizes: Sizes) -> Parameters:
    return dict(zip(NAMES, sizes, strict=True))


@pytest.mark.parametrize(("name", "sizes"), [(name, each) for name, found in CHOICES.items() for each in found])
def test_each_number_is_written_once_by_the_only_user_of_its_workspace(
    name: str, sizes: Sizes, tasks: dict[str, Task]
) -> None:
    layer = _routine(name).layer(tasks[name], _parameters(sizes), TARGET)
    reads, written = len(layer.kernel.reads), np.zeros(layer.kernel.results[0].elements, np.int64)
    users = np.zeros(layer.workspace.elements if layer.workspace else 0, np.int64)
    touched = [np.zeros(read.elements, np.int64) for read in layer.kernel.reads]
    for _, trace in traces(layer):
        assert not any(write.any() for write in trace.writes[:reads])
        assert not trace.reads[reads].any()
        written += trace.writes[reads]
        for every, each in zip(touched, trace.reads, strict=False):
            every += each
        if layer.workspace is not None:
            copies, used = trace.writes[reads + 1], trace.reads[reads + 1]
            assert not (used > 0)[copies == 0].any(), "what was not copied is read"
            users += (copies + used) > 0
    # Blocks that begin earlier where rows do not divide compute some results again.
    assert (written >= 1).all()
    assert (users <= 1).all()
    assert all(each.any() for each in touched)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("streamed", (2, 1, 9, 2, 32, 1, 1)),
        ("streamed", (1, 1, 5, 1, 32, 2, 3)),
        ("streamed", (3, 1, 9, 1, 32, 3, 2)),
        ("long", (1, 1, 1, 4, 32, 1, 1)),
        ("long", (1, 1, 1, 2, 32, 1, 2)),
    ],
)
def test_filters_are_fetched_about_once_before_they_are_read(name: str, sizes: Sizes, tasks: dict[str, Task]) -> None:
    layer = _routine(name).layer(tasks[name], _parameters(sizes), TARGET)
    assert isinstance(layer.code, TileContraction)
    line, panel = 64 // layer.code.element.bytes, layer.code.panel
    ahead = (1 << 14) // layer.code.element.bytes
    for _, trace in traces(layer):
        read, fetched = (found[1][::line] > 0 for found in (trace.reads, trace.fetches))
        (places,) = read.nonzero()
        begin, end = places[0], places[-1] + 1
        assert fetched[begin + ahead // line : end].all()
        # The first panel is fetched just ahead of its use, and so is what then lies behind it.
        assert not fetched[:begin].any()
        assert not fetched[end + ahead // line :].any()
        later = trace.fetches[1][::line][begin + (panel + ahead) // line : end]
        # What is left of a block's part after its steps is fetched by runs alike, which round up.
        assert later.sum() <= 1.25 * later.size
        assert (later <= 2).all()


@pytest.mark.parametrize(
    ("name", "sizes", "may"),
    [
        ("padded", UNEVEN, True),
        ("padded", (1, 1, 5, 2, 20, 3, 2), True),
        ("padded", (1, 1, 3, 1, 32, 7, 1), True),
        ("padded", (1, 2, 3, 2, 20, 3, 2), True),
        ("padded", (2, 1, 5, 2, 20, 3, 2), False),
        ("pixels", (1, 2, 5, 2, 16, 3, 3), True),
        ("pixels", (1, 1, 10, 3, 32, 2, 1), True),
        ("pixels", (1, 2, 9, 2, 16, 3, 3), True),
        ("pixels", (1, 3, 8, 1, 16, 3, 3), True),
        ("rows", UNEVEN, False),
        ("matrix", (1, 1, 7, 3, 32, 1, 1), False),
    ],
)
def test_a_result_is_written_over_a_residual_only_if_each_number_is_stored_once(
    name: str, sizes: Sizes, may: bool, tasks: dict[str, Task]
) -> None:
    layer = _routine(name).layer(tasks[name], _parameters(sizes), TARGET).overwriting
    assert (layer is not None) == may
    if layer is None:
        return
    assert layer.tied is not None
    kernel, result = layer.kernel, len(layer.kernel.reads)
    assert kernel.reads[layer.tied] == kernel.results[0]
    read, written = (np.zeros(kernel.results[0].elements, np.int64) for _ in range(2))
    for _, trace in traces(layer):
        read += trace.reads[layer.tied]
        written += trace.writes[result]
    # Where blocks overlap, what was computed from the result is not stored.
    assert (read >= 1).all()
    assert (written == 1).all()


def test_a_result_of_another_type_has_memory_of_its_own(tasks: dict[str, Task]) -> None:
    parameters = _parameters((1, 2, 5, 2, 16, 3, 3))
    assert TileConvolution(output="f32").layer(tasks["pixels"], parameters, TARGET).overwriting is None


def test_what_is_multiplied_is_not_overwritten(tasks: dict[str, Task]) -> None:
    """Blocks after the first read all channels of a pixel again."""
    layer = TileConvolution().layer(tasks["pixels"], _parameters((1, 2, 5, 2, 16, 3, 3)), TARGET)
    assert isinstance(layer.code, TileContraction)
    assert layer.overwriting is not None
    assert layer.overwriting.tied == 1
    assert replace(layer.code, memories=(1, layer.code.memories[1])).over() is None


def test_layers_are_copied_where_the_unit_cannot_read_them(tasks: dict[str, Task]) -> None:
    staged = {}
    for name, found in CHOICES.items():
        code = _routine(name).layer(tasks[name], _parameters(found[0]), TARGET).code
        assert isinstance(code, TileContraction)
        staged[name] = code.is_staged, code.is_merged
    assert staged == {
        "padded": (True, False),
        "apart": (True, False),
        "rows": (True, True),
        "planes": (True, True),
        "pixels": (False, False),
        "matrix": (True, False),
        "activations": (True, False),
        "whole_activations": (False, False),
    }
