"""A module that keeps states is checked by calls one after another, which show what single runs do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.codegen.ir.states import StatePair
from sartor.codegen.linking import stitching
from sartor.codegen.linking.stitching import Stitched
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.states import state_pairs
from sartor.policies import StatePolicy
from sartor.profiling.state_check import CALLS, SATURATED, CallErrors, scales_of_calls, verify_states
from sartor.profiling.verify_job import Check
from sartor.reference.expected_outputs import Expected
from sartor.runtime.manifest import STATES_FORMAT
from sartor.runtime.session import Session
from sartor.samples.given_samples import HeldSamples
from sartor.tuning.errors.error_measures import RELATIVE
from sartor.tuning.networks import build_job
from sartor.tuning.networks.build_job import NetFiles
from sartor.tuning.networks.profile_job import NetRun
from sartor.tuning.records.measurement import Status
from tests.codegen.linking.test_stitching import build, split
from tests.importing import imported_model
from tests.state_models import recurrent

Edit = Callable[[str], str]
WRONG = 1e-2


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    found = imported_model(recurrent(), states=StatePolicy(finds=True))
    assert [(state.input, state.output) for state in found.states] == [("h", "hn"), ("c", "cn")]
    return found


def checked(imported: ImportedModel, module: Path) -> CallErrors:
    random = np.random.default_rng(0)
    draw = {name: sample.shape for name, sample in imported.samples.items()}
    samples = [
        {name: random.standard_normal(shape).astype(np.float32) for name, shape in draw.items()} for _ in range(4)
    ]
    check = Check(
        files=NetFiles(module, None),
        values=(imported.graph.inputs, imported.graph.outputs),
        models=(imported.path, imported.prepared),
        samples=HeldSamples(tuple(samples)),
        count=4,
        measure=RELATIVE,
        narrow=False,
        device="cpu",
        threads=1,
    )
    found = verify_states(check, imported.states)
    assert isinstance(found, CallErrors), found
    assert len(found.errors) == len(found.where) == sum(CALLS)
    return found


def built(imported: ImportedModel, folder: Path, states: tuple[StatePair, ...]) -> Path:
    net, module = replace(split(imported), states=states), folder / "net.vmfb"
    build(imported, net, NetFiles(module, None), states=imported.states, format=STATES_FORMAT)
    return module


def not_written(text: str) -> str:
    """The last state stays what it was: its buffers do not change places."""
    stores = re.compile(r"^util\.global\.store %(?:read|written)1, .*\n", re.MULTILINE)
    edited, count = stores.subn("", text)
    assert count == 4
    return edited


def stale(text: str) -> str:
    """A reset writes to the buffer of the last state that the next call writes itself."""
    before, head, after = text.partition("util.func private @state$start(")
    body, end, rest = after.partition("\n}")
    assert "@state$1 :" in body
    return before + head + body.replace("@state$1 :", "@state$1$next :") + end + rest


def test_a_right_module_is_right_in_all_calls(imported: ImportedModel, tmp_path: Path) -> None:
    module = built(imported, tmp_path, state_pairs(imported))
    found = checked(imported, module)
    assert max(found.errors) < 1e-5
    before = NetRun(Status.OK, (1.0,), error=1e-3, message="before")
    assert found.run(before) is before
    assert found.run(replace(before, error=0.0)).error == max(found.errors)
    with Session(module, threads=1) as session:
        assert [each.name for each in session.get_inputs()] == ["x"]


@pytest.mark.parametrize(("edit", "first_wrong"), [(not_written, 0), (stale, CALLS[0])])
def test_a_fault_in_the_code_of_states_is_seen(
    edit: Edit, first_wrong: int, imported: ImportedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stitch(*arguments: Any) -> Stitched:
        right = stitching.stitch(*arguments)
        return replace(right, text=edit(right.text))

    monkeypatch.setattr(build_job, "stitch", stitch)
    found = checked(imported, built(imported, tmp_path, state_pairs(imported)))
    assert found.errors[first_wrong] > WRONG
    run = found.run(NetRun(Status.OK, error=0.0))
    assert run.error == max(found.errors)
    assert run.message.startswith(" in output '")


def test_a_state_of_another_pair_is_seen(imported: ImportedModel, tmp_path: Path) -> None:
    one, other = state_pairs(imported)
    swapped = (replace(one, output=other.output), replace(other, output=one.output))
    found = checked(imported, built(imported, tmp_path, swapped))
    assert min(found.errors) > WRONG


def test_what_saturated_gates_leave_is_not_a_scale_and_masks_are_none() -> None:
    cells = np.random.default_rng(0).uniform(0.5, 5.0, (2, 1, 128)).astype(np.float32)
    cells[1, 0, 85], cells[1, 0, 86] = -1.5e-10, 5.0
    mask = np.full((1, 8), -1e9, np.float32)
    mask[0, :4] = (0.5, 1.0, 0.25, 2.0)
    right = Expected([cells, mask, np.array([3])], [np.full_like(cells, 4e-9), np.full_like(mask, 4e-9), np.ones(1)])
    scales = scales_of_calls(right)
    assert scales[0][1, 0, 85] == 5.0 * SATURATED
    assert scales[1][0, :4].max() <= 2.0
    assert scales[2].tolist() == [1.0]


def test_an_error_that_grows_is_told() -> None:
    grown = CallErrors((1e-6, 1e-5, 1e-4, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 1e-6, 1e-5, 1e-4), (" in output 'y'",) * 11)
    run = grown.run(NetRun(Status.OK, error=1e-6))
    assert (run.error, run.message) == (5e-3, " in output 'y'")
    assert grown.sentence == ("it is that of call 8, with states kept by the module, and grew from 1e-06 in the first")
    stale = CallErrors((*(1e-6,) * 8, 0.5, 0.4, 0.3), ("",) * 11)
    assert stale.sentence == "it is that of call 1 after a reset, with states kept by the module"
    undefined = CallErrors((1e-6, float("nan"), *(1e-6,) * 9), ("",) * 11)
    assert np.isnan(undefined.run(NetRun(Status.OK, error=1e-6)).error or 0)
