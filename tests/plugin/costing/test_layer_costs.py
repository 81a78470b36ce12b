"""What the search of variants is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.routine_registry import described
from sartor.costing import layer_costs
from sartor.policies import Search
from sartor.progress import silent
from sartor.tuning.records.hardware import host
from sartor.tuning.search.cost_model import Sample

SHIPPED = (Sample("facts", described("cpu:f32/conv2d.direct{columns=4,vectors=2}"), 1e-5),)


class FakeSearch:
    """Finds nothing, and keeps what it was given."""

    given: tuple[Any, ...] = ()

    def __init__(self, *given: Any) -> None:
        FakeSearch.given = given

    def measured(self) -> dict[str, Any]:
        return {}


def fake_tuner(hardware: str, target: Target) -> Any:
    return SimpleNamespace(
        target=target,
        store=SimpleNamespace(hardware=hardware),
        known=lambda cases: {},
        measure=lambda cases: {},
        progress=silent,
        is_bounded=False,
    )


@pytest.mark.parametrize(
    ("hardware", "target", "expected"),
    [
        (host().key, Target.create("cpu"), SHIPPED),
        ("another machine", Target.create("cpu"), ()),
        (host().key, Target.create("cpu", "x86-64-v2"), ()),
        (host().key, Target.create("vulkan"), ()),
    ],
)
def test_the_package_s_times_are_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, hardware: str, target: Target, expected: tuple[Sample, ...]
) -> None:
    monkeypatch.setattr(layer_costs, "shipped_samples", lambda machine, threads: SHIPPED)
    monkeypatch.setattr(layer_costs, "SearchRun", FakeSearch)
    imported: Any = SimpleNamespace(graph=SimpleNamespace(all_layers=tuple, layers=()))
    layer_costs._measured(imported, [], fake_tuner(hardware, target), ())
    assert FakeSearch.given[-1] == expected


@pytest.mark.parametrize(
    ("known", "device", "search", "expected"),
    [
        ([], "cpu", Search.MODEL, True),
        (["a measurement"], "cpu", Search.MODEL, False),
        ([], "vulkan", Search.MODEL, False),
        ([], "cpu", Search.FULL, False),
    ],
)
def test_what_a_search_needs_is_loaded_where_one_will_come(
    monkeypatch: pytest.MonkeyPatch, known: list[str], device: str, search: Search, expected: bool
) -> None:
    loaded: list[bool] = []
    monkeypatch.setattr(layer_costs, "load_ahead", lambda: loaded.append(True))
    store: Any = SimpleNamespace(measurements=lambda here_only: iter(known))
    layer_costs.load_search(store, Target.create(device), search)
    assert bool(loaded) == expected
