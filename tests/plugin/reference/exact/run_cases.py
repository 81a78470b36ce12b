"""Program: runs cases by ONNX Runtime as it is, and by the reference; prints the errors of both as JSON.

Started by an emulator it says what ONNX Runtime does on another CPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from sartor.errors import SartorError
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.reference import OnnxRuntimeReference
from tests.plugin.onnx_model.builders import Array
from tests.plugin.reference.exact.fused_cases import fused_cases
from tests.plugin.reference.exact.nested_cases import nested_cases
from tests.plugin.reference.exact.saturating_cases import Case, cases

RUNTIMES: dict[str, Callable[..., Callable[[dict[str, Array]], list[Array]]]] = {
    "plain": partial(OnnxRuntimeReference, is_timed=True),
    "exact": ReferenceModel,
}
MODES = {"as it is": False, "optimised": True}


def all_cases() -> Iterator[Case]:
    """All cases."""
    yield from cases()
    yield from fused_cases()
    yield from nested_cases()


def errors_of(case: Case) -> dict[str, float | str]:
    """The errors of each runtime, without optimisations and with them."""
    return {
        f"{runtime} {mode}": _error(case, runtime, optimises=optimises)
        for runtime in RUNTIMES
        for mode, optimises in MODES.items()
    }


def _error(case: Case, runtime: str, *, optimises: bool) -> float | str:
    """The largest difference from the definition, relative to its largest value; or why the model does not run."""
    try:
        (found,) = RUNTIMES[runtime](case.model.SerializeToString(), threads=1, optimises=optimises)(case.feeds)
    except SartorError as error:
        return str(error)
    assert found.shape == case.expected.shape
    assert found.dtype == case.expected.dtype
    right = case.expected.astype(np.float64)
    return float(np.abs(found.astype(np.float64) - right).max() / np.abs(right).max())


if __name__ == "__main__":
    print(json.dumps({case.name: errors_of(case) for case in all_cases()}))
