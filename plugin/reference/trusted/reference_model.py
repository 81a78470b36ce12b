"""Worker side: a model as a callable whose results are trusted, by ONNX Runtime's CPU provider."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from sartor.reference.trusted.exact.exact_copy import exact_copy
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference


class ReferenceModel:
    """Computes what a model means. All checks of results use it; peers that are timed are run as their makers set them.

    Products of 8-bit integers are exact on every CPU (``exact_copy``).

    Attributes:
        input_names: of the model.
        output_names: without outputs that only count the elements of others, if these are cut.
        cut_names: of the outputs that are cut to a count.
    """

    def __init__(
        self,
        model: Path | bytes,
        *,
        threads: int | None = None,
        optimises: bool = True,
        layouts: bool = True,
        cuts: bool = True,
    ) -> None:
        """Load a model.

        Args:
            model: path or content of an ONNX file.
            threads, optimises, layouts, cuts: as for ``OnnxRuntimeReference``.

        Raises:
            UsageError: if ``threads`` is below 1.
            SartorError: if weights in another file cannot be read.
            UnsupportedModelError: if the model cannot be loaded.
        """
        self._runtime = OnnxRuntimeReference(
            exact_copy(model) or model,
            folder=model.parent if isinstance(model, Path) else None,
            threads=threads,
            optimises=optimises,
            layouts=layouts,
            cuts=cuts,
        )
        self.input_names = self._runtime.input_names
        self.output_names = self._runtime.output_names
        self.cut_names = self._runtime.cut_names

    def __call__(self, feeds: Mapping[str, Array], seconds: float = math.inf) -> list[Array]:
        """Run the model; returns all outputs in the model's order.

        Args:
            feeds: an array for each input.
            seconds: after which the run is given up, once the operator that is busy has ended.

        Raises:
            UsageError: if the feeds do not fit the model, or running it fails.
            ReferenceFailedError: if it did not end in time.
        """
        return self._runtime(feeds, seconds)
