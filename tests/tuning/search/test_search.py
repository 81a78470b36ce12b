"""What the search picks, and how much of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sartor.codegen.routine_registry import described
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.search import VariantSearch
from sartor.tuning.search.search_settings import INFORMED, SearchSettings, settings_for
from sartor.tuning.search.searched import Searched
from sartor.tuning.search.shipped.informed import FirstLimits
from tests.tuning.search.searched_tasks import (
    KERNELS,
    STOCK,
    VARIANTS,
    best,
    facts,
    listed,
    measured,
    samples,
    seconds,
    task,
)

SHAPES = [(channels, side) for channels in (64, 128, 512) for side in (14, 28, 56)]
TASKS = {f"{c}x{s}": task(f"{c}x{s}", c, s, count=c // 64) for c, s in SHAPES}
OTHERS = [task(f"other{side}", channels, side) for channels in (64, 128, 512) for side in (10, 20, 40)]

OTHER = tuple(samples(*OTHERS))


def searched(search: VariantSearch) -> dict[str, dict[str, float | None]]:
    """All rounds, with times by the rule."""
    picks = search.first({})
    known = measured(TASKS, picks)
    cost = search.effort(picks)
    for _ in range(search.settings.rounds):
        for key, found in measured(TASKS, search.later(known, cost)).items():
            known[key] |= found
    return known


def regret(known: dict[str, dict[str, float | None]]) -> float:
    """By how much the network is slower than with the best variants."""
    found = sum(each.count * min(filter(None, known[each.key].values())) for each in TASKS.values())
    return found / sum(each.count * seconds(each.facts, best(each)) for each in TASKS.values()) - 1


@pytest.mark.parametrize("known", [(), OTHER])
def test_the_first_round_covers_candidate_0_and_all_layouts(known: tuple[Sample, ...]) -> None:
    picks = VariantSearch(list(TASKS.values()), known).first({})
    assert set(picks) == set(TASKS)
    for picked in picks.values():
        assert picked[0] == STOCK
        assert {"blocked" in name for name in picked[1:]} == {True, False}


def test_without_knowledge_the_rounds_find_what_is_nearly_best() -> None:
    first = searched(VariantSearch(list(TASKS.values()), settings=SearchSettings(rounds=0)))
    known = searched(VariantSearch(list(TASKS.values()), settings=SearchSettings(rounds=4, share=0.7)))
    assert regret(known) < 0.5 * regret(first)
    assert sum(map(len, known.values())) < 0.9 * len(TASKS) * len(VARIANTS)


def test_what_was_learned_from_other_networks_carries_over() -> None:
    search = VariantSearch(list(TASKS.values()), OTHER, SearchSettings(rounds=0))
    assert regret(searched(search)) < 0.02


def test_the_block_of_tiles_that_loads_least_is_tried_whatever_was_learned() -> None:
    sizes = "depth=32,lines={},panel_groups=1,pixels=16,row_groups={},tiles=1,vectors={}"
    tiles = [
        f"cpu:bf16/conv2d.tiles{{{sizes.format(*each)}}}" for each in ((1, 1, 4), (1, 13, 4), (1, 7, 4), (2, 13, 2))
    ]
    # In the other networks the two rows of the last one never paid.
    learned = [
        Sample(facts(channels, side, 3), described(name), 1e-3 * side * channels * (9.0 if name == tiles[-1] else 1.0))
        for channels in (32, 128, 256)
        for side in (10, 20, 40)
        for name in (STOCK, *tiles)
    ]
    wanted = Searched("large", facts(64, 224, 3), listed(STOCK, *tiles), 1)
    assert tiles[-1] in VariantSearch([wanted], learned).first({})["large"]


def test_winograds_form_in_groups_is_tried_beside_the_direct_one_whatever_was_learned() -> None:
    register = "columns=11,unroll=2,vectors=2"
    direct = f"cpu:bf16/conv2d.dots{{{register},lines=1,panel_groups=1,row_groups=8}}"
    sizes = "block=110,groups=1,height={},panels=1,width={}"
    winograd = [
        f"cpu:bf16/conv2d.fused_winograd_dots{{{register},{sizes.format(number, number)}}}" for number in (2, 3)
    ]
    subject = Searched("a", facts(256, 56, 3), listed(STOCK, direct, *winograd), 1)
    picked = VariantSearch([subject], OTHER, SearchSettings(first=0)).first({})["a"]
    assert set(picked) == {STOCK, direct, winograd[1]}


def test_what_is_known_is_not_measured_again() -> None:
    search = VariantSearch(list(TASKS.values()))
    known = measured(TASKS, search.first({}))
    assert search.first(known) == {}
    for key, picked in search.later(known, 100.0).items():
        assert not set(picked) & set(known[key])


def test_a_round_costs_no_more_than_its_share() -> None:
    search = VariantSearch(list(TASKS.values()), settings=SearchSettings(share=0.1, gain=0.0))
    picks = search.first({})
    cost = search.effort(picks)
    later = search.later(measured(TASKS, picks), cost)
    assert 0 < search.effort(later) < 0.1 * cost + 3.0


def test_layers_that_count_for_nothing_get_nothing_more() -> None:
    heavy = [replace(each, count=1000 if each.key == "512x56" else 1) for each in TASKS.values()]
    search = VariantSearch(heavy)
    assert set(search.later(measured(TASKS, search.first({})), 1000.0)) <= {"512x56"}


def test_failures_are_no_samples_and_are_not_tried_again() -> None:
    search = VariantSearch(list(TASKS.values()))
    known = measured(TASKS, search.first({}))
    known["64x14"] = dict.fromkeys(known["64x14"])
    later = search.later(known, 1000.0)
    assert "64x14" not in later


def test_the_same_store_gives_the_same_picks() -> None:
    search = VariantSearch(list(TASKS.values()), OTHER)
    known = measured(TASKS, search.first({}))
    assert search.later(known, 50.0) == search.later(known, 50.0)


@pytest.mark.parametrize("variants", [(STOCK,), (STOCK, KERNELS[0])])
def test_little_to_choose_from_is_all_measured(variants: tuple[str, ...]) -> None:
    few = Searched("few", TASKS["64x14"].facts, listed(*variants), 1)
    assert VariantSearch([few]).first({}) == {"few": variants}


def test_informed_searches_measure_little_and_lose_little() -> None:
    tasks = list(TASKS.values())
    informed = searched(VariantSearch(tasks, (), INFORMED, OTHER))
    uninformed = searched(VariantSearch(tasks))
    assert sum(map(len, informed.values())) < 0.7 * sum(map(len, uninformed.values()))
    assert regret(informed) < 0.02
    assert informed == searched(VariantSearch(tasks, (), INFORMED, OTHER))


def test_the_share_of_a_task_decides_how_much_of_it_is_measured() -> None:
    alone = [TASKS["64x14"]]
    beside = [*alone, replace(TASKS["128x28"], count=1000)]
    many, few = (VariantSearch(tasks, (), INFORMED, OTHER).first({})["64x14"] for tasks in (alone, beside))
    assert few[0] == many[0] == STOCK
    assert len(few) < len(many)


def test_of_a_large_task_every_family_is_measured() -> None:
    """Winograd's method is slow by these times, and where a task matters it is tried all the same."""
    winograd = "cpu:f32/conv2d.fused_winograd{block=8,columns=4,groups=2,height=4,panels=1,unroll=2,vectors=2,width=4}"
    slow = [Sample(other.facts, described(winograd), 9 * seconds(other.facts, best(other))) for other in OTHERS]
    small, large = (replace(TASKS["64x14"], variants=listed(*VARIANTS, winograd), count=count) for count in (1, 1000))
    for tried, is_measured in ((small, False), (large, True)):
        tasks = [tried, replace(TASKS["512x56"], count=1)]
        picks = VariantSearch(tasks, (), INFORMED, [*OTHER, *slow]).first({})
        assert (winograd in picks["64x14"]) == is_measured


