"""Products by weights in blocks of integers on GPUs: codes are read as they are stored, by each invocation its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight, encoded_weight
from sartor.codegen.routines.encoded.block_product import BlockProduct
from sartor.config import CompileConfig
from sartor.frontend.imported_model import ImportedModel
from sartor.frontend.target_check import runs_here
from sartor.pipeline import compile_model
from sartor.runtime.module import open_module
from tests.codegen.routines.encoded.blocked_products import BlockedProduct, model_of
from tests.codegen.routines.harness import Subject, compiled, load, run
from tests.devices import needs_vulkan
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node
from tools.cuda.assembler.ptx import assemble, assembler, instructions, ptx_of
from tools.cuda.layer_run import run_layer

VULKAN, CUDA = Target.create("vulkan"), Target.create("cuda", "sm_80")
_TOLERANCE = 1e-5
# The error that compilations allow by default.
_FORGIVEN = 1e-3


# Columns fill no subgroup, rows no register tile, and a last block neither a block nor a word.
_CASES: Mapping[str, BlockedProduct] = {
    "row": BlockedProduct(1, BlockEncoding(4, 32, 96, 70)),
    "rest": BlockedProduct(3, BlockEncoding(4, 32, 93, 40), points="packed", has_bias=True),
    "bytes": BlockedProduct(1, BlockEncoding(8, 32, 96, 35)),
    "rows": BlockedProduct(12, BlockEncoding(4, 16, 48, 35), scales=np.float16, points="real"),
    "pairs": BlockedProduct(1, BlockEncoding(2, 16, 32, 33), points="packed"),
    "planes": BlockedProduct(2, BlockEncoding(3, 32, 64, 35)),
}


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    return imported_model(model_of(_CASES))


def _subjects(imported: ImportedModel, target: Target) -> dict[str, Subject]:
    """The best guess for each product."""
    subjects = {}
    for layer in imported.graph.layers:
        listed = choices_of(BlockProduct(), layer.task, target)
        assert not isinstance(listed, Rejected), listed
        built = BlockProduct().build(layer.task, listed[0], target)
        assert isinstance(built, Implementation), built
        subjects[layer.name] = Subject(layer, imported.weights, {"kernel": built})
    assert subjects.keys() == _CASES.keys()
    return subjects


def _expected(subject: Subject, rows: Array) -> Array:
    """The product by the definition."""
    weight = encoded_weight(subject.task)
    assert isinstance(weight, EncodedWeight)
    parts = [np.asarray(subject.weights[subject.layer.weights[part]]) for part in weight.parts]
    found: Array = rows.astype(np.float64) @ weight.encoding.decoded(*parts)
    return found + _CASES[subject.layer.name].parts().get("b", np.zeros(1))


def _error(found: Array, expected: Array) -> float:
    return float(np.abs(found.reshape(expected.shape) - expected).max() / np.abs(expected).max())


def _interpreted(subject: Subject, rows: Array) -> Array:
    """The result of the kernel for CUDA by the interpreter."""
    held = [np.asarray(subject.weights[weight]) for weight in subject.layer.weights]
    found, _ = run_layer(subject.implementations["kernel"], subject.task, [rows], held)
    return found


@needs_vulkan
def test_kernels_for_vulkan_compute_the_definition(imported: ImportedModel) -> None:
    subjects = _subjects(imported, VULKAN)
    program = load(subjects, VULKAN)
    for name, subject in subjects.items():
        inputs = subject.inputs()
        error = _error(run(program, subject, "kernel", inputs), _expected(subject, inputs[0]))
        assert error <= _TOLERANCE, (name, error)


@pytest.mark.parametrize("architecture", ["ampere", "rdna3", "valhall4"])
def test_kernels_compile_for_other_gpus(architecture: str, imported: ImportedModel) -> None:
    target = Target.create("vulkan", architecture)
    assert len(open_module(compiled(_subjects(imported, target), target)).functions) >= len(_CASES)


@pytest.mark.parametrize("name", _CASES)
def test_kernels_for_cuda_compute_the_definition(name: str, imported: ImportedModel) -> None:
    subject = _subjects(imported, CUDA)[name]
    (rows,) = subject.inputs()
    assert _error(_interpreted(subject, rows), _expected(subject, rows)) <= _TOLERANCE


@pytest.mark.parametrize("part", ["s", "z"])
def test_one_wrong_number_of_one_block_is_seen(part: str, imported: ImportedModel) -> None:
    """It changes the result by more than a compilation allows."""
    subject = _subjects(imported, CUDA)["rest"]
    weight = encoded_weight(subject.task)
    assert isinstance(weight, EncodedWeight)
    changed = subject.layer.weights[weight.parts[1 if part == "s" else 2]]
    wrong = np.array(imported.weights[changed])
    wrong[3, 1] = wrong[3, 1] * 2 if part == "s" else wrong[3, 1] ^ 1
    (rows,) = subject.inputs()
    found = _interpreted(Subject(subject.layer, {**imported.weights, changed: wrong}, subject.implementations), rows)
    assert _error(found, _expected(subject, rows)) > _FORGIVEN


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_assemble_for_cuda(architecture: str, imported: ImportedModel) -> None:
    """Each is one kernel without shared memory, barriers or stack."""
    target = Target.create("cuda", architecture)
    texts = ptx_of(compiled(_subjects(imported, target), target))
    assert sum(text.count(".entry ") for text in texts) == len(_CASES)
    for text in texts:
        assert instructions(text, "bar.sync", "st.shared", "st.local") == dict.fromkeys(
            ("bar.sync", "st.shared", "st.local"), 0
        )
        if assembler() is not None:
            assert all(each.spilled == each.stack == 0 and each.fits for each in assemble(text, architecture))


@pytest.mark.parametrize("target", [Target.create("vulkan", "ampere"), CUDA])
def test_a_plan_for_a_gpu_that_is_not_here_reads_codes(target: Target, tmp_path: Path) -> None:
    if runs_here(target):
        pytest.skip(f"this machine has a GPU for {target.architecture}, so layers are measured")
    of = BlockEncoding(4, 32, 512, 512)
    parts = BlockedProduct(1, of).parts()
    sizes = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block}
    product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, **sizes)
    onnx.save(model([product], [("x", (1, of.depth), FLOAT)], ["y"], parts), tmp_path / "m.onnx")
    config = CompileConfig(target=target, jobs=1, database=tmp_path / "tuning.db")
    (layer,) = compile_model(tmp_path / "m.onnx", tmp_path / "m.vmfb", config).plan.layers
    assert layer.variant.startswith(f"{target.device}:f32/matmul.block_product{{")
    # Codes with scales, and the code.
    assert (tmp_path / "m.vmfb").stat().st_size < of.codes.bytes + 4 * of.columns * of.blocks + (64 << 10)
