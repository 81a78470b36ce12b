"""Convolutions and poolings of images of any size by kernels that read the image where it lies."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.variants.routine import Variant
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.kernels.layers import kernel_layer
from sartor.codegen.kernels.open_sizes.costs import OpenConvolutionCost, OpenWinogradCost
from sartor.codegen.kernels.open_sizes.patches import Side
from sartor.codegen.kernels.open_sizes.strips import Strips
from sartor.codegen.routines import FUSED_ROUTINES, routines_for
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.fuse_layers import apply_fusions
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from tests.dialect_passes.test_opening import TARGET, opened
from tests.open_models import named, saved
from tests.tiny_models import Builder

BATCH, HEIGHT, WIDTH = Symbol("n", 1, 3), Symbol("height", 1, 45), Symbol("width", 1, 57)
# One, less than the window, borders alone, one less and one more than tiles, and the largest.
SIZES = [(1, 1, 1), (3, 45, 57), (2, 2, 3), (1, 1, 57), (1, 45, 1), (1, 7, 5), (2, 29, 53), (1, 33, 31), (3, 13, 17)]


@dataclass(frozen=True)
class Fused:
    """A network whose fusions are all made, by the variant of this number of each."""

    graph: LayerGraph
    code: dict[str, Variant]

    def session(self, model: ImportedModel, path: Path) -> Session:
        build_net(SplitNetwork(self.graph, self.code), model.weights, TARGET, "", NetFiles(path, None))
        return Session(path, signature=net_signature((self.graph.inputs, self.graph.outputs)), threads=2)

    @property
    def routines(self) -> dict[str, str]:
        return {name.removesuffix(".nhwc").partition(".patches+")[0]: each.routine for name, each in self.code.items()}


def fused(graph: LayerGraph, number: int, routine: str = "") -> Fused:
    """All fusions, those of most layers where several have one, by the variant of this number; where ``routine`` has
    some, by one of its."""
    variants = list_candidates(graph, routines_for(frozenset()), TARGET, FUSED_ROUTINES).variants
    kernels = {key: [each for each in found if each.implementation.kernel] for key, found in variants.items()}
    possible = {fusion.members: fusion for fusion in graph.fusions if kernels[fusion.layer.task.key]}
    made = [fusion for members, fusion in possible.items() if not any({*members} < {*each} for each in possible)]
    found = apply_fusions(graph, [each.layer.name for each in made])
    code = {}
    for layer in found.layers:
        listed = kernels[layer.task.key]
        own = [variant for variant in listed if variant.routine == routine] or listed
        code[layer.name] = own[min(number, len(own) - 1)] if own else variants[layer.task.key][0]
    return Fused(found, code)


def windows() -> tuple[ModelProto, dict[str, str]]:
    """Windows of many kinds over images of 20 channels, and the routine that computes each."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (3, 20)))
    side = build.conv("side", "x", (3, 20), kernel=1)
    around = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    skewed = {"strides": [2, 1], "dilations": [1, 2], "pads": [3, 1, 2, 5]}
    outputs = {
        "skewed": build.op("Conv", "skewed", x, build.weight(40, 20, 5, 4), build.weight(40), **skewed),
        "added": build.op("Relu", "r1", build.op("Add", "sum", build.conv("added", x, (20, 20)), side)),
        "strided": build.op("Conv", "strided", x, build.weight(7, 20, 1, 1), strides=[2, 3]),
        "deep": build.op("Relu", "r2", build.conv("deep", x, (20, 20), group=20, strides=[2, 1])),
        "apart": build.op("Conv", "apart", x, build.weight(20, 1, 2, 5), pads=[2, 4, 1, 4], dilations=[3, 2], group=20),
        "largest": build.op("MaxPool", "largest", x, **around),
        "mean": build.op("AveragePool", "mean", x, count_include_pad=1, **around),
    }
    names = [build.op("Identity", f"y_{name}", value) for name, value in outputs.items()]
    model = build.model([("x", [1] * 4)], [(name, [1] * 4) for name in names])
    shapes = {name: [f"{dim}_{name}" for dim in "nchw"] for name in names}
    products = dict.fromkeys(("stem", "skewed", "added", "strided"), "open_convolution")
    return named(model, {"x": ["n", 3, "height", "width"], **shapes}), products | dict.fromkeys(
        ("deep", "apart", "largest", "mean"), "fused_open_window"
    )


