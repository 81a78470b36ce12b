"""Long networks compiled in several functions, and places at which what kernels read begins."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import onnx
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.emit.executable import Kernel
from sartor.codegen.linking import stitching
from sartor.codegen.linking.functions.aligned_buffers import align_buffers
from sartor.codegen.linking.functions.function_parts import cut_function, join_overwriting_functions
from sartor.codegen.linking.stitching import module_text
from sartor.codegen.mlir.dispatches import module_header
from sartor.codegen.mlir.iree_compiler import bytecode, ir, translate
from sartor.codegen.mlir.operations import body_of, symbol
from sartor.frontend.onnx_import import import_model
from sartor.tuning.networks.build_job import NetFiles, UnsplitNetwork
from tests.codegen.linking.test_stitching import build, check
from tests.codegen.linking.weights.test_joining import chain
from tests.importing import ImportedOf, ModelFile

BRANCHES = """
(float[1,4,8,8] x, float[1,4,8,8] z) => (float[1,4,8,8] y, float[1,4,8,8] early) {
    early = Softmax <axis = 1> (x)
    a = Sigmoid(early)
    b = Softmax <axis = 2> (a)
    c = Softmax <axis = 3> (z)
    d = Add(b, c)
    y = Mul(d, early)
}
"""


def functions_of(module: ir.Module) -> dict[str, ir.Operation]:
    found = [view.operation for view in module.body.operations if view.operation.name == "util.func"]
    return {symbol(op): op for op in found}


def lengths(module: ir.Module) -> list[int]:
    """Numbers of operations of the parts, with those that each repeats."""
    functions = functions_of(module)
    return [len(list(body_of(op).operations)) for name, op in functions.items() if "part" in name]


def opened(model: onnx.ModelProto) -> ir.Module:
    return ir.Module.parse(import_model(model).bytecode, ir.Context())


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", ["lenet", "residual", "shared_pad", "squeeze_excite", "two_results"])
def test_results_are_right(
    size: int,
    name: str,
    imported_of: ImportedOf,
    model_file: ModelFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stitching, "cut_function", partial(cut_function, size=size))
    imported, path = imported_of(name), tmp_path / "net.vmfb"
    build(imported, UnsplitNetwork(imported.unsplit), NetFiles(path, None))
    check(imported, model_file(name), path)


def test_no_function_grows_with_the_network() -> None:
    for length in (15, 60):
        module = opened(chain(length))
        cut_function(module, size=12)
        assert module.operation.verify()
        assert len(lengths(module)) >= length * 3 // 12
        # Four layers at most, each with two weights to load, and a zero and an empty tensor.
        assert max(lengths(module)) <= 12 + 4 * 2 + 3


def test_one_tensor_crosses_where_a_chain_is_cut() -> None:
    module = opened(chain(20))
    cut_function(module, size=12)
    parts = [op for name, op in functions_of(module).items() if "part" in name]
    assert all(len(body_of(op).arguments) == 1 for op in parts)
    assert all(len(body_of(op).operations[-1].operation.operands) == 1 for op in parts)


def test_values_cross_several_parts() -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> branches {BRANCHES}')
    module = opened(model)
    cut_function(module, size=1)
    assert module.operation.verify()
    assert len(lengths(module)) > 3


def test_short_functions_stay_whole() -> None:
    module = opened(chain(5))
    before = str(module)
    cut_function(module, size=7)
    assert str(module) == before


@pytest.mark.parametrize(("name", "size", "is_joined"), [("lenet", 3, False), ("two_results", 1, True)])
def test_parts_that_work_in_place_are_joined(
    name: str, size: int, is_joined: bool, imported_of: ImportedOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sort of TopK would overwrite the module's input."""
    seen: list[list[str]] = []

    def watched(module: ir.Module) -> None:
        seen.append(list(functions_of(module)))
        join_overwriting_functions(module)
        seen.append(list(functions_of(module)))

    monkeypatch.setattr(stitching, "cut_function", partial(cut_function, size=size))
    monkeypatch.setattr(stitching, "join_overwriting_functions", watched)
    imported = imported_of(name)
    build(imported, UnsplitNetwork(imported.unsplit), NetFiles(tmp_path / "net.vmfb", None))
    before, after = seen
    assert sum("part" in each for each in before) >= 2
    assert sorted(after) == ["main_graph", "main_graph$async"] if is_joined else after == before


