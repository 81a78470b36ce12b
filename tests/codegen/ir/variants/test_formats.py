"""The table of algorithms and formats, from which the list of routines is made."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from sartor.codegen.ir.variants.formats import Algorithm, Format, Layout, Work, absences, alone, excluding, kernel
from sartor.codegen.routines import PAIRS, ROUTINES
from sartor.codegen.routines import algorithms as by
from sartor.codegen.routines import formats as of
from sartor.codegen.routines.iree.stock import Stock


def test_each_pair_exists_once_or_has_a_reason() -> None:
    assert [pair for pair, count in Counter(PAIRS).items() if count > 1] == []
    algorithms, formats = ({pair[side] for pair in PAIRS} for side in (0, 1))
    absent = list(absences(PAIRS))
    assert len(PAIRS) + len(absent) == len(algorithms) * len(formats)
    assert [one for one in absent if not one.reason] == []


def test_no_pair_exists_that_a_reason_excludes() -> None:
    assert [(algorithm.name, form.name) for algorithm, form in PAIRS if excluding(algorithm, form)] == []


def test_algorithms_formats_and_routines_have_names_of_their_own() -> None:
    for named in ({algorithm for algorithm, _ in PAIRS}, {form for _, form in PAIRS}):
        assert max(Counter(one.name for one in named).values()) == 1
    assert len(PAIRS) == len(ROUTINES) == len(set(ROUTINES))


@pytest.mark.parametrize(
    ("algorithm", "form", "reason"),
    [
        (by.JOIN, of.I8_DOTS, "it multiplies by no weights"),
        (by.IMPLICIT, of.BY_F16, "it is for cuda, and the format for cpu"),
        (by.PRODUCT, of.BLOCKED, "it has no form for images in blocks of channels beside its own layout"),
        (by.RECURRENT, of.BF16, "not written: rounding adds up over the steps"),
        (by.DIRECT, of.IN_BLOCKS, "codes in blocks are decoded by kernels of their own"),
        (by.DIRECT, of.I8_DOTS, None),
    ],
)
def test_a_pair_that_does_not_exist_says_why(algorithm: Algorithm, form: Format, reason: str | None) -> None:
    reasons = {(one.algorithm, one.form): one.reason for one in absences(PAIRS)}
    assert reasons.get((algorithm.name, form.name)) == reason


def test_a_pair_that_was_forgotten_is_noticed() -> None:
    (one,) = absences([(by.DIRECT, of.OWN), (by.DIRECT, of.BF16), (by.WINDOW, of.OWN)])
    assert (one.algorithm, one.form, one.reason) == ("window", "bf16", "")
    excluded = replace(of.OWN, name="elsewhere", layout=Layout.PLANES)
    assert excluding(by.DIRECT, excluded) == "it has no form for images in planes beside its own layout"
    assert excluding(Algorithm("a", alone(Stock), "", Work.LOWERED), of.BY_I8) == Work.LOWERED.value


def test_a_format_reaches_the_routine_whole() -> None:
    with pytest.raises(TypeError, match="weights"):
        Algorithm("stock", kernel(Stock)).routine(of.BY_F16)
