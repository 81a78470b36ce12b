"""Numbers in the code of images of any size: means over sides that were halved and rounded, and last rows as floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.sizes.dims import Extent, Product, Symbol
from sartor.codegen.ir.sizes.fit import Fit
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from tests.dialect_passes.test_opening import opened, opened_session
from tests.open_models import named, saved
from tests.tiny_models import Builder

BATCH, HEIGHT, WIDTH = Symbol("n", 1, 3), Symbol("height", 8, 48, 8), Symbol("width", 8, 44, 4)


def test_means_over_rounded_sides_and_resized_images_are_right_for_any_size(tmp_path: Path) -> None:
    """A mean divides by the product of two sides, one of which is rounded; a doubled side ends at a last row, which is
    two for some sizes, as the factor is; and the bias of the last convolution is repeated for few batches."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (2, 4), strides=[2, 2]))
    pooled = build.op("MaxPool", "pooled", x, kernel_shape=[2, 2], strides=[2, 2])
    rounded = build.op("MaxPool", "rounded", pooled, kernel_shape=[2, 2], strides=[2, 2])
    scale = build.conv("scale", build.op("GlobalAveragePool", "mean", rounded), (4, 4), kernel=1)
    scaled = build.op("Mul", "scaled", pooled, build.op("Sigmoid", "share", scale))
    factors = build.constant(np.array([1, 1, 2, 2], np.float32))
    given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    larger = build.op("Resize", "larger", scaled, "", factors, **given)
    build.op("Relu", "y", build.conv("one", larger, (4, 1), kernel=1))
    dims: dict[str, list[int | str]] = {"x": ["n", 2, "height", "width"], "y": ["n", 1, "h", "w"]}
    path = saved(named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), dims), tmp_path / "model.onnx")
    graph, model = opened(
        path, [BATCH, HEIGHT, WIDTH], lambda sizes: {"x": (sizes["n"], 2, sizes["height"], sizes["width"])}
    )
    session = opened_session(graph, model, tmp_path / "model.vmfb", by_kernels=True)
    reference = OnnxRuntimeReference(path, threads=1)
    for batch, height, width in [(3, 48, 44), (1, 8, 8), (2, 24, 12), (1, 40, 20), (3, 16, 36)]:
        image = np.random.default_rng(width).standard_normal((batch, 2, height, width)).astype(np.float32)
        expected = reference({"x": image})
        # Sums that cancel are rectified.
        assert relative_error(session.run(None, {"x": image}), expected) < 1e-4, (batch, height, width)


def test_a_number_is_a_product_of_rounded_sizes_where_these_are_known() -> None:
    fit = Fit.of([HEIGHT, WIDTH])
    high, rounded = Extent.of((HEIGHT,), 1, 0, 2), Extent.of((WIDTH,), 1, 0, 8)
    known = fit.knowing([high, rounded])
    values = high.most * rounded.most, high.at(fit.twin_sizes) * rounded.at(fit.twin_sizes)
    found = known.amount(*values)
    assert isinstance(found, Product)
    assert found.at({"height": 16, "width": 20}) == 8 * 2
    assert known.amount(high.most - 1, high.at(fit.twin_sizes) - 1) == high.plus(-1)
    with pytest.raises(ValueError, match="is no product of them"):
        fit.amount(*values)
