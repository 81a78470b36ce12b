"""Products are rounded without ``--precision`` where their node permits it, and the bound is what that explains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.encoding import BlockEncoding, unpacked
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.rounding import ROWS
from sartor.codegen.ir.variants.routine import Variant
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import UsageError
from sartor.frontend.imported_model import ImportedModel
from sartor.policies import Precision
from sartor.precision.calibration import calibrate
from sartor.precision.eligibility import eligibility
from sartor.precision.permitted_rounding import heeding_permissions, permitted_layers, with_permitted_error
from sartor.precision.sensitivity import Sensitivities
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.profiling.verdicts import budget_of_model, judged
from sartor.reference.tolerance import MOST_BY_ITSELF
from sartor.tuning.errors.error_measures import RELATIVE, ErrorMeasure
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node

_SQUARE, _SHORT = BlockEncoding(4, 32, 64, 64), BlockEncoding(4, 16, 64, 64)
_FIRST, _SECOND = BlockEncoding(4, 32, 70, 64), BlockEncoding(4, 16, 64, 60)
_ROWS = 9


def _parts(of: BlockEncoding, name: str) -> dict[str, Array]:
    random = np.random.default_rng(of.depth)
    codes = random.integers(0, 256, of.codes.shape, dtype=np.uint8)
    return {f"{name}.w": codes, f"{name}.s": (random.random(of.columns * of.blocks) + 0.5).astype(np.float32)}


def _model(first: int, second: int) -> ModelProto:
    nodes, constants = [], dict[str, Array]()
    for name, of, read, level in (("a", _FIRST, "x", first), ("b", _SECOND, "h", second)):
        constants |= _parts(of, name)
        sizes = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block, "accuracy_level": level}
        written = "h" if name == "a" else "y"
        nodes.append(node("MatMulNBits", [read, f"{name}.w", f"{name}.s"], [written], name=name, domain=MS, **sizes))
    return model(nodes, [("x", (_ROWS, _FIRST.depth), FLOAT)], ["y"], constants)


def _imported(first: int, second: int) -> ImportedModel:
    return imported_model(_model(first, second))


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    """Of its products the first may be rounded."""
    return _imported(4, 1)


@pytest.fixture
def config(tmp_path: Path) -> CompileConfig:
    target = Target.create("cpu", "cascadelake")
    return CompileConfig(target=target, threads=1, jobs=1, database=tmp_path / "tuning.db")


def _rounds(variant: Variant) -> bool:
    """To 8 bits or to 16."""
    return variant.dtype == "i8" or variant.routine.startswith("block_word")


@pytest.mark.parametrize(("precision", "rounded"), [(Precision.PERMITTED, {"a"}), (Precision.F32, set())])
def test_only_what_the_model_permits_is_rounded(
    imported: ImportedModel, config: CompileConfig, precision: Precision, rounded: set[str]
) -> None:
    asked = replace(config, precision=precision)
    candidates = find_candidates(imported, asked.planning, everything=False).variants
    layers = {layer.name: candidates[layer.task.key] for layer in imported.graph.layers}
    assert {name for name, variants in layers.items() if any(_rounds(variant) for variant in variants)} == rounded
    # Nor may it be if somebody else asks for all variants.
    everything = find_candidates(imported, asked.planning).variants
    may_run = eligibility(imported, precision)
    allowed = {
        layer.name
        for layer in imported.graph.layers
        for each in everything[layer.task.key]
        if _rounds(each) and may_run(layer, each)
    }
    assert allowed == rounded


def test_rows_may_be_rounded_to_16_bits_alone(imported: ImportedModel, config: CompileConfig) -> None:
    asked = heeding_permissions(config, imported, Precision.PERMITTED_WORDS)
    assert asked.precision is Precision.PERMITTED_WORDS
    candidates = find_candidates(imported, asked.planning, everything=False).variants
    (first, second) = (candidates[layer.task.key] for layer in imported.graph.layers)
    assert any(variant.routine.startswith("block_word") for variant in first)
    assert not any(variant.dtype == "i8" for variant in first)
    assert not any(_rounds(variant) for variant in second)
    # Such rounding changes no bound.
    assert asked.error_budget.usual == config.error_budget.usual
    with pytest.raises(UsageError, match="one of"):
        replace(config, precision=cast(Any, "permitted-words"))


def _gated(rows: int = 1) -> ModelProto:
    """Two products of normalised rows, one of which gates the other, before a third: layers join parts of several
    nodes, and what the first two read is no tensor between layers."""
    constants: dict[str, Any] = {"least": np.float32(1e-6)}
    nodes = [
        node("Mul", ["x", "x"], ["squares"], name="squares"),
        node("ReduceMean", ["squares"], ["mean"], axes=[-1], name="mean"),
        node("Add", ["mean", "least"], ["above"], name="above"),
        node("Sqrt", ["above"], ["root"], name="root"),
        node("Div", ["x", "root"], ["normal"], name="normal"),
    ]
    for name, of, read in (("gate", _SQUARE, "normal"), ("up", _SHORT, "normal"), ("down", _SQUARE, "gated")):
        constants |= _parts(of, name)
        sizes = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block, "accuracy_level": 4}
        nodes.append(node("MatMulNBits", [read, f"{name}.w", f"{name}.s"], [name], name=name, domain=MS, **sizes))
    nodes[7:7] = [
        node("Sigmoid", ["gate"], ["open"], name="open"),
        node("Mul", ["gate", "open"], ["silu"], name="silu"),
        node("Mul", ["silu", "up"], ["gated"], name="gated"),
    ]
    return model(nodes, [("x", (1, rows, _SQUARE.depth), FLOAT)], ["down"], constants)


def test_rounding_of_every_layer_that_may_be_rounded_is_simulated(config: CompileConfig, pool: WorkerPool) -> None:
    """What is not simulated would be free."""
    imported = imported_model(_gated())
    layers = permitted_layers(imported.graph)
    assert {*layers} == {"gate", "up", "down"}
    config = heeding_permissions(config, imported)
    calibration = calibrate(imported, config.calibrating, pool)
    cache = SensitivityCache.beside(config.database)
    rounding = Sensitivities(imported, calibration, pool, RELATIVE, 1, cache)
    errors = rounding.for_pairs({(name, ROWS) for name in layers})
    assert {name for name, _ in errors} == {*layers}
    assert all(1e-4 < error < 0.1 for error in errors.values()), errors
    # Of a network of open sizes the largest error counts, whatever size has it.
    other = imported_model(_gated(3))
    alone = replace(rounding, imported=other, calibration=calibrate(other, config.calibrating, pool))
    both = rounding.also_of([(other, alone.calibration)])
    found, errors_alone = both.for_pairs({(name, ROWS) for name in layers}), alone.for_pairs({*errors})
    assert found == {pair: max(error, errors_alone[pair]) for pair, error in errors.items()}
    everything = dict.fromkeys(layers, ROWS)
    assert both.together(everything) == max(rounding.together(everything), alone.together(everything))
    assert both.together({}) == 0.0
    # One product is rounded at a time.
    assert rounding.together({"down": ROWS}) < rounding.together(dict.fromkeys(layers, ROWS))


def test_a_precision_that_the_user_names_is_kept(imported: ImportedModel, config: CompileConfig) -> None:
    assert permitted_layers(imported.graph) == ("a",)
    assert heeding_permissions(config, imported).precision is Precision.PERMITTED
    for kept in (replace(config, heeds_permissions=False), replace(config, precision=Precision.BF16)):
        assert heeding_permissions(kept, imported) == kept
    dprs = replace(config, selector="dprs")
    assert heeding_permissions(dprs, imported) == dprs, "it keeps no limit of the error"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_other_levels_permit_nothing(level: int, config: CompileConfig) -> None:
    imported = _imported(level, level)
    assert permitted_layers(imported.graph) == ()
    assert heeding_permissions(config, imported) == config


def test_the_bound_is_what_the_permitted_rounding_explains(
    imported: ImportedModel, config: CompileConfig, pool: WorkerPool
) -> None:
    plain = calibrate(imported, config.calibrating, pool)
    assert with_permitted_error(imported, plain, config, pool) == plain
    config = heeding_permissions(config, imported)
    # By tokens the bound is a number of tokens, which no relative error widens.
    tokens = replace(config, error_measure=ErrorMeasure.parse("tokens"))
    assert with_permitted_error(imported, plain, tokens, pool) == plain
    assert budget_of_model(tokens.error_budget, imported, plain.samples).accepted == 1e-2
    calibration = calibrate(imported, config.calibrating, pool)
    samples = with_permitted_error(imported, calibration, config, pool).samples
    rows = [sample["x"].astype(np.float64) for sample in samples.source.since(0)]
    errors = []
    for given in rows:
        right = given @ _values(_FIRST, "a") @ _values(_SECOND, "b")
        errors.append(
            np.abs(_rounded(given) @ _values(_FIRST, "a") @ _values(_SECOND, "b") - right) / np.abs(right).max()
        )
    # Scales of single rows and columns are at most that of all, and at least a fraction of it.
    assert np.max(errors) <= samples.permitted_error < 20 * np.max(errors)
    budget = budget_of_model(config.error_budget, imported, samples)
    assert budget.allowed == budget.accepted == min(1.5 * samples.permitted_error, MOST_BY_ITSELF)
    assert budget.allowed > config.error_budget.allowed
    bounded = replace(config, max_error=1e-4)
    assert budget_of_model(bounded.error_budget, imported, samples).accepted == 1e-4
    wider = calibration.permitting([samples.permitted_error / 2, 2 * samples.permitted_error])
    assert wider.samples.permitted_error == 2 * samples.permitted_error
    assert calibration.permitting([]) == calibration
    useless = budget_of_model(config.error_budget, imported, replace(samples, permitted_error=0.5))
    assert useless.accepted == MOST_BY_ITSELF


def test_an_error_of_8_bits_is_none_that_rounding_to_16_explains(config: CompileConfig, pool: WorkerPool) -> None:
    imported = _imported(4, 4)
    bounds, errors = {}, {}
    for precision in (Precision.PERMITTED, Precision.PERMITTED_WORDS):
        asked = heeding_permissions(config, imported, precision)
        samples = with_permitted_error(imported, calibrate(imported, asked.calibrating, pool), asked, pool).samples
        errors[precision] = samples.permitted_error
        bounds[precision] = budget_of_model(asked.error_budget, imported, samples)
    assert errors[Precision.PERMITTED_WORDS] == pytest.approx(errors[Precision.PERMITTED] * 127 / 32767)
    assert bounds[Precision.PERMITTED_WORDS].accepted == config.error_budget.usual
    # Within what 8 bits explain of themselves.
    run = NetRun(Status.OK, (1.0,), bounds[Precision.PERMITTED].accepted)
    assert judged(run, bounds[Precision.PERMITTED]).status is Status.OK
    assert judged(run, bounds[Precision.PERMITTED_WORDS]).status is Status.WRONG_RESULT


def _values(of: BlockEncoding, name: str) -> Array:
    parts = _parts(of, name)
    codes = unpacked(parts[f"{name}.w"], of.bits).reshape(of.columns, -1)[:, : of.depth].astype(np.float64)
    scales = np.repeat(parts[f"{name}.s"].reshape(of.columns, of.blocks), of.block, 1)[:, : of.depth]
    values: Array = ((codes - of.middle) * scales).T
    return values


def _rounded(rows: Array) -> Array:
    """Rows rounded to 127 steps of each block's largest number."""
    found = np.zeros(rows.shape)
    for start in range(0, rows.shape[-1], _FIRST.block):
        part = rows[..., start : start + _FIRST.block]
        step = np.abs(part).max(-1, keepdims=True) / 127
        found[..., start : start + _FIRST.block] = np.rint(part / step) * step
    return found