def shape_of(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    return {"x": (sizes["n"], 3, sizes["height"], sizes["width"])}


def wrong_sizes(
    session: Session, path: Path, sizes: Collection[tuple[int, int, int]], most: float = 1e-5
) -> list[tuple[int, int, int]]:
    """The sizes at which results are not those of ONNX Runtime."""
    reference, wrong = OnnxRuntimeReference(path, threads=1), []
    for batch, height, width in sizes:
        x = np.random.default_rng((height, width)).standard_normal((batch, 3, height, width)).astype(np.float32)
        if not relative_error(session.run(None, {"x": x}), reference({"x": x})) < most:
            wrong.append((batch, height, width))
    return wrong


def test_windows_of_all_kinds_are_right_for_any_size(tmp_path: Path) -> None:
    model, routines = windows()
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], shape_of)
    network = fused(graph, 1)
    assert {name: network.routines.get(name) for name in routines} == routines
    session = network.session(given, tmp_path / "model.vmfb")
    assert wrong_sizes(session, path, SIZES) == []


@pytest.mark.parametrize("shares", [True, False])
def test_little_work_is_done_by_one_workgroup(shares: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes the shares of all; where it does its own alone, results of few places are wrong."""
    # Code of equal layers is made once.
    count, build = 21 + shares, Builder()
    image = build.op("Relu", "r0", build.conv("stem", "x", (3, count), kernel=1))
    build.op("MaxPool", "y", image, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    model = named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), {"x": ["n", 3, "height", "width"], "y": [*"nchw"]})
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, Symbol("height", 1, 45), Symbol("width", 1, 58)], shape_of)
    monkeypatch.setattr(kernel_layer, "_SHORT", 1e-6)
    if not shares:
        monkeypatch.setattr(Assembler, "repeat", _once(Assembler.repeat))
    session = fused(graph, 1).session(given, tmp_path / "model.vmfb")
    wrong = wrong_sizes(session, path, SIZES)
    assert (3, 45, 57) not in wrong
    assert ((1, 7, 5) in wrong) is not shares


def _once(repeat: Callable[..., None]) -> Callable[..., None]:
    """Loops, of which those over a known number of shares by a number of workgroups run once."""

    def patched(asm: Assembler, lower: Index, upper: Index, step: Index, body: Callable[[Index], None]) -> None:
        repeat(asm, lower, upper, step if isinstance(step, int) else 1 << 20, body)

    return patched


@pytest.mark.parametrize("number", [0, 9])
def test_convolutions_by_winograd_are_right_for_any_size(number: int, tmp_path: Path) -> None:
    """Of channels that fill no vector and no panel, with a bias, a sum and uneven borders; smaller than a tile, too."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (3, 20), kernel=1))
    wide = build.op("Conv", "wide", x, build.weight(37, 20, 3, 3), build.weight(37), pads=[1, 1, 1, 1])
    side = build.conv("side", "x", (3, 37), kernel=1)
    build.op("Identity", "y0", build.op("Relu", "r1", build.op("Add", "sum", wide, side)))
    build.op("Conv", "y1", x, build.weight(16, 20, 3, 3), pads=[2, 0, 1, 3])
    shapes = {"x": ["n", 3, "height", "width"], "y0": [*"nchw"], "y1": [*"NCHW"]}
    model = named(build.model([("x", [1] * 4)], [("y0", [1] * 4), ("y1", [1] * 4)]), shapes)
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], shape_of)
    network = fused(graph, number, "open_winograd")
    assert {name: network.routines.get(name) for name in ("wide", "y1")} == dict.fromkeys(
        ("wide", "y1"), "open_winograd"
    )
    assert wrong_sizes(network.session(given, tmp_path / "model.vmfb"), path, SIZES, 1e-4) == []


