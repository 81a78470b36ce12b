"""Who drops candidates writes down which and why: none is lost in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sartor.cli.tables.routine_tables import show_ledgers
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.candidates import Candidates, Filter
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.codegen.routine_registry import low_precision, routines_for
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates, measured_candidates
from sartor.costing.ledger import ledgers_of
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Precision, Search
from sartor.tuning.search.shipped.foreseen import Foreseen
from sartor.tuning.selection.problem.pin import Pin
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, ints, model, node, weights

CONFIG = CompileConfig(target=Target.create("cpu", "x86-64-v4"), threads=2)


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    """A convolution between a transposition that is a reshape beside it, and one in front of an output that is none."""
    nodes = [
        node("Transpose", ["x"], ["t"], name="first", perm=[0, 3, 1, 2]),
        node("Conv", ["t", "w"], ["c"], name="conv"),
        node("Reshape", ["c", "shape"], ["y"], name="flat"),
        node("Transpose", ["z"], ["v"], name="alone", perm=[0, 2, 3, 1]),
    ]
    constants = {"w": weights(18, 16, 1, 1), "shape": ints(1, -1, 6)}
    inputs = [("x", (1, 5, 7, 16), FLOAT), ("z", (1, 16, 5, 7), FLOAT)]
    return imported_model(model(nodes, inputs, [("y", (1, 105, 6), FLOAT), ("v", (1, 5, 7, 16), FLOAT)], constants))


@pytest.fixture(scope="module")
def everything(imported: ImportedModel) -> Candidates:
    """All candidates that there are."""
    return find_candidates(imported, CONFIG.planning)


def _silent(kept: Candidates, everything: Candidates) -> set[tuple[str, str]]:
    """Routines and variants, by task, that are neither kept nor in the ledger."""
    silent: set[tuple[str, str]] = set()
    for key, variants in everything.variants.items():
        dropped = kept.dropped_of(key)
        named = {entry.variant for entry in dropped} | {variant.descriptor for variant in kept.variants[key]}
        whole = {entry.routine for entry in dropped if not entry.variant}
        silent |= {
            (key, variant.descriptor)
            for variant in variants
            if variant.descriptor not in named and variant.routine not in whole
        }
        told = {variant.routine for variant in kept.variants[key]} | {entry.routine for entry in dropped}
        silent |= {(key, routine.name) for routine in routines_for(low_precision()) if routine.name not in told}
    return silent


@pytest.mark.parametrize("precision", [Precision.F32, Precision.MIXED])
def test_each_routine_and_variant_is_kept_or_in_the_ledger(
    precision: Precision, imported: ImportedModel, everything: Candidates
) -> None:
    assert not _silent(everything, everything)
    policy = replace(CONFIG, precision=precision).planning
    assert not _silent(find_candidates(imported, policy, everything=False), everything)
    narrow = find_candidates(imported, policy, everything=False, narrow=Foreseen(None, core_of(CONFIG.target)))
    assert not _silent(narrow, everything)
    assert any(entry.by is Filter.PREDICTION for entry in narrow.ledger)


def test_a_filter_that_tells_nothing_is_seen(imported: ImportedModel, everything: Candidates) -> None:
    """The check above sees what is dropped in silence."""
    found = find_candidates(imported, CONFIG.planning, everything=False)
    key, variants = next((key, listed) for key, listed in found.variants.items() if len(listed) > 1)
    silent = replace(found, variants={**found.variants, key: variants[:-1]})
    assert (key, variants[-1].descriptor) in _silent(silent, everything)


def test_the_ledger_says_by_whom(imported: ImportedModel) -> None:
    (alone,) = ledgers_of(imported, CONFIG.planning, "alone")
    assert [entry.reason for entry in alone.dropped if entry.by is Filter.NEIGHBOURS] == [
        "no layer beside it has the image with its channels last"
    ]
    (conv,) = ledgers_of(imported, CONFIG.planning, "conv")
    by = {entry.routine: entry.by for entry in conv.dropped}
    assert by["window"] in (Filter.ROUTINE, Filter.PRECISION)
    assert by["nhwc"] in (Filter.KERNELS, Filter.PRECISION)
    assert all(entry.reason for entry in conv.dropped)
    names = [costed.variant.descriptor for costed in conv.candidates]
    assert names[0] == "cpu:f32/conv2d.stock"
    assert conv.candidates[0].seconds > min(costed.seconds for costed in conv.candidates) > 0


def test_a_pin_that_fits_no_routine_is_refused(imported: ImportedModel) -> None:
    policy = replace(CONFIG.planning, pins=(Pin("conv", "cpu:f32/conv2d.direkt*"),))
    with pytest.raises(UsageError, match=r"pins 'conv=cpu:f32/conv2d.direkt\*' fits no routine; a routine is named"):
        find_candidates(imported, policy)


def test_a_software_driver_measures_two_guesses_of_a_routine(imported: ImportedModel) -> None:
    config = CompileConfig(target=Target.create("vulkan"))
    found = find_candidates(imported, config.planning, everything=False)
    measured = measured_candidates(found, imported, config.target, config.planning, Search.MODEL)
    dropped = [entry for entry in measured.ledger if entry.by is Filter.GUESSES]
    left = {(key, variant.descriptor) for key, listed in measured.variants.items() for variant in listed}
    listed = {(key, variant.descriptor) for key, variants in found.variants.items() for variant in variants}
    assert listed - left == {(entry.task, entry.variant) for entry in dropped} != set()


def test_a_ledger_can_be_read(imported: ImportedModel, capsys: pytest.CaptureFixture[str]) -> None:
    ledgers = ledgers_of(imported, CONFIG.planning, "con*")
    show_ledgers(Path("net.onnx"), ledgers, as_json=True)
    (layer,) = json.loads(capsys.readouterr().out)["layers"]
    assert (layer["layer"], layer["nodes"]) == ("conv", ["conv"])
    assert len(layer["candidates"]) == len(ledgers[0].candidates)
    show_ledgers(Path("net.onnx"), ledgers, as_json=False)
    text = capsys.readouterr().out
    assert "not a matrix product" in text
    assert all(costed.variant.descriptor in text for costed in ledgers[0].candidates)


def test_a_name_that_no_layer_has_is_refused(imported: ImportedModel) -> None:
    with pytest.raises(UsageError, match="no layer is named 'con'; the model has first, alone, "):
        ledgers_of(imported, CONFIG.planning, "con")


@pytest.mark.parametrize(("precision", "is_reason"), [(Precision.F32, False), (Precision.INT4_WEIGHTS, True)])
def test_blocks_that_are_not_chosen_are_a_reason_only_where_precision_allows_them(
    imported: ImportedModel, precision: Precision, is_reason: bool
) -> None:
    ledger = find_candidates(imported, replace(CONFIG, precision=precision).planning).ledger
    assert any("in blocks of 64 rows, which are not chosen" in entry.reason for entry in ledger) == is_reason