@pytest.mark.parametrize(
    ("limits", "alone", "beside"),
    [
        (FirstLimits((), 2.0, 0.0), 1, 1),
        (FirstLimits((0.5,), 2.0, 0.0), 2, 1),
        (FirstLimits((0.0, 0.5), 2.0, 0.0), 3, 2),
    ],
)
def test_the_first_round_keeps_to_its_limits(limits: FirstLimits, alone: int, beside: int) -> None:
    tasks = [TASKS["64x14"], replace(TASKS["128x28"], count=1000)]
    for count, given in ((alone, tasks[:1]), (beside, tasks)):
        search = VariantSearch(given, (), replace(INFORMED, informed=limits), OTHER)
        assert len(search.first({})["64x14"]) == 1 + count


@pytest.mark.parametrize(("until", "goes_on"), [(0.0, True), (0.01, True), (1.0, False)])
def test_a_round_that_promises_too_little_is_none(until: float, goes_on: bool) -> None:
    search = VariantSearch(list(TASKS.values()), settings=SearchSettings(until=until, share=1.0))
    picks = search.first({})
    assert bool(search.later(measured(TASKS, picks), search.effort(picks))) == goes_on


@pytest.mark.parametrize(("threads", "numbers"), [(1, set()), (2, {1, 2})])
def test_numbers_of_workgroups_that_shipped_times_tell_nothing_of_are_measured(threads: int, numbers: set[int]) -> None:
    """Of the best guess's routine alone, and for several threads: they take no other variant's place."""
    fewer = [KERNELS[0].replace("row_groups=14", f"row_groups={number}") for number in (1, 2)]
    tasks = [replace(each, variants=listed(STOCK, *KERNELS, *fewer)) for each in TASKS.values()]
    settings = replace(INFORMED, threads=threads)
    picks = VariantSearch(tasks, (), settings, OTHER).first({})
    usual = VariantSearch(list(TASKS.values()), (), INFORMED, OTHER).first({})
    for key, names in picks.items():
        direct = "conv2d.direct{" in next(name for name in names if name != STOCK)
        assert {described(name).parameters["row_groups"] for name in names if name in fewer} == (
            numbers if direct else set()
        )
        assert [name for name in names if name not in fewer] == [*usual[key]]


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_what_shipped_times_do_not_cover_is_searched_as_without_them(dtype: str) -> None:
    narrow = [kernel.replace("cpu:f32", f"cpu:{dtype}") for kernel in KERNELS]
    tasks = [replace(each, variants=listed(*VARIANTS, *narrow)) for each in TASKS.values()]
    without = VariantSearch(tasks).first({})
    picks = VariantSearch(tasks, (), INFORMED, OTHER).first({})
    for key, names in picks.items():
        assert {name for name in names if dtype in name} == {each for each in without[key] if dtype in each} != set()