@pytest.mark.parametrize("number", [0, 1, 9])
def test_windows_before_a_product_are_right_for_any_size(number: int, tmp_path: Path) -> None:
    """Channels that fill no vector, places that fill no tile, and so many channels that a row of places is cut."""
    build = Builder()
    x = build.op("Relu", "r0", build.conv("stem", "x", (3, 20), kernel=1))
    deep = build.op("Relu", "r1", build.conv("deep", x, (20, 20), group=20))
    y = build.op("Relu", "r2", build.op("Add", "sum", build.conv("wide", deep, (20, 20), kernel=1), x))
    strided = build.op("Conv", "strided", x, build.weight(20, 1, 2, 5), pads=[2, 4, 1, 4], strides=[2, 1], group=20)
    pooled = build.op("MaxPool", "pooled", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    many = build.op("Relu", "r3", build.conv("many", x, (20, 600), kernel=1))
    long = build.conv("long", many, (600, 600), group=600)
    ends = {"a": (strided, 7), "b": (pooled, 37), "c": (long, 16)}
    depth = {"a": 20, "b": 20, "c": 600}
    names = [build.op("Identity", "y", y)]
    names += [build.conv(name, image, (depth[name], count), kernel=1) for name, (image, count) in ends.items()]
    model = build.model([("x", [1] * 4)], [(name, [1] * 4) for name in names])
    shapes = {name: [f"{dim}_{name}" for dim in "nchw"] for name in names}
    path = saved(named(model, {"x": ["n", 3, "height", "width"], **shapes}), tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], shape_of)
    network = fused(graph, number, "open_separable")
    assert [*network.routines.values()].count("open_separable") == 4
    assert wrong_sizes(network.session(given, tmp_path / "model.vmfb"), path, SIZES) == []


@pytest.mark.parametrize("number", [0, 1, 9])
def test_strips_of_images_are_right_for_any_size(number: int, tmp_path: Path) -> None:
    """Of few and of many channels, turned first and not, of one line of filters, and behind more of them than fit."""
    build = Builder()
    around = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    x = build.op("Relu", "r0", build.op("Conv", "stem", "x", build.weight(20, 3, 3, 3), build.weight(20), **around))
    skewed = {"strides": [1, 2], "dilations": [1, 2], "pads": [3, 1, 2, 5]}
    side = build.conv("side", x, (20, 37), kernel=1)
    outputs = {
        "skewed": build.op("Conv", "skewed", x, build.weight(40, 20, 5, 4), build.weight(40), **skewed),
        "added": build.op("Relu", "r1", build.op("Add", "sum", build.conv("added", x, (20, 37)), side)),
        "flat": build.op("Conv", "flat", x, build.weight(7, 20, 1, 5), pads=[0, 2, 0, 2]),
        "bare": build.op("Conv", "bare", x, build.weight(16, 20, 1, 1), strides=[1, 3]),
    }
    names = [build.op("Identity", f"y_{name}", value) for name, value in outputs.items()]
    model = build.model([("x", [1] * 4)], [(name, [1] * 4) for name in names])
    shapes = {name: [f"{dim}_{name}" for dim in "nchw"] for name in names}
    path = saved(named(model, {"x": ["n", 3, "height", "width"], **shapes}), tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, Symbol("width", 1, 901)], shape_of)
    network = fused(graph, number, "open_strips")
    expected = dict.fromkeys(("input.0.nhwc+stem", *outputs), "open_strips")
    assert {name: network.routines.get(name) for name in expected} == expected
    # One, less than a window, borders alone, lines of several strips, and around tiles and vectors.
    sizes = [
        (1, 1, 1),
        (2, 2, 3),
        (3, 45, 57),
        (1, 45, 1),
        (1, 7, 5),
        (1, 3, 901),
        (2, 1, 353),
        (1, 33, 31),
        (3, 13, 17),
    ]
    assert wrong_sizes(network.session(given, tmp_path / "model.vmfb"), path, sizes) == []


def test_a_strip_that_leaves_out_a_border_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder()
    build.op("Conv", "y", "x", build.weight(16, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    model = named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), {"x": ["n", 3, "height", "width"], "y": [*"nchw"]})
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], shape_of)
    monkeypatch.setattr(Strips, "_zeros", lambda *_: None)
    network = fused(graph, 0, "open_strips")
    assert "open_strips" in network.routines.values()
    # What an earlier line left lies there.
    assert wrong_sizes(network.session(given, tmp_path / "model.vmfb"), path, [(3, 45, 57)]) == [(3, 45, 57)]