CUDA, VULKAN = Target.create("cuda", "sm_80"), Target.create("vulkan", "ampere")
ROW, WHOLE = TensorType((1, 64), "f32"), TensorType((1, 256), "f32")
KERNEL = Kernel("small", (ROW,), (ROW,), (1, 1, 1), 1, threads=32)
LARGE = Kernel("large", (WHOLE,), (WHOLE,), (1, 1, 1), 1, threads=32)
JOINED = f"""
  {KERNEL.dispatch(["%given"])}
  %empty = flow.tensor.empty : {WHOLE}
  %found = flow.tensor.update %r, %empty[%c0, %first] : {ROW} -> %empty as {WHOLE}
"""
CUT = f"""
  {LARGE.dispatch(["%given"]).replace("%r", "%whole", 1)}
  %part = flow.tensor.slice %whole[%c0, %first for %c1, %c64] : {WHOLE} -> {ROW}
  {KERNEL.dispatch(["%part"])}
  %found = flow.tensor.reshape %r : {ROW} -> {ROW}
"""
RESHAPED = f"""
  %line = flow.tensor.slice %given[%first for %c64] : tensor<256xf32> -> tensor<64xf32>
  %part = flow.tensor.reshape %line : tensor<64xf32> -> {ROW}
  {KERNEL.dispatch(["%part"])}
  %back = flow.tensor.reshape %r : {ROW} -> tensor<64xf32>
  %empty = flow.tensor.empty : tensor<256xf32>
  %found = flow.tensor.update %back, %empty[%first] : tensor<64xf32> -> %empty as tensor<256xf32>
"""
LINE = TensorType((256,), "f32")


def _module(body: str, given: TensorType, found: TensorType, first: int, target: Target = CUDA) -> str:
    attributes, devices = module_header(target)
    kernels = [each.executable(target, lambda *_: None) for each in (KERNEL, LARGE)]
    constants = "\n".join(f"  %c{number} = arith.constant {number} : index" for number in (0, 1, 64))
    function = (
        f"util.func public @main(%view: !hal.buffer_view) -> !hal.buffer_view {{\n{constants}\n"
        f"  %first = arith.constant {first} : index\n"
        f"  %given = hal.tensor.import %view : !hal.buffer_view -> {given}\n{body}"
        f"  %out = hal.tensor.export %found : {found} -> !hal.buffer_view\n  util.return %out : !hal.buffer_view\n}}"
    )
    return module_text(attributes, [devices, *kernels, function])


@pytest.mark.parametrize(
    ("target", "first", "barriers"),
    [(CUDA, 0, 0), (CUDA, 4, 0), (CUDA, 13, 1), (CUDA, 6, 1), (VULKAN, 0, 0), (VULKAN, 16, 0), (VULKAN, 4, 1)],
)
@pytest.mark.parametrize(("body", "given", "found"), [(JOINED, ROW, WHOLE), (CUT, WHOLE, ROW)], ids=["joined", "cut"])
def test_what_is_not_aligned_is_copied(
    body: str, given: TensorType, found: TensorType, target: Target, first: int, barriers: int
) -> None:
    context = ir.Context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(_module(body, given, found, first, target))
        align_buffers(module, target)
        text, planned = str(module), translate(bytecode(module.operation), target.flags, start="flow", to="stream")
    assert text.count("flow.tensor.barrier") == barriers
    offsets = [int(each) for each in re.findall(r"^ *(?:ro|rw|wo) %\w+\[%c(\d+) for", planned, re.MULTILINE)]
    assert len(offsets) == 2 * planned.count("stream.cmd.dispatch") > 0
    assert all(offset % (16 if target is CUDA else 64) == 0 for offset in offsets)
    # What is aligned is not copied: the kernel is given its place.
    assert (4 * first in offsets) == (barriers == 0)


def test_tensors_are_followed_through_reshapes() -> None:
    context = ir.Context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(_module(RESHAPED, LINE, LINE, 13))
        align_buffers(module, CUDA)
        module.operation.verify()
        assert str(module).count("flow.tensor.barrier") == 2


def test_a_cpu_reads_and_writes_elements_where_they_are() -> None:
    cpu = Target.create("cpu")
    context = ir.Context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(_module(JOINED, ROW, WHOLE, 13))
        before = str(module)
        align_buffers(module, cpu)
        assert str(module) == before
