"""Networks of open sizes as they are imported: layers, padding, and sizes that nobody bound."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from onnx import TensorProto

import sartor
from sartor.api import compile
from sartor.artifact import Artifact
from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.config import CompileConfig
from sartor.errors import RewriteError, UnsupportedModelError, UsageError
from sartor.onnx_model.dynamic.open_bounds import UnboundSizesError
from sartor.open_sizes import importing, unbound
from sartor.open_sizes.compilation import OpenConfig
from sartor.open_sizes.same_pads import check_multiples, needed_multiples
from sartor.open_sizes.sized_nets import SizedNets, SizedRuns
from sartor.open_sizes.symbols import OpenDims
from sartor.policies import ImportPolicy
from sartor.profiling.network_runner import NetRunner
from sartor.settings.size_range import SizeRange
from sartor.tuning.errors.error_budget import ErrorBudget
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from sartor.tuning.selection.problem.cost import Objective
from tests.open_models import POSITIONS, encoder, feed_forward, saved
from tests.tiny_models import Builder

DIMS = OpenDims({"x": ("n", 4)}, {"x": (SizeRange(1, 8), 4)})


@pytest.mark.parametrize(
    ("simplified", "imports"),
    [({8: True, 7: True}, 1), ({8: False, 7: False}, 1), ({8: True, 7: False}, 2), ({8: False, 7: True}, 2)],
)
def test_all_sizes_are_simplified_or_none(
    simplified: dict[int, bool],
    imports: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    asked = list[list[bool]]()

    def imported(_: Path, settings: list[tuple[ImportPolicy, Path]], *__: object) -> list[Any]:
        asked.append([policy.simplifies for policy, _ in settings])
        assert len({folder for _, folder in settings}) == len(settings)
        return [Mock(is_simplified=policy.simplifies and simplified[policy.shapes["x"][0]]) for policy, _ in settings]

    monkeypatch.setattr(importing, "import_networks", imported)
    with caplog.at_level(logging.WARNING):
        bench = Mock(directory=tmp_path, imported=[])
        found = importing._alike(Path("m"), [{"n": 8}, {"n": 7}], DIMS, CompileConfig(), bench)
    assert len({each.is_simplified for each in found}) == 1
    # What is kept of any of them is forgotten if no file is right.
    assert len(bench.imported) == 2 * imports
    assert all(each in bench.imported for each in found)
    assert asked == [[True, True], [False, False]][:imports]
    assert ("imported again" in caplog.text) == (imports == 2)


def _nets(monkeypatch: pytest.MonkeyPatch, by_layers: Any, errors: Sequence[float], **settings: Any) -> SizedNets:
    """Networks whose outputs have these errors with the largest sizes, and with 1 and 7."""
    budget = ErrorBudget(RELATIVE, 1e-3, **settings)
    runs = [NetRun(Status.OK, (1.0,), error) for error in errors]
    monkeypatch.setattr(NetRunner, "verify", lambda *_: runs[0])
    monkeypatch.setattr(NetRunner, "judged", by_layers)
    others = []
    for size, run in zip((1, 7), runs[1:], strict=True):
        runner = Mock(budget=budget, judged=by_layers)
        runner.verify.return_value = run
        others.append(SizedRuns(SizedCall((("n", size),), 0.0), runner))
    return SizedNets(Mock(), Mock(), budget, 1.0, others)


def _right(*_: object) -> NetRun:
    return NetRun(Status.OK, (1.0,), 0.0, layers="each of 4 layers is exact")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"amplifies": True, "rounds": True}, "with n=7: each of 4 layers is exact"),
        ({"amplifies": True, "rounds": True, "given": 1e-2}, ""),
        ({"amplifies": True}, ""),
    ],
)
def test_layers_are_compared_at_a_size(settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _nets(monkeypatch, _right, [0.0, 0.0, 0.0], **settings).judged(Mock())
    assert (run.status, run.layers) == (Status.OK, said)


@pytest.mark.parametrize("errors", [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]])
def test_layers_are_asked_where_the_outputs_of_a_size_do_not_tell(
    errors: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Mock()
    build.recipe.plan.unsplit = False
    run = _nets(monkeypatch, _right, errors, amplifies=True, rounds=True).judged(build)
    assert run.status is Status.OK
    wrong = Mock(return_value=NetRun(Status.WRONG_RESULT, message="layer 'up' is wrong"))
    run = _nets(monkeypatch, wrong, errors, amplifies=True, rounds=True).judged(build)
    assert run.status is Status.WRONG_RESULT
    assert "layer 'up' is wrong" in run.message
    # Without rounding the error is one of the module.
    run = _nets(monkeypatch, _right, errors).judged(build)
    assert run.status is Status.WRONG_RESULT


def test_a_wrong_rewrite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Mock(side_effect=RewriteError("internal: it differs"))
    with pytest.raises(RewriteError):
        _nets(monkeypatch, wrong, [0.0, 0.0, 0.0], amplifies=True, rounds=True).judged(Mock())


def _needed(folder: Path, **last: Any) -> dict[str, int]:
    """What a model of two convolutions with strides needs, the last of which has these attributes."""
    build = Builder()
    first = build.op("Conv", "first", "x", build.weight(4, 3, 3, 3), strides=[2, 2], pads=[1] * 4)
    side = build.op("Conv", "side", "fixed", build.weight(4, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    build.op("Conv", "y", build.op("Relu", "r", first), build.weight(4, 4, 3, 3), **last)
    model = build.model([("x", [1, 3, 8, 8]), ("fixed", [1, 3, 8, 8])], [("y", [1]), (side, [1])], TensorProto.FLOAT)
    found = needed_multiples(saved(model, folder / "m.onnx"), frozenset({"x"}))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("border", ["SAME_UPPER", "SAME_LOWER"])
def test_strides_before_a_window_count_with_its_own(border: str, tmp_path: Path) -> None:
    assert _needed(tmp_path, strides=[2, 2], auto_pad=border) == {"node 'y' (Conv)": 4}


@pytest.mark.parametrize(
    "given",
    [{"auto_pad": "SAME_UPPER"}, {"strides": [2, 2], "auto_pad": "VALID"}, {"strides": [2, 2], "pads": [1] * 4}],
)
def test_other_padding_is_the_same_for_all_sizes(given: dict[str, Any], tmp_path: Path) -> None:
    assert _needed(tmp_path, **given) == {}


def test_the_message_has_a_range_that_works() -> None:
    needed = {"node 'y' (Conv)": 4}
    with pytest.raises(UnsupportedModelError, match=r"node 'y' .*multiples of 4, as 32\.\.96:4") as refused:
        check_multiples(needed, {"x": (Symbol("height", 30, 97),)})
    assert "30|97" in str(refused.value)
    check_multiples(needed, {"x": (Symbol("height", 32, 96, 4), Symbol("width", 32, 640, 32))})


def test_the_range_works_for_all_nodes() -> None:
    needed = {"node 'a' (Conv)": 2, "node 'b' (Conv)": 3}
    with pytest.raises(UnsupportedModelError, match=r"multiples of 6, as 12\.\.24:6"):
        check_multiples(needed, {"x": (Symbol("height", 10, 27),)})
    check_multiples(needed, {"x": (Symbol("height", 12, 24, 6),)})


def test_sides_are_dimensions_after_the_first() -> None:
    rows, sides = SizeRange(1, 8), SizeRange(32, 64, 32)
    dims = OpenDims({"x": ("n", 3, "h", "w"), "ids": ("n",)}, {"x": (rows, 3, sides, 48), "ids": (rows,)})
    assert dims.sides == {"x": (Symbol("h", 32, 64, 32),)}


NAMES = "input_ids", "attention_mask"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[OpenConfig]:
    """The settings of files for any size that are asked for; none is made."""
    found: list[OpenConfig] = []

    def compile_open(model: Path, output: Path, config: OpenConfig, *_: object) -> Artifact:
        found.append(config)
        plan: Any = None
        return Artifact(output, plan, None, 0)

    for module in (unbound, sartor.api):
        monkeypatch.setattr(module, "compile_open", compile_open)
    return found


def test_a_model_without_sizes_is_compiled_for_any_up_to_its_bounds(opened: list[OpenConfig], tmp_path: Path) -> None:
    path = saved(encoder(), tmp_path / "net.onnx")
    compile(path, CompileConfig(threads=1, database=tmp_path / "tuning.db"))
    assert opened[0].shapes == dict.fromkeys(NAMES, (SizeRange(1, 8), SizeRange(1, POSITIONS)))
    assert opened[0].sources[0] == "batch=1..8, the usual bound"
    assert opened[0].sources[-1].startswith(f"for other sizes change --shape input_ids=1..8,1..{POSITIONS}")


def test_what_cannot_be_made_for_any_size_is_refused_as_before(opened: list[OpenConfig], tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "net.onnx")
    config = CompileConfig(threads=1, database=tmp_path / "tuning.db", objective=Objective.COLD_LATENCY)
    with pytest.raises(UnboundSizesError, match="bind it with --shape x="):
        compile(path, config)
    assert not opened


def test_ranges_are_given_as_texts_from_python(opened: list[OpenConfig], tmp_path: Path) -> None:
    path = saved(feed_forward(), tmp_path / "net.onnx")
    log = tmp_path / "rows.txt"
    compile(path, shapes={"x": ("1..64", 24)}, calls=log)
    assert opened[0].shapes == {"x": (SizeRange(1, 64), 24)}
    assert opened[0].log is not None
    assert opened[0].log.path == log
    with pytest.raises(UsageError, match=r"shapes\['x'\] is '64-', expected an integer"):
        compile(path, shapes={"x": ("64-", 24)})


def test_a_failure_tells_which_sizes_were_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: object) -> Artifact:
        raise UnsupportedModelError("it divides by a root")

    monkeypatch.setattr(unbound, "compile_open", fails)
    path = saved(feed_forward(), tmp_path / "net.onnx")
    told = r"nor can a file for any size be made, as by --shape x=1\.\.8,24: .* by a root"
    with pytest.raises(UnsupportedModelError, match=told):
        compile(path, CompileConfig(threads=1, database=tmp_path / "tuning.db"))
