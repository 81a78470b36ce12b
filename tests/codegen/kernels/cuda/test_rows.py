"""Layers on rows by the interpreter."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.variants.routine import Rejected, variant_of
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.routines.cuda.warp_rows import WarpRow
from tests.codegen.kernels.cuda.subjects import GPU, Known, built
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.memory import KernelFault


@pytest.fixture(scope="module")
def known() -> Known:
    cases = Cases()
    cases.rows("softmax", "Softmax", (3, 5, 37))
    cases.rows("norm", "LayerNormalization", (6, 200), 2)
    cases.rows("long", "Softmax", (2, 5000))
    return Known.of(cases)


@pytest.mark.parametrize("name", ["softmax", "norm"])
@pytest.mark.parametrize(("storage", "most"), [(None, 2e-6), ("f16", 2e-3)])
def test_rows_are_right(name: str, storage: str | None, most: float, known: Known) -> None:
    error, (counts,) = known.error(name, built(WarpRow(storage=storage), known.layer(name), {}))
    assert error < most
    assert counts.shared_bytes == 0


def test_rows_that_do_not_fit_registers_are_refused(known: Known) -> None:
    found = variant_of(WarpRow(), known.layer("long").task, {}, GPU)
    assert isinstance(found, Rejected)
    assert "rows of 5000 elements" in found.reason


def test_a_lane_that_is_not_asked_is_found(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = ThreadAssembler.from_lane
    monkeypatch.setattr(ThreadAssembler, "from_lane", lambda self, value, distance: ask(self, value, distance & 15))
    error, _ = known.error("softmax", built(WarpRow(), known.layer("softmax"), {}))
    assert error > 1e-2


def test_a_row_beyond_the_last_is_found(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadAssembler, "minimum", lambda self, one, other: one)
    code = built(WarpRow(), known.layer("softmax"), {})
    with pytest.raises(KernelFault, match="of a buffer of"):
        known.error("softmax", code)
