"""Networks in bf16 as the user of the command line meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.codegen.ir.block_packing import FOUR_BITS
from sartor.codegen.ir.variants.candidates import Candidates
from sartor.codegen.ir.variants.routine import Storing, Variant
from sartor.codegen.routines import FUSED_ROUTINES, LOW_PRECISION
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.errors import UsageError
from sartor.pipeline import replay_plan
from sartor.policies import Precision
from sartor.reference.expected_outputs import Expectation
from sartor.runtime.driver import amx
from sartor.runtime.driver.amx import unusable
from sartor.runtime.manifest import read_manifest
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.records.plan import Plan
from tests.importing import ImportedOf, ModelFile
from tests.plugin.calling import Result, assert_refused, call, parsed

MODEL = "residual"
PIN = "conv*=cpu:bf16/*"
TILES = "conv*=cpu:bf16/*.tiles*"
NARROW_ERROR = 1e-2

needs_tiles = pytest.mark.skipif(bool(unusable(["amx-bf16"])), reason="there is no AMX that this process may use")


@dataclass(frozen=True)
class Compiled:
    """A network whose convolutions are pinned to bf16."""

    module: Path
    plan: Path
    summary: dict[str, Any]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("precision") / "tuning.db"


@pytest.fixture
def compile_(database: Path, model_file: ModelFile, tmp_path: Path) -> Callable[..., Result]:
    def run(*options: object) -> Result:
        output = tmp_path / "net.vmfb"
        return call("compile-to-vmfb", model_file(MODEL), "-o", output, *_options(database), "--json", *options)

    return run


@pytest.fixture(scope="module")
def pinned(database: Path, model_file: ModelFile) -> Compiled:
    return _pinned(database, model_file, "pinned", PIN)


@pytest.fixture(scope="module")
def tiled(database: Path, model_file: ModelFile) -> Compiled:
    """The same with AMX."""
    return _pinned(database, model_file, "tiled", TILES)


def _options(database: Path) -> list[object]:
    return ["--tuning-db", database, "--threads", 1]


def _pinned(database: Path, model_file: ModelFile, name: str, pin: str) -> Compiled:
    module, plan = database.parent / f"{name}.vmfb", database.parent / f"{name}.json"
    options = [*_options(database), "--precision", "bf16", "--pin", pin, "--save-plan", plan, "--json"]
    return Compiled(module, plan, parsed(call("compile-to-vmfb", model_file(MODEL), "-o", module, *options)))


def _texts(plan: Plan) -> list[str]:
    return [*(layer.variant for layer in plan.layers), *(f"{adapt.source} {adapt.target}" for adapt in plan.adapts)]


def test_a_network_in_bf16_is_as_exact_as_that_allows(
    pinned: Compiled, imported_of: ImportedOf, model_file: ModelFile
) -> None:
    imported, file = imported_of(MODEL), model_file(MODEL)
    feeds = imported.samples
    # The summary's error is by scales that rounding noise bounds from below, so that the same scales are taken here.
    expected = Expectation((file,), imported.prepared, threads=1, narrow=True)(feeds)
    with Session(pinned.module, threads=1) as session:
        found = relative_error(session.run(None, feeds), expected.outputs, scales=expected.scales)
    # The summary tells the worst of all samples, of which these feeds are the first.
    worst = pinned.summary["relative_error"]
    assert 1e-5 < found <= worst * (1 + 1e-6)
    assert worst < NARROW_ERROR
    plan = Plan.load(pinned.plan)
    assert all(layer.variant.startswith("cpu:bf16/") for layer in plan.layers)
    assert {(adapt.source, adapt.target) for adapt in plan.adapts} >= {("cpu:bf16@nhwc", "cpu:f32@nchw")}


def test_bf16_is_taken_only_where_it_is_asked_for(compile_: Callable[..., Result], tmp_path: Path) -> None:
    summary = parsed(compile_("--save-plan", tmp_path / "plan.json"))
    assert not [text for text in _texts(Plan.load(tmp_path / "plan.json")) if "bf16" in text]
    assert summary["relative_error"] < 1e-5


def test_what_bf16_cannot_keep_is_left_to_f32(compile_: Callable[..., Result], tmp_path: Path) -> None:
    options = ("--precision", "bf16", "--max-error", "1e-5", "--save-plan", tmp_path / "plan.json")
    summary = parsed(compile_(*options))
    assert not [text for text in _texts(Plan.load(tmp_path / "plan.json")) if "bf16" in text]
    assert summary["relative_error"] < 1e-5


def test_pins_to_what_is_too_inexact_end_with_the_nearest_error(compile_: Callable[..., Result]) -> None:
    refused = compile_("--precision", "bf16", "--max-error", "1e-5", "--pin", PIN)
    assert_refused(refused, 5, "the error limit of 1e-05 cannot be met", "allow that much")


def test_a_pin_to_bf16_alone_does_not_ask_for_it(compile_: Callable[..., Result]) -> None:
    assert_refused(compile_("--pin", PIN), 5, "fits its pins")


def test_the_plan_replays_to_the_same_bytes(pinned: Compiled, model_file: ModelFile, tmp_path: Path) -> None:
    """Without a precision or an error: the plan says what it rounds."""
    again = tmp_path / "again.vmfb"
    summary = parsed(call("compile-to-vmfb", model_file(MODEL), "-o", again, "--plan", pinned.plan, "--json"))
    assert again.read_bytes() == pinned.module.read_bytes()
    assert summary["relative_error"] == pinned.summary["relative_error"]


def test_the_plan_replays_from_python_within_the_same_error(
    pinned: Compiled, model_file: ModelFile, tmp_path: Path
) -> None:
    config = CompileConfig(threads=1)
    assert config.allowed_error < pinned.summary["relative_error"], "it would be refused as a plan in f32"
    artifact = replay_plan(model_file(MODEL), Plan.load(pinned.plan), tmp_path / "again.vmfb", config)
    assert artifact.error == pinned.summary["relative_error"]


def test_a_replayed_module_keeps_to_the_error_that_is_named(
    pinned: Compiled, model_file: ModelFile, tmp_path: Path
) -> None:
    output = tmp_path / "net.vmfb"
    refused = call("compile-to-vmfb", model_file(MODEL), "-o", output, "--plan", pinned.plan, "--max-error", "1e-5")
    assert_refused(refused, 5, "the error limit of 1e-05 cannot be met")
    assert not output.exists()


def test_the_same_is_compiled_twice(pinned: Compiled, database: Path, model_file: ModelFile) -> None:
    again = _pinned(database, model_file, "again", PIN)
    assert again.module.read_bytes() == pinned.module.read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--precision", "bf16", "--max-error", "-1"], "--max-error"),
        (["--precision", "bf16", "--plan", "p.json"], "--precision"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    model_file: ModelFile, tmp_path: Path, options: list[str], said: str
) -> None:
    result = call("compile-to-vmfb", model_file(MODEL), "-o", tmp_path / "net.vmfb", *options, folder=tmp_path)
    assert_refused(result, 2, said)


def test_routines_are_listed_with_their_type_and_what_they_need() -> None:
    known = {(each["type"], each["name"]): each for each in parsed(call("sartor", "routines", "--json"))["routines"]}
    narrow = [each for several in LOW_PRECISION.values() for each in several]
    fused = [fused_routine for fused_routine in FUSED_ROUTINES if fused_routine.traits.precision is not None]
    assert {key for key in known if key[0]} == {
        (dtype, each.name)
        for each in (*narrow, *fused)
        if isinstance(each, Storing) and (dtype := each.storage or each.traits.weights)
    }
    needs: dict[tuple[str | None, str], str] = {
        key: routine["needs"] for key, routine in known.items() if routine["needs"] is not None
    }
    expected: dict[tuple[str | None, str], str] = {
        (None, "block_words"): "avx512vnni or avxvnni",
        (None, "block_word_pairs"): "avx2 or avx512bw or sse2",
        ("bf16", "tiles"): "amx-bf16",
        ("bf16", "dots"): "avx512bf16",
        ("bf16", "fused_winograd_dots"): "avx512bf16",
        ("i8", "fused_winograd_dots"): "avx512bf16",
        ("i8", "fused_winograd_bytes"): "avx512vnni or avxvnni",
        ("i8", "tiles"): "amx-int8",
        ("bf16", "tiles_of_bf16"): "amx-bf16",
        ("i8", "tiles_to_f32"): "amx-int8",
        ("i8", "dots"): "avx512vnni or avxvnni",
        ("i8", "dots_to_f32"): "avx512vnni or avxvnni",
        ("i8", "row_dots"): "avx512vnni or avxvnni",
        ("i8", "block_dots"): "avx512vnni or avxvnni",
        ("i8", "block_byte_pairs"): "avx2 or avx512bw or ssse3",
        ("i8", "block_neon_dots"): "dotprod",
        ("i8", "byte_pairs"): "avx2 or avx512bw or ssse3",
        ("i8", "byte_pairs_to_f32"): "avx2 or avx512bw or ssse3",
        ("i8", "factor_dots"): "avx512vnni or avxvnni",
        ("i8", "whole_tiles"): "amx-int8",
        ("i8", "whole_dots"): "avx512vnni or avxvnni",
        ("i8", "neon_dots"): "dotprod",
        ("i8", "neon_matrix_dots"): "i8mm",
        ("i8", "whole_neon_dots"): "dotprod",
        ("i8", "whole_neon_matrix_dots"): "i8mm",
        **{
            ("i8", f"{name}word_pairs{end}"): "avx2 or avx512bw or sse2"
            for name, end in (
                *((kind, "") for kind in ("", "wide_", "window_", "winograd_", "factor_", "whole_")),
                ("", "_to_f32"),
            )
        },
        ("bf16", "neon_dots"): "bf16",
        ("bf16", "neon_matrix_dots"): "bf16",
        ("bf16", "fused_winograd_neon"): "bf16",
        **{
            (dtype, name): needed
            for dtype in FOUR_BITS.values()
            for name, needed in (
                ("words_by_i4", "avx512vnni or avxvnni"),
                ("word_pairs_by_i4", "avx2 or avx512bw or sse2"),
            )
        },
    }
    assert needs == expected
    shown = call("sartor", "routines").stdout
    assert all(word in shown for word in ("needs of the CPU", "amx-int8", "f16"))


def test_an_unknown_precision_is_refused(model_file: ModelFile, tmp_path: Path) -> None:
    result = call("compile-to-vmfb", model_file(MODEL), "-o", tmp_path / "net.vmfb", "--precision", "bf8")
    assert (result.returncode, result.stdout) == (2, "")
    assert "bf8" in result.stderr


@needs_tiles
class TestTiles:
    """Where this process may use AMX."""

    def test_the_module_says_what_it_needs(self, tiled: Compiled, pinned: Compiled) -> None:
        assert read_manifest(tiled.module).features == ("amx-bf16",)
        shown = call("sartor", "inspect", tiled.module)
        assert "needs of the CPU" in shown.stdout
        assert "amx-bf16" in shown.stdout
        has_tiles = any(".tiles{" in layer.variant for layer in Plan.load(pinned.plan).layers)
        assert read_manifest(pinned.module).features == (("amx-bf16",) if has_tiles else ())

    def test_stock_tools_run_it_in_a_process_that_never_asked(
        self, tiled: Compiled, imported_of: ImportedOf, tmp_path: Path
    ) -> None:
        feeds = imported_of(MODEL).samples
        with Session(tiled.module, threads=1) as session:
            (expected,) = session.run(None, feeds)
        np.save(tmp_path / "x.npy", feeds["x"])
        for device in ("local-sync", "local-task"):
            tool = [str(Path(sys.executable).parent / "iree-run-module"), f"--device={device}", "--function=main_graph"]
            files = [f"--module={tiled.module}", f"--input=@{tmp_path / 'x.npy'}", f"--output=@{tmp_path / 'y.npy'}"]
            subprocess.run([*tool, *files], check=True, capture_output=True, timeout=60)
            np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)

    def test_where_they_are_refused_the_module_does_not_run(
        self, tiled: Compiled, refused: None, model_file: ModelFile, tmp_path: Path
    ) -> None:
        result = call("sartor", "run", tiled.module)
        assert_refused(result, 6, "needs amx-bf16, which this CPU lacks or its operating system withholds")
        with pytest.raises(UsageError, match="no routine for layer 'conv1' that this version offers"):
            replay_plan(model_file(MODEL), Plan.load(tiled.plan), tmp_path / "net.vmfb", CompileConfig(threads=1))

    def test_where_they_are_refused_layers_have_other_routines(self, refused: None, imported_of: ImportedOf) -> None:
        config = CompileConfig(threads=1, precision=Precision.BF16)
        found = find_candidates(imported_of(MODEL), config.planning)
        reasons = {rejection.reason for rejection in found.rejections if rejection.routine == "tiles"}
        assert "the operating system does not let programs use the CPU's amx-bf16" in reasons
        assert not [variant for variant in _variants(found) if variant.implementation.needs]
        assert any(variant.dtype == "bf16" for variant in _variants(found))
        granted = replace(config, target=replace(config.target, architecture="sapphirerapids", withheld=()))
        assert any(
            variant.implementation.needs for variant in _variants(find_candidates(imported_of(MODEL), granted.planning))
        )

    @pytest.fixture
    def refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Linux says no."""
        monkeypatch.setattr(amx, "tiles_granted", lambda: False)


def _variants(found: Candidates) -> list[Variant]:
    return [variant for variants in found.variants.values() for variant in variants]


def test_the_plan_in_the_module_is_the_plan_that_was_saved(pinned: Compiled) -> None:
    saved = Plan.load(pinned.plan)
    assert Plan.from_json(read_manifest(pinned.module).plan, "the module") == saved.unmeasured()
    assert "cpu:bf16@nhwc" in json.dumps(saved.to_json())
