"""The calibration step: samples, ranges by the graph's values, and what is kept of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.codegen.ir.layer import ValueRef
from sartor.config import CompileConfig
from sartor.policies import Precision
from sartor.precision.calibration import Calibration, calibrate
from sartor.precision.sensitivity_cache import SensitivityCache
from sartor.samples.sample_sets import DRAWN, SampleSet, sample_set
from sartor.tuning.calibration.methods import CalibrationMethod
from sartor.tuning.calibration.quantised_range import QuantisedRange
from sartor.tuning.calibration.ranges import Ranges
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import ImportedOf


@pytest.fixture
def config(tmp_path: Path) -> CompileConfig:
    return CompileConfig(threads=1, database=tmp_path / "t.db", calibration_method=CalibrationMethod.MIN_MAX)


def test_f32_needs_nothing_but_the_sample_it_always_had(
    imported_of: ImportedOf, config: CompileConfig, pool: WorkerPool
) -> None:
    imported = imported_of("residual")
    found = calibrate(imported, config.calibrating, pool)
    assert (len(found.samples), found.samples.digest, found.dtypes) == (1, "", ())
    np.testing.assert_array_equal(found.samples.first["x"], imported.samples["x"])
    assert not list(config.database.parent.iterdir())


@pytest.mark.parametrize(("precision", "warns"), [(Precision.BF16, False), (Precision.INT8, True)])
def test_ranges_of_random_values_come_with_a_warning(
    precision: Precision,
    warns: bool,
    imported_of: ImportedOf,
    config: CompileConfig,
    pool: WorkerPool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calibrate(imported_of("residual"), replace(config, precision=precision).calibrating, pool)
    assert any("--calibration" in record.message for record in caplog.records) == warns


def test_drawn_samples_are_different_and_begin_with_the_front_ends(
    imported_of: ImportedOf, config: CompileConfig
) -> None:
    imported = imported_of("residual")
    found = sample_set(imported, None, narrow=True)
    drawn = [sample["x"] for sample in found.source.since(0)]
    assert len(found) == len(drawn) == DRAWN
    np.testing.assert_array_equal(drawn[0], imported.samples["x"])
    assert len({each.tobytes() for each in drawn}) == DRAWN
    np.testing.assert_array_equal(next(found.source.since(3))["x"], drawn[3])


def test_the_users_samples_are_known_by_what_they_hold(
    imported_of: ImportedOf, config: CompileConfig, tmp_path: Path
) -> None:
    imported = imported_of("residual")
    digests: list[str] = []
    for number in (0, 0, 1):
        folder = tmp_path / f"samples{len(digests)}"
        folder.mkdir()
        np.savez(folder / "a.npz", x=np.full((2, 16, 6, 6), number, np.float32))
        found = sample_set(imported, folder, narrow=False)
        assert len(found) == 2
        digests.append(found.digest)
    assert digests[0] == digests[1] != digests[2]


def test_ranges_are_those_of_the_graphs_values(
    imported_of: ImportedOf, config: CompileConfig, pool: WorkerPool
) -> None:
    imported, steps = imported_of("residual"), []
    x = np.random.default_rng(0).standard_normal((4, 16, 6, 6)).astype(np.float32)
    np.savez(config.database.parent / "x.npz", x=x)
    config = replace(config, calibration=config.database.parent / "x.npz")
    for _ in range(2):
        found = calibrate(
            imported, config.calibrating, pool, lambda step, done, total: steps.append(step), dtypes=("i8",)
        )
    given, hidden = found.ranges.of(ValueRef(None, 0)), found.ranges.of(ValueRef("conv1", 0))
    assert given is not None
    assert hidden is not None
    assert given.dtype == hidden.dtype == "int8"
    assert given.limits == pytest.approx((x.min(), x.max()), abs=given.scale)
    assert (hidden.zero_point, hidden.limits[0]) == (-128, 0.0)
    assert found.ranges.of(ValueRef("nothing", 0)) is None
    assert len(set(steps)) == 1
    again = len(steps)
    calibrate(imported, config.calibrating, pool, lambda step, done, total: steps.append(step), dtypes=("i8",))
    assert len(steps) == again, "what is known is not observed again"


def test_findings_are_kept_and_damage_is_forgotten(tmp_path: Path) -> None:
    cache = SensitivityCache.beside(tmp_path / "t.db")
    assert cache.get("a") == {}
    cache.put({"one": (1.0, float("inf"))}, "a")
    cache.put({"two": ()}, "a")
    assert cache.get("a") == {"one": (1.0, float("inf")), "two": ()}
    assert cache.get("a", "b") == {}
    (path,) = cache.directory.iterdir()
    damages = ["", "[]", '{"one": 1}', '{"one": ["x"]}', '{"one": [NaN, 1]}', '{"one": "12"}', '{"one": [true]}']
    for damaged in (*damages, "[" * 100_000, f'{{"one": [1{"0" * 400}]}}', f'{{"one": [1{"0" * 5000}]}}'):
        path.write_text(damaged)
        assert cache.get("a") == {}


def test_others_may_read_what_is_kept(tmp_path: Path) -> None:
    cache, usual = SensitivityCache.beside(tmp_path / "t.db"), tmp_path / "usual"
    usual.touch()
    cache.put({"one": (1.0,)}, "a")
    (path,) = cache.directory.iterdir()
    assert path.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("text", ["[1.0]", "[0.0, Infinity]", "[1.0, -1.0]", "[0.0, 1.0, 2.0]"])
def test_a_range_that_is_none_is_observed_again(
    text: str, imported_of: ImportedOf, config: CompileConfig, pool: WorkerPool
) -> None:
    imported = imported_of("residual")
    right = calibrate(imported, config.calibrating, pool, dtypes=("i8",)).tensor_ranges
    (path,) = SensitivityCache.beside(config.database).directory.iterdir()
    known = json.loads(path.read_text())
    path.write_text(json.dumps(known | {"x": json.loads(text)}))
    assert calibrate(imported, config.calibrating, pool, dtypes=("i8",)).tensor_ranges == right


def test_what_cannot_be_kept_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "t.db.calibration").write_text("in the way")
    SensitivityCache.beside(tmp_path / "t.db").put({"one": (1.0,)}, "a")
    assert "ranges and errors are not stored" in caplog.text


def test_one_range_holds_what_values_are_with_all_sizes() -> None:
    """Errors of rounding by it are others than by that of one size."""
    value, alone = ValueRef("layer", 0), ValueRef("other", 0)
    narrow, wide, low = (QuantisedRange.of(*ends) for ends in ((-1.0, 1.0), (-0.5, 4.0), (-3.0, -1.0)))
    one, two, three = (
        Calibration(SampleSet(Mock(), ""), tensor_ranges={"t": own}, ranges=Ranges({value: own, alone: own}))
        for own in (narrow, wide, low)
    )
    joined = one.covering([two, replace(three, ranges=Ranges({value: low}))])
    found, expected = joined.ranges.of(value), QuantisedRange.of(-3.0, 4.0)
    assert found is not None
    assert found.limits == pytest.approx(expected.limits, abs=2 * expected.scale)
    assert joined.tensor_ranges == {"t": found}
    assert joined.ranges.of(alone) == narrow.covering(wide)
    assert len({joined.key, one.key, one.covering([two]).key}) == 3
    assert one.covering([one]).ranges == one.ranges
    assert one.covering([]) is one
