"""Stitched modules: as right as ONNX Runtime in every layout, the same bytes every time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.layer import ENTRY, Layer, LayerKind, Task, TensorType, ValueRef
from sartor.codegen.ir.schema import QUANTISED, Schema
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Variant, dtype_of
from sartor.codegen.linking.functions.entries import Entry, Port
from sartor.codegen.linking.functions.quoted import quoted
from sartor.codegen.linking.pieces import Piece, Stitching
from sartor.codegen.linking.stitching import stitch
from sartor.codegen.mlir.dispatches import DispatchCode
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.rewriting.convert import Converted, convert_images, has_images
from sartor.codegen.routines.iree.stock import Stock
from sartor.config import CompileConfig
from sartor.frontend.imported_model import ImportedModel
from sartor.planning.recipe import unsplit_recipe
from sartor.reference.trusted.reference_model import ReferenceModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.manifest import Manifest, find_manifest
from sartor.runtime.module import open_module
from sartor.runtime.output_error import relative_error
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, UnsplitNetwork, build_net
from tests.importing import ImportedOf, ModelFile
from tests.tiny_models import MODELS

TARGET = Target.create("cpu")
COMPILED = sorted(set(MODELS) - {"constant_output", "nothing_computed"})
IMAGES = ["batch", "blocks", "lenet", "residual", "shared_pad", "split", "squeeze_excite"]
LAYOUTS = [(name, "nhwc") for name in IMAGES] + [(name, "nchw16c") for name in IMAGES if name != "split"]
ODD_TEXT = 'quote " backslash \\ not a newline \\n newline \n return \r tab \t bell \a größe 日本 \\" end\\'


def stock(task: Task) -> Variant:
    implementation = Stock().build(task, {}, TARGET)
    assert isinstance(implementation, Implementation)
    return Variant("stock", "cpu", dtype_of(task), implementation)


def variant_in(task: Task, layout: str) -> Variant:
    """The layer with its images in ``layout`` if that is possible, else as it was imported."""
    if task.kind is LayerKind.FIXED or not has_images(task):
        return stock(task)
    converted = convert_images(task, layout)
    if not isinstance(converted, Converted):
        return stock(task)
    return Variant(layout, "cpu", dtype_of(task), converted.implementation(TARGET.device))


def variants_in(imported: ImportedModel, layout: str | None) -> dict[str, Variant]:
    choose = (lambda task: variant_in(task, layout)) if layout else stock
    return {layer.name: choose(layer.task) for layer in imported.graph.layers}


def manifest_of(imported: ImportedModel, **changes: object) -> Manifest:
    config = CompileConfig(target=TARGET, threads=1)
    manifest = Manifest.from_json(unsplit_recipe(imported, config.planning).manifest(imported, config.header))
    return replace(manifest, **changes)  # type: ignore[arg-type]


def build(imported: ImportedModel, net: SplitNetwork | UnsplitNetwork, files: NetFiles, **changes: object) -> None:
    build_net(net, imported.weights, TARGET, manifest_of(imported, **changes).to_json(), files)


def split(imported: ImportedModel, layout: str | None = None) -> SplitNetwork:
    return SplitNetwork(imported.graph, variants_in(imported, layout))


def check(imported: ImportedModel, original: Path, module: Path, parameters: Mapping[str, Path] | None = None) -> None:
    with Session(module, threads=1, parameters=parameters or {}) as session:
        outputs = session.run(None, imported.samples)
        check_inputs_kept(session, imported.samples, outputs)
        check_bound(session, imported.samples, outputs)
    reference = ReferenceModel(original, threads=1)(imported.samples)
    assert [output.shape for output in outputs] == [each.shape for each in reference]
    assert relative_error(outputs, reference) < 1e-4


def check_inputs_kept(session: Session, samples: Mapping[str, Array], outputs: list[Array]) -> None:
    """A run leaves its inputs as they are, so that a second one on the same memory gives the same."""
    held = {name: session.to_device(array) for name, array in samples.items()}
    session.run(None, held)
    for given, expected in zip(session.run(None, held), outputs, strict=True):
        np.testing.assert_array_equal(given, expected)
    for name, array in samples.items():
        np.testing.assert_array_equal(held[name].to_host(), array)


def check_bound(session: Session, samples: Mapping[str, Array], outputs: list[Array]) -> None:
    """A run on bound memory gives the same bits there, also after a run with other inputs, and keeps its inputs."""
    bound = session.bind(samples)
    for name, array in samples.items():
        bound.inputs[name].copy_from(np.zeros_like(array))
    bound.run()
    for name, array in samples.items():
        bound.inputs[name].copy_from(array)
    for _ in range(2):
        for output in bound.outputs.values():
            output.copy_from(np.ones_like(output.to_host()))
        bound.run()
        for given, expected in zip(bound.outputs.values(), outputs, strict=True):
            np.testing.assert_array_equal(given.to_host(), expected)
    for name, array in samples.items():
        np.testing.assert_array_equal(bound.inputs[name].to_host(), array)


@pytest.mark.parametrize("name", COMPILED)
def test_stock_layers_give_the_right_result(
    name: str, imported_of: ImportedOf, model_file: ModelFile, tmp_path: Path
) -> None:
    imported, path = imported_of(name), tmp_path / "net.vmfb"
    build(imported, split(imported), NetFiles(path, None))
    check(imported, model_file(name), path)


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_layers_in_other_layouts_give_the_right_result(
    name: str, layout: str, imported_of: ImportedOf, model_file: ModelFile, tmp_path: Path
) -> None:
    imported, path = imported_of(name), tmp_path / "net.vmfb"
    net = split(imported, layout)
    assert any(variant.implementation.output.layout == layout for variant in net.variants.values())
    build(imported, net, NetFiles(path, None))
    check(imported, model_file(name), path)


@pytest.mark.parametrize("name", ["lenet", "two_results", "two_selections"])
def test_the_unsplit_model_gives_the_right_result(
    name: str, imported_of: ImportedOf, model_file: ModelFile, tmp_path: Path
) -> None:
    """The second sorts its input, which IREE by itself would do in place."""
    imported, path = imported_of(name), tmp_path / "net.vmfb"
    build(imported, UnsplitNetwork(imported.unsplit), NetFiles(path, None))
    check(imported, model_file(name), path)


def test_the_same_choices_give_the_same_bytes(imported_of: ImportedOf, tmp_path: Path) -> None:
    imported = imported_of("shared_pad")
    for name in ("first", "second"):
        build(imported, split(imported, "nhwc"), NetFiles(tmp_path / name, None))
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_weights_may_lie_beside_the_module(imported_of: ImportedOf, model_file: ModelFile, tmp_path: Path) -> None:
    imported = imported_of("residual")
    files = NetFiles(tmp_path / "net.vmfb", tmp_path / "weights.irpa")
    build(imported, split(imported, "nhwc"), files, parameters={"model": "weights.irpa"})
    assert files.weights is not None
    assert files.weights.stat().st_size > sum(weight.nbytes for weight in imported.weights.values())
    check(imported, model_file("residual"), files.module)


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("is_split", [True, False])
def test_weights_are_loaded_once_and_not_by_each_inference(
    imported_of: ImportedOf, tmp_path: Path, *, is_inside: bool, is_split: bool
) -> None:
    """Where memory that holds the file cannot be used as it is, on a GPU for example, each would copy them."""
    imported = imported_of("residual")
    files = NetFiles(tmp_path / "net.vmfb", None if is_inside else tmp_path / "weights.irpa")
    net = split(imported, "nhwc") if is_split else UnsplitNetwork(imported.unsplit)
    build(imported, net, files, parameters={} if is_inside else {"model": "weights.irpa"})
    tool = Path(sys.executable).parent / "iree-dump-module"
    command = [str(tool), "--output=disassembly", str(files.module)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    start = shown.index(f"vm.func @{ENTRY}$async")
    entry, beginning = shown[start : shown.index("vm.func @", start + 1)], shown[shown.rindex("vm.func @__init") :]
    load = "@hal.allocator.import" if is_inside else "@io_parameters."
    assert load in beginning
    assert load not in entry


@pytest.mark.parametrize("is_inside", [True, False])
def test_weights_lie_in_the_order_of_execution(imported_of: ImportedOf, tmp_path: Path, *, is_inside: bool) -> None:
    """What reads the file ahead of the first inference reads it from its beginning."""
    imported = imported_of("lenet")
    files = NetFiles(tmp_path / "net.vmfb", None if is_inside else tmp_path / "weights.irpa")
    build(imported, split(imported), files, parameters={} if is_inside else {"model": "weights.irpa"})
    content = (files.weights or files.module).read_bytes()
    names = [name for layer in imported.graph.layers for name in layer.weights]
    places = [content.find(imported.weights[name].tobytes()) for name in names if imported.weights[name].nbytes >= 64]
    assert len(places) > 3
    assert -1 not in places
    assert places == sorted(places)


def test_a_manifest_survives_whatever_is_in_it(imported_of: ImportedOf, tmp_path: Path) -> None:
    imported, path = imported_of("softmax"), tmp_path / "net.vmfb"
    build(imported, split(imported), NetFiles(path, None), model=ODD_TEXT, plan={ODD_TEXT: [ODD_TEXT]})
    found = find_manifest(open_module(path))
    assert found is not None
    assert found.model == ODD_TEXT
    assert found.plan == {ODD_TEXT: [ODD_TEXT]}


@pytest.mark.parametrize("text", ["", ODD_TEXT, "\\n", '\\"', "\\\\n", "\x00", "\x7f", "\U0001f600"])
def test_quoted_text_reads_back(text: str) -> None:
    with ir.Context():
        attribute = ir.Attribute.parse(quoted(text))
        assert ir.StringAttr(attribute).value_bytes == text.encode()


def test_equal_weights_are_packed_once(imported_of: ImportedOf, tmp_path: Path) -> None:
    imported = imported_of("blocks")
    first = imported.graph.layers[0]
    layers = tuple(replace(layer, weights=first.weights) for layer in imported.graph.layers[:3])
    output = replace(
        imported.graph.outputs[0], type=layers[-1].task.results[0], source=imported.graph.layers[3].inputs[0]
    )
    shared = replace(imported, graph=replace(imported.graph, layers=layers, outputs=(output,)))
    files = NetFiles(tmp_path / "net.vmfb", tmp_path / "weights.irpa")
    build(shared, split(shared, "nhwc"), files)
    assert files.weights is not None
    wanted = sum(shared.weights[weight].nbytes for weight in first.weights)
    assert wanted <= files.weights.stat().st_size < 2 * wanted


def test_a_layer_of_any_name_has_its_own_range() -> None:
    """A node may be called ``input``, and a network's inputs have no node."""
    image = TensorType((1, 4), "f32")
    schema = Schema.plain(image, "cpu").stored_as(QUANTISED)
    given, made = ValueRef(None, 0), ValueRef("input", 0)
    layer = Layer("input", (), Task("", LayerKind.CONTRACTION, "", (image,), (), (image,)), (given,), ())
    code = Implementation("", (schema,), (schema,), (), ranges=(0, None))
    taken, returned = (Port(name, ref, image, schema) for name, ref in (("x", given), ("y", made)))
    stitching = Stitching(
        entries=(Entry("main", "cpu", (layer,), (taken,), (returned,)),),
        pieces={"input": Piece("piece", code, DispatchCode("", ()))},
        adapts={},
        weights={},
        ranges={given: np.zeros(4, np.float32), made: np.ones(4, np.float32)},
    )
    assert [parameter[0] for parameter in stitch(stitching, TARGET, "").parameters.values()] == [0, 1]
