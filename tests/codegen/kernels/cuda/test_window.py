"""Windows by the interpreter."""

from __future__ import annotations

import pytest

from sartor.codegen.kernels.cuda.window import ThreadWindow
from sartor.codegen.kernels.emit.gpu.threads import ThreadAssembler
from sartor.codegen.routines.cuda.thread_window import ThreadWindows
from tests.codegen.kernels.cuda.subjects import Known, built
from tests.codegen.routines.layer_cases import Cases
from tools.cuda.memory import KernelFault

MAX_ERROR = 1e-6


@pytest.fixture(scope="module")
def known() -> Known:
    cases = Cases()
    cases.convolution("depthwise", (2, 12, 5, 7), 12, groups=12, residual=True)
    cases.convolution("stride", (1, 6, 9, 8), 6, stride=2, groups=6)
    cases.convolution("wide", (1, 5, 7, 9), 5, (7, 5), groups=5)
    cases.pool("maximum", "MaxPool", (1, 8, 9, 9), (1, 8, 5, 5), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    cases.pool("average", "GlobalAveragePool", (2, 8, 6, 6), (2, 8, 1, 1))
    return Known.of(cases)


@pytest.mark.parametrize("pixels", [1, 2, 4])
@pytest.mark.parametrize("name", ["depthwise", "stride", "wide", "maximum"])
def test_a_window_is_right(name: str, pixels: int, known: Known) -> None:
    error, _ = known.error(name, built(ThreadWindows(), known.layer(name), {"pixels": pixels}))
    assert error < MAX_ERROR


@pytest.mark.parametrize(("storage", "most"), [(None, MAX_ERROR), ("f16", 1e-3)])
def test_all_of_an_image_is_a_window(storage: str | None, most: float, known: Known) -> None:
    error, _ = known.error("average", built(ThreadWindows(storage=storage), known.layer("average"), {"pixels": 1}))
    assert error < most


def test_an_edge_that_is_not_checked_is_found(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    code = built(ThreadWindows(), known.layer("depthwise"), {"pixels": 2})
    monkeypatch.setattr(ThreadAssembler, "within", lambda self, index, end: True)
    with pytest.raises(KernelFault, match="of a buffer of"):
        known.error("depthwise", code)


def test_threads_without_work_are_found(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    code = built(ThreadWindows(), known.layer("stride"), {"pixels": 1})
    monkeypatch.setattr(ThreadWindow, "_work", property(lambda self: 128))
    with pytest.raises(KernelFault, match="of a buffer of"):
        known.error("stride", code)