def test_images_are_transposed_and_joined_for_any_size(tmp_path: Path) -> None:
    """Few channels, as many as fill vectors, and numbers around these; with and without ops behind."""
    build, counts = Builder(), (1, 3, 8, 9, 20, 32, 37)
    images = [build.conv(f"c{count}", "x", (3, count), kernel=1) for count in counts]
    joined = build.op("Relu", "relu", build.op("Concat", "some", *images[1:5], axis=1))
    everything = build.op("Concat", "all", joined, *images, axis=1)
    few = build.op("Relu", "r1", build.op("Concat", "few", images[5], images[1], axis=1))
    after = build.conv("after", few, (35, 19), kernel=1)
    ends = everything, joined, after, *images
    names = [build.op("Identity", f"y{index}", each) for index, each in enumerate(ends)]
    model = build.model([("x", [1] * 4)], [(name, [1] * 4) for name in names])
    shapes = {name: [f"{dim}_{name}" for dim in "nchw"] for name in names}
    path = saved(named(model, {"x": ["n", 3, "height", "width"], **shapes}), tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], shape_of)
    network = fused(graph, 0)
    found = [*network.routines.values()]
    # Of one channel nothing is transposed.
    assert (found.count("open_join"), found.count("open_transpose")) == (2, len(names))
    assert found.count("open_joined_product") == 1
    assert wrong_sizes(network.session(given, tmp_path / "model.vmfb"), path, SIZES) == []


def test_images_are_enlarged_for_any_size(tmp_path: Path) -> None:
    """By other factors along both sides, joined with others or alone, behind and before other operators, in batches."""
    build = Builder()

    def enlarged(name: str, image: str, *factors: int) -> str:
        scales = build.constant(np.array([1, 1, *factors], np.float32))
        settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
        return build.op("Resize", name, image, "", scales, **settings)

    small = build.op("Relu", "r0", build.conv("small", "x", (3, 20), kernel=1))
    wide = build.op("Concat", "wide", enlarged("e0", small, 2, 3), build.conv("c1", "large", (5, 16)), axis=1)
    ends = {
        "joined": build.conv("deep", wide, (36, 36), group=36),
        "multiplied": build.conv("product", wide, (36, 9), kernel=1),
        "alone": build.op("Relu", "r1", enlarged("e1", build.conv("c2", "x", (3, 37), kernel=1), 3, 1)),
    }
    names = [build.op("Identity", name, value) for name, value in ends.items()]
    inputs = [("x", [1] * 4), ("large", [1] * 4)]
    model = build.model(inputs, [(name, [1] * 4) for name in names])
    dims: dict[str, list[int | str]] = {"x": ["n", 3, "height", "width"], "large": ["n", 5, "H", "W"]}
    for name in names:
        dims[name] = [f"{dim}_{name}" for dim in "nchw"]
    path = saved(named(model, dims), tmp_path / "model.onnx")

    def own(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        batch, height, width = (sizes[each.name] for each in (BATCH, HEIGHT, WIDTH))
        return {"x": (batch, 3, height, width), "large": (batch, 5, 2 * height, 3 * width)}

    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], own)
    network = fused(graph, 0)
    assert [*network.routines.values()].count("open_join") == 2
    session, reference = network.session(given, tmp_path / "model.vmfb"), OnnxRuntimeReference(path, threads=1)
    for batch, height, width in SIZES:
        shapes_of = own({"n": batch, "height": height, "width": width})
        random = np.random.default_rng(width)
        feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes_of.items()}
        assert relative_error(session.run(None, feeds), reference(feeds)) < 1e-5, (batch, height, width)


def test_an_enlarged_image_may_have_no_pixels(tmp_path: Path) -> None:
    """Its kernel divides by the width of the result, by which a processor stops if it is zero."""
    build = Builder()
    small = build.op("Relu", "r0", build.op("Conv", "small", "x", build.weight(20, 3, 3, 3)))
    scales = build.constant(np.array([1, 1, 2, 2], np.float32))
    settings = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
    build.op("Relu", "y", build.op("Resize", "large", small, "", scales, **settings))
    model = named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), {"x": [1, 3, 8, "width"], "y": [1, 20, "h", "w"]})
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [Symbol("width", 2, 57)], lambda sizes: {"x": (1, 3, 8, sizes["width"])})
    network = fused(graph, 0)
    assert network.routines["large"] == "open_join"
    session = network.session(given, tmp_path / "model.vmfb")
    (found,) = session.run(None, {"x": np.ones((1, 3, 8, 2), np.float32)})
    assert found.shape == (1, 20, 12, 0)
    assert wrong_sizes(session, path, [(1, 8, 3), (1, 8, 57)]) == []


