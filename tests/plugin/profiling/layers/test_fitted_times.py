"""Times of layers in a network that add up to more than the network takes."""

from __future__ import annotations

import pytest

from sartor.planning.recipe import Recipe, timed_plan
from sartor.policies import Precision
from sartor.profiling.layers.fitted_times import fitted_times
from sartor.tuning.cost_tables.in_network import InNetworkTimes, corrected
from sartor.tuning.cost_tables.tables import Tables
from sartor.tuning.selection.problem.limits import UNLIMITED
from sartor.tuning.transfers.conversions import adapts_between
from tests.importing import ImportedOf
from tests.plugin.planning.selecting_fakes import FakeTuner, by_type, selector, tables_of, type_of

UNIT = 1e-4


@pytest.fixture
def planned(imported_of: ImportedOf) -> tuple[Recipe, Tables]:
    """A plan all of whose layers take ``UNIT`` alone."""
    select = selector(imported_of("residual"), FakeTuner())
    (recipe, *_), tables = select.select(tables_of(select.imported, by_type(f32=UNIT)), UNLIMITED)
    return recipe, tables


def in_place(recipe: Recipe, *ratios: float) -> InNetworkTimes:
    """Times of the first kinds of layers, relative to those alone; the other layers take as long as alone."""
    keys = dict.fromkeys((layer.task.key, recipe.variants[layer.name].descriptor) for layer in recipe.graph.layers)
    known = [*ratios, *[1.0] * (len(keys) - len(ratios))]
    return InNetworkTimes({key: ratio * UNIT for key, ratio in zip(keys, known, strict=True)})


def total(recipe: Recipe, tables: Tables, found: InNetworkTimes) -> float:
    return timed_plan(recipe, corrected(tables, found)).predicted or 0.0


def test_what_adds_up_to_less_than_the_network_stays(planned: tuple[Recipe, Tables]) -> None:
    recipe, tables = planned
    found = in_place(recipe, 2.0)
    assert fitted_times(found, recipe, tables, total(recipe, tables, found)) == found


@pytest.mark.parametrize("ratios", [(3.0,), (2.0, 1.5), (3.0, 0.9)])
def test_the_sum_of_what_is_slower_than_alone_becomes_that_of_the_network(
    planned: tuple[Recipe, Tables], ratios: tuple[float, ...]
) -> None:
    recipe, tables = planned
    found, alone = in_place(recipe, *ratios), in_place(recipe)
    seconds = (total(recipe, tables, found) + total(recipe, tables, alone)) / 2
    fitted = fitted_times(found, recipe, tables, seconds)
    assert total(recipe, tables, fitted) == pytest.approx(seconds)
    slower = [key for key, taken in found.layers.items() if taken > UNIT]
    assert all(UNIT < fitted.layers[key] < found.layers[key] for key in slower)
    assert all(fitted.layers[key] == found.layers[key] for key in found.layers if key not in slower)


def test_a_network_that_is_faster_than_its_layers_alone_leaves_none_of_the_excess(
    planned: tuple[Recipe, Tables],
) -> None:
    recipe, tables = planned
    fitted = fitted_times(in_place(recipe, 3.0, 0.9), recipe, tables, UNIT)
    assert sorted(set(fitted.layers.values())) == pytest.approx([0.9 * UNIT, UNIT])


def test_conversions_are_fitted_like_layers(imported_of: ImportedOf) -> None:
    select = selector(imported_of("residual"), FakeTuner(), Precision.MIXED)
    slow = select.imported.graph.layers[0].task.key
    alone = tables_of(
        select.imported, lambda key, name: UNIT * (4 if (key == slow) == (type_of(name) == "bf16") else 1), "bf16"
    )
    (recipe, *_), tables = select.select(alone, UNLIMITED)
    kinds = {kind for _, kind in adapts_between(recipe.graph, recipe.variants, recipe.home)}
    assert kinds
    own = {kind: tables.adapts[kind] for kind in kinds}
    found = InNetworkTimes({}, {kind: 3 * seconds for kind, seconds in own.items()})
    least = total(recipe, tables, InNetworkTimes({}, own))
    fitted = fitted_times(found, recipe, tables, (total(recipe, tables, found) + least) / 2)
    assert fitted.adapts == pytest.approx({kind: 2 * seconds for kind, seconds in own.items()})