def test_own_samples_take_part_beside_shipped_ones() -> None:
    """Another machine's times favour two vectors, and this one's contradict them."""
    contrary = [
        replace(sample, seconds=sample.seconds * (4.0 if sample.variant.parameters.get("vectors") == 2 else 0.5))
        for sample in samples(*OTHERS)
    ]
    tasks = list(TASKS.values())
    shipped = samples(*OTHERS)
    alone = VariantSearch(tasks, (), INFORMED, shipped).first({})
    beside = VariantSearch(tasks, contrary * 3, INFORMED, shipped).first({})
    assert alone != beside


@pytest.mark.parametrize("pace", [0.25, 1.0, 4.0])
def test_shipped_times_are_taken_at_this_machines_pace(pace: float) -> None:
    """A machine that is slower throughout sees the same variants as promising, in the first round and later."""
    tasks = list(TASKS.values())
    shipped = [replace(each, seconds=each.seconds * pace) for each in OTHER]
    search, alike = VariantSearch(tasks, (), INFORMED, shipped), VariantSearch(tasks, (), INFORMED, OTHER)
    first = search.first({})
    assert first == alike.first({})
    assert search.later(measured(TASKS, first), 50.0) == alike.later(measured(TASKS, first), 50.0)


def test_a_new_routine_is_not_taken_for_known() -> None:
    joined = [f"cpu:f32/join.join{suffix}{{lines=1}}" for suffix in ("", "_blocked")]
    new = [f"cpu:f32/join.join_enlarged{suffix}{{lines=1}}" for suffix in ("", "_blocked")]
    facts = TASKS["64x14"].facts
    shipped = [*OTHER, *(Sample(facts, described(each), 1e-5) for each in joined)]
    tried = replace(TASKS["64x14"], variants=listed(STOCK, *new))
    assert VariantSearch([tried], (), INFORMED, shipped).first({}) == VariantSearch([tried]).first({})


def test_limits_are_small_only_where_nearly_all_is_known() -> None:
    known = listed(*KERNELS)
    narrow = listed(*(kernel.replace("cpu:f32", "cpu:bf16") for kernel in KERNELS))
    assert settings_for(known, OTHER, 2) == replace(INFORMED, threads=2)
    assert settings_for([*known, *narrow], OTHER, 2) == SearchSettings(threads=2)
    assert settings_for(known, (), 1) == SearchSettings()
    # A reshape takes no time, so that nothing has to be known of it.
    views = listed("cpu:f32/block.view_from_last", "cpu:f32/block.view_to_last")
    assert settings_for([*known, *views], OTHER, 2) == replace(INFORMED, threads=2)


def test_shipped_times_that_are_too_few_change_nothing() -> None:
    tasks = list(TASKS.values())
    assert VariantSearch(tasks, (), INFORMED, samples(*OTHERS)[:5]).first({}) == VariantSearch(tasks).first({})