def test_rows_that_are_read_behind_their_product_and_few_elements_are_right_for_any_size(tmp_path: Path) -> None:
    """Joined rows that a product is added to lie in memory as a whole; fewer elements than a vector has are turned."""
    build = Builder()
    joined = build.op("Concat", "joined", build.op("MatMul", "first", "x", build.weight(16, 9)), "x", axis=1)
    build.op("Add", "y", build.op("MatMul", "product", joined, build.weight(25, 25)), joined)
    build.op("Transpose", "t", "few", perm=[1, 0])
    model = build.model([("x", [1, 16]), ("few", [1, 2])], [("y", [1, 25]), ("t", [2, 1])])
    dims: dict[str, list[int | str]] = {"x": ["rows", 16], "y": ["rows", 25], "few": ["count", 2], "t": [2, "count"]}
    path = saved(named(model, dims), tmp_path / "model.onnx")
    symbols = [Symbol("rows", 1, 200), Symbol("count", 1, 3)]
    graph, given = opened(path, symbols, lambda sizes: {"x": (sizes["rows"], 16), "few": (sizes["count"], 2)})
    network = fused(graph, 0, "open_joined_product")
    assert network.routines["joined"] == "open_join"
    assert network.routines["t"] == "open_transpose"
    session, reference = network.session(given, tmp_path / "model.vmfb"), OnnxRuntimeReference(path, threads=1)
    for rows, count in ((1, 1), (200, 2), (77, 3)):
        shapes = {"x": (rows, 16), "few": (count, 2)}
        feeds = {name: np.random.default_rng(rows).random(shape, np.float32) for name, shape in shapes.items()}
        assert relative_error(session.run(None, feeds), reference(feeds)) < 1e-5, shapes


def test_a_border_that_is_off_by_one_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder()
    build.conv("y", build.conv("x1", "x", (3, 8), group=1), (8, 8), group=8)
    model = named(build.model([("x", [1] * 4)], [("y", [1] * 4)]), {"x": ["n", 3, "height", "width"], "y": [*"nchw"]})
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT, WIDTH], shape_of)

    def hits(side: Side, asm: Assembler, pixel: Index) -> object:
        return asm.all_of(asm.less(0, pixel), asm.less(pixel, asm.size(side.input)))

    # Patches of the first with its product, strips of its image, and patches of the other.
    assert [fusion.layer.nodes for fusion in graph.fusions] == [("x1",), ("x1",), ("y",)]
    monkeypatch.setattr(Side, "hits", hits)
    assert wrong_sizes(fused(graph, 0).session(given, tmp_path / "wrong.vmfb"), path, SIZES) == SIZES


@pytest.mark.parametrize("width", [16, 5])
def test_windows_of_images_whose_width_is_given_are_right(width: int, tmp_path: Path) -> None:
    build = Builder()
    deep = build.conv("deep", build.conv("stem", "x", (3, 8)), (8, 8), group=8, strides=[2, 2])
    y = build.op("MaxPool", "largest", deep, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    model = named(build.model([("x", [1] * 4)], [(y, [1] * 4)]), {"x": ["n", 3, "height", width], y: [*"nchw"]})
    path = saved(model, tmp_path / "model.onnx")
    graph, given = opened(path, [BATCH, HEIGHT], lambda sizes: {"x": (sizes["n"], 3, sizes["height"], width)})
    network = fused(graph, 1)
    assert {"fused_open_window"} <= {*network.routines.values()}
    session = network.session(given, tmp_path / "model.vmfb")
    assert wrong_sizes(session, path, [(1, 1, width), (3, 45, width), (2, 6, width)]) == []


@pytest.mark.parametrize("places", [{"rows": 1, "columns": 6400}, {"rows": 40, "columns": 160}])
def test_winograds_method_is_predicted_by_places_however_they_are_counted(places: dict[str, int]) -> None:
    sizes = {"batch": 1, "channels": 64, "depth": 9 * 64, **places}
    tiles = {"columns": 11, "vectors": 2, "unroll": 2}
    direct = OpenConvolutionCost().cycles(sizes, tiles)
    encoded = OpenWinogradCost().cycles(sizes, {"height": 4, "width": 4, "block": 44, **tiles})
    assert 1 / 4 < encoded / direct < 3 / 4
