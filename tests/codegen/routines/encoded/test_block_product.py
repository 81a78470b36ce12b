"""Products by weights in blocks of integers, of awkward sizes: every variant computes the definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of
from sartor.codegen.kernels.encoded.block_routine import BlockRoutine
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight, encoded_weight
from sartor.codegen.kernels.isa.byte_pairs import BYTE_PAIRS
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.kernels.isa.word_sums import PAIR_SUMS
from sartor.codegen.mlir.dispatches import lower
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockDotProduct, BlockProduct, BlockWordProduct
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.vector.neon_dots import SDOT
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.routines.encoded.blocked_products import BlockedProduct, model_of
from tests.codegen.routines.harness import Subject, compiled, opened, run
from tests.emulated import EmulatedProgram, Emulator, emulator
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node, weights

_TOLERANCE = 1e-5
# The error that compilations allow by default.
_FORGIVEN = 1e-3
_TARGET = Target.create("cpu")
EMULATOR = emulator()


# All sizes are tried on these, only the best guess on the others.
_THOROUGH, _BY_IREE = ("eight_rows",), ("eight_rows", "triples_of_rows")
_CASES: Mapping[str, BlockedProduct] = {
    "one_row": BlockedProduct(1, BlockEncoding(4, 32, 768, 200)),
    "two_rows": BlockedProduct(2, BlockEncoding(4, 32, 256, 176)),
    "eight_rows": BlockedProduct(8, BlockEncoding(4, 16, 272, 130), points="packed"),
    "many_rows": BlockedProduct(37, BlockEncoding(4, 64, 200, 96), has_bias=True),
    "rest_of_block": BlockedProduct(1, BlockEncoding(4, 32, 301, 144), points="packed"),
    "rest_of_word": BlockedProduct(3, BlockEncoding(4, 128, 397, 144), points="packed", has_bias=True),
    "less_than_block": BlockedProduct(1, BlockEncoding(4, 512, 333, 100)),
    "rest_of_long_block": BlockedProduct(9, BlockEncoding(4, 1024, 1531, 20), points="packed"),
    "few_columns": BlockedProduct(1, BlockEncoding(4, 32, 2000, 7)),
    "columns_of_rows": BlockedProduct(9, BlockEncoding(4, 32, 1510, 3), points="packed"),
    "bytes": BlockedProduct(1, BlockEncoding(8, 32, 480, 130)),
    "bytes_of_rows": BlockedProduct(11, BlockEncoding(8, 64, 250, 130), points="packed"),
    "pairs": BlockedProduct(1, BlockEncoding(2, 16, 720, 130)),
    "pairs_of_rows": BlockedProduct(19, BlockEncoding(2, 64, 370, 130), points="packed"),
    "triples": BlockedProduct(1, BlockEncoding(3, 32, 608, 130)),
    "triples_of_rows": BlockedProduct(13, BlockEncoding(3, 64, 337, 90), points="packed"),
    "triples_by_real_points": BlockedProduct(2, BlockEncoding(3, 128, 256, 40), points="real"),
    "real_points": BlockedProduct(1, BlockEncoding(4, 32, 256, 136), points="real", has_bias=True),
    "half_scales": BlockedProduct(6, BlockEncoding(4, 32, 256, 136), scales=np.float16, points="real"),
    "rows_of_threads": BlockedProduct(32, BlockEncoding(4, 32, 200, 40), points="packed"),
    "half_scales_of_rows": BlockedProduct(29, BlockEncoding(4, 32, 100, 40), scales=np.float16, points="real"),
    "short_scales": BlockedProduct(1, BlockEncoding(4, 32, 256, 136), scales=ml_dtypes.bfloat16),
}
# Each number of bits, by few rows and by many, and each kind of scales and points, as an emulator takes its time.
_ON_AARCH64 = (
    "one_row",
    "eight_rows",
    "rest_of_word",
    "bytes",
    "bytes_of_rows",
    "pairs_of_rows",
    "triples",
    "half_scales",
)


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    return imported_model(model_of(_CASES))


def _subjects(
    imported: ImportedModel, target: Target, routines: Sequence[BlockRoutine] = (BlockProduct(), BlockPanels())
) -> dict[str, Subject]:
    """All variants of each product's layer; with those in f32 IREE's own on this machine."""
    subjects = {}
    for layer in imported.graph.layers:
        found: dict[str, Implementation | Rejected] = {}
        for routine in routines:
            listed = choices_of(routine, layer.task, target)
            assert isinstance(listed, Rejected) == _is_rejected(routine, _CASES[layer.name]), (layer.name, listed)
            if not isinstance(listed, Rejected):
                tried = listed if layer.name in _THOROUGH and target == _TARGET else listed[:1]
                found |= {f"{routine.name}{dict(each)}": routine.build(layer.task, each, target) for each in tried}
        if target == _TARGET and BlockPanels() in routines and layer.name in _BY_IREE:
            found["stock"] = Stock().build(layer.task, {}, target)
        built = {name: code for name, code in found.items() if isinstance(code, Implementation)}
        assert len(built) == len(found), found
        subjects[layer.name] = Subject(layer, imported.weights, built)
    assert subjects.keys() == _CASES.keys()
    return subjects


def _is_rejected(routine: BlockRoutine, case: BlockedProduct) -> bool:
    """Whether panels are not decoded first, as there are few rows, or codes are too large for an instruction."""
    if isinstance(routine, BlockPanels | BlockWordProduct):
        return case.rows < 8
    if isinstance(routine, BlockDotProduct):
        return case.encoding.bits > routine.element.most_bits
    return False


def test_variants_compute_the_definition(imported: ImportedModel) -> None:
    subjects = _subjects(imported, _TARGET)
    content = compiled(subjects, _TARGET)
    for threads in (1, 2):
        program = opened(content, _TARGET, threads)
        for name, subject in subjects.items():
            inputs = subject.inputs()
            expected = _expected(_CASES[name], inputs[0])
            for variant in subject.implementations:
                error = np.abs(run(program, subject, variant, inputs) - expected).max() / np.abs(expected).max()
                assert error <= _TOLERANCE, (name, variant, threads, error)


@pytest.mark.skipif(not INTEGER_DOTS.exists_on(machine_of(_TARGET)), reason="the CPU has no such instruction")
def test_rounded_rows_are_multiplied_exactly(imported: ImportedModel) -> None:
    subjects = _subjects(imported, _TARGET, (BlockDotProduct(), BlockWordProduct()))
    shared = subjects["rows_of_threads"]
    subjects["rows_of_threads"] = replace(shared, implementations={**shared.implementations, **_by_rows(shared)})
    content = compiled(subjects, _TARGET)
    for threads in (1, 2):
        program = opened(content, _TARGET, threads)
        for name, subject in subjects.items():
            # The smaller numbers have small scales, by which the others are divided as exactly.
            for size in (np.float32(1), np.float32(1e-28)):
                inputs = [array * size for array in subject.inputs()]
                for variant in subject.implementations:
                    _check(name, variant, inputs[0], run(program, subject, variant, inputs))


@pytest.mark.skipif(not INTEGER_DOTS.exists_on(machine_of(_TARGET)), reason="the CPU has no such instruction")
def test_rows_with_infinities_have_no_numbers_as_results(imported: ImportedModel) -> None:
    """Where rows are rounded, all results of such a row are NaN; sums in f32 are never infinite by the wrong sign."""
    subjects = _subjects(imported, _TARGET, (BlockProduct(), BlockPanels(), BlockDotProduct(), BlockWordProduct()))
    subjects = {name: subjects[name] for name in ("one_row", "eight_rows", "rest_of_long_block")}
    program = opened(compiled(subjects, _TARGET), _TARGET, 1)
    for name, subject in subjects.items():
        for wrong in (np.inf, -np.inf, np.nan):
            inputs = subject.inputs()
            inputs[0].reshape(-1, inputs[0].shape[-1])[0, 40] = wrong
            with np.errstate(invalid="ignore"):
                expected = _expected(_CASES[name], inputs[0]).reshape(-1, _CASES[name].encoding.columns)
            for variant in subject.implementations:
                found = run(program, subject, variant, inputs).reshape(expected.shape)
                is_rounded = variant.startswith(("block_dots", "block_words"))
                assert np.array_equal(np.isfinite(found).all(-1), np.isfinite(expected).all(-1)), (name, variant)
                same = np.isnan(found[0]) | np.isnan(expected[0]) | (found[0] == expected[0])
                assert (np.isnan(found[0]) if is_rounded else same).all(), (name, variant, wrong)


def _by_rows(subject: Subject) -> dict[str, Implementation]:
    """Code for several threads whose workgroups partition the rows."""
    target = replace(_TARGET, threads=2)
    listed = choices_of(BlockDotProduct(), subject.task, target)
    assert not isinstance(listed, Rejected)
    parameters = next(each for each in listed if each["row_groups"] != 1)
    assert parameters["panel_groups"] == 1
    built = BlockDotProduct().build(subject.task, parameters, target)
    assert isinstance(built, Implementation)
    return {"block_dots_by_rows": built}


def _rounded(case: BlockedProduct, rows: Array, most: int = 127) -> Array:
    """Rows rounded to so many steps of each block's largest number, in f32 as the kernel finds it."""
    block, depth = case.encoding.block, rows.shape[-1]
    found = np.zeros(rows.shape)
    for start in range(0, depth, block):
        part = rows[..., start : start + block]
        scale = np.abs(part).max(-1, keepdims=True) * np.float32(1 / most)
        found[..., start : start + block] = np.rint(part * (np.float32(1) / scale)) * scale.astype(np.float64)
    return found


def test_code_that_rounds_a_block_is_as_long_for_any_block(tmp_path: Path) -> None:
    """A scale for each column makes a block of all rows, whose numbers would not fit a worker thread's stack."""
    target, lengths = Target.create("cpu", "cascadelake"), []
    for block in (1024, 65536):
        parts = BlockedProduct(2, BlockEncoding(4, block, block, 16)).parts()
        sizes = {"K": block, "N": 16, "bits": 4, "block_size": block}
        product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, **sizes)
        onnx.save(model([product], [("x", (2, block), FLOAT)], ["y"], parts), tmp_path / "m.onnx")
        found = imported_model(tmp_path / "m.onnx")
        (layer,) = found.graph.layers
        listed = choices_of(BlockDotProduct(), layer.task, target)
        assert not isinstance(listed, Rejected)
        built = BlockDotProduct().build(layer.task, listed[0], target)
        assert isinstance(built, Implementation)
        lengths.append(len(lower({"layer": built}, target)["layer"].text))
    assert lengths[1] < 1.1 * lengths[0]


def _expected(case: BlockedProduct, rows: Array) -> Array:
    product: Array = rows.astype(np.float64) @ case.values()
    return product + case.parts().get("b", np.zeros(1))


_BYTE_PAIRS = BlockDotProduct("block_byte_pairs", element=BYTE_PAIRS)
_WORD_PAIRS = BlockWordProduct("block_word_pairs", element=PAIR_SUMS)
_NEON_DOTS = BlockDotProduct("block_neon_dots", element=SDOT)
# What is computed by rounded rows beside these.
_ROUNDED = ("one_row", "pairs", "rest_of_long_block", "triples")
_OTHERS = ("rest_of_word", "bytes", "pairs_of_rows", "short_scales", "columns_of_rows", "triples_of_rows")


def test_variants_compile_for_aarch64(imported: ImportedModel) -> None:
    target = Target.create("cpu", "aarch64:generic")
    subjects = _subjects(imported, target)
    assert compiled({name: subjects[name] for name in _OTHERS}, target)


@pytest.mark.skipif("avx2" not in machine_of(_TARGET).features, reason="the CPU has no AVX2")
def test_variants_by_avx2_compute_the_definition(imported: ImportedModel) -> None:
    target = Target.create("cpu", "x86-64-v3")
    subjects = _subjects(imported, target, (BlockProduct(), BlockPanels(), _BYTE_PAIRS, _WORD_PAIRS))
    few = {name: subjects[name] for name in (*_OTHERS, *_ROUNDED)}
    program = opened(compiled(few, target), target, 1)
    for name, subject in few.items():
        inputs = subject.inputs()
        for variant in subject.implementations:
            _check(name, variant, inputs[0], run(program, subject, variant, inputs))


def _check(name: str, variant: str, rows: Array, found: Array) -> None:
    """Compare what a variant computes with the definition, by rounded rows if it rounds them."""
    in_bytes, in_words = ("block_dots", _BYTE_PAIRS.name, _NEON_DOTS.name), ("block_words", _WORD_PAIRS.name)
    if variant.startswith((*in_bytes, *in_words)):
        rows = _rounded(_CASES[name], rows, 127 if variant.startswith(in_bytes) else 32767)
    expected = _expected(_CASES[name], rows)
    assert np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max(), (name, variant)


@pytest.mark.skipif(isinstance(EMULATOR, str), reason=str(EMULATOR))
def test_variants_are_right_on_aarch64(imported: ImportedModel, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert isinstance(EMULATOR, Emulator)
    target = Target.create("cpu", "aarch64:neoverse-n1")
    subjects = _subjects(imported, target, (BlockProduct(), BlockPanels(), _NEON_DOTS))
    if "or not thorough" not in pytestconfig.option.markexpr:
        subjects = {name: subjects[name] for name in _ON_AARCH64}
    (tmp_path / "m.vmfb").write_bytes(compiled(subjects, target))
    program = EmulatedProgram(EMULATOR, tmp_path / "m.vmfb")
    for name, subject in subjects.items():
        inputs = subject.inputs()
        for variant in (next(iter(subject.implementations)), [*subject.implementations][-1]):
            _check(name, variant, inputs[0], run(program, subject, variant, inputs))


@pytest.mark.parametrize("part", ["s", "z"])
def test_one_wrong_number_of_one_block_is_seen(imported: ImportedModel, part: str) -> None:
    """It changes the result by more than a compilation allows."""
    layer = next(layer for layer in imported.graph.layers if layer.name == "rest_of_block")
    weight = encoded_weight(layer.task)
    listed = choices_of(BlockProduct(), layer.task, _TARGET)
    assert isinstance(weight, EncodedWeight)
    assert not isinstance(listed, Rejected)
    built = BlockProduct().build(layer.task, listed[0], _TARGET)
    assert isinstance(built, Implementation)
    name = layer.weights[weight.parts[1 if part == "s" else 2]]
    wrong = imported.weights[name].copy()
    wrong[3, 1] = wrong[3, 1] * 2 if part == "s" else wrong[3, 1] ^ 1
    subject = Subject(layer, {**imported.weights, name: wrong}, {"kernel": built})
    program = opened(compiled({"layer": subject}, _TARGET), _TARGET, 1)
    inputs = subject.inputs()
    expected = _expected(_CASES[layer.name], inputs[0])
    error = np.abs(run(program, subject, "kernel", inputs) - expected).max() / np.abs(expected).max()
    assert error > _FORGIVEN


def test_weights_stay_as_small_as_they_are(imported: ImportedModel) -> None:
    for layer in imported.graph.layers:
        case = _CASES[layer.name]
        weight = encoded_weight(layer.task)
        assert isinstance(weight, EncodedWeight)
        assert weight.encoding == case.encoding
        kinds = [layer.task.weights[part] for part in weight.parts]
        held = sum(imported.weights[layer.weights[part]].nbytes for part in weight.parts)
        assert weight.encoding.bytes_with(kinds[1:]) == held
        given = sum(array.nbytes for name, array in case.parts().items() if name != "b")
        # Zero points take a byte each, and scales of bf16 as much as those of f32.
        widened = case.points == "packed" or (2 if case.scales is ml_dtypes.bfloat16 else 0)
        assert held <= given + widened * case.encoding.columns * case.encoding.blocks


def test_blocks_whose_sums_may_exceed_32_bits_are_rejected(tmp_path: Path) -> None:
    target, reasons = Target.create("cpu", "cascadelake"), []
    for depth in (66288, 66320):
        parts = BlockedProduct(1, BlockEncoding(8, 131072, depth, 2)).parts()
        sizes = {"K": depth, "N": 2, "bits": 8, "block_size": 131072}
        product = node("MatMulNBits", ["x", *parts], ["y"], domain=MS, **sizes)
        onnx.save(model([product], [("x", (1, depth), FLOAT)], ["y"], parts), tmp_path / "m.onnx")
        found = imported_model(tmp_path / "m.onnx")
        reasons.append(choices_of(BlockDotProduct(), found.graph.layers[0].task, target))
    assert not isinstance(reasons[0], Rejected)
    assert reasons[1] == Rejected("sums of 66320 products of a block may exceed 32 bits")


def test_other_products_are_rejected(tmp_path: Path) -> None:
    product = node("MatMul", ["x", "w"], ["y"])
    onnx.save(model([product], [("x", (3, 40), FLOAT)], ["y"], {"w": weights(40, 60)}), tmp_path / "m.onnx")
    found = imported_model(tmp_path / "m.onnx")
    (layer,) = found.graph.layers
    expected = Rejected("it has no weight in blocks of integers")
    assert choices_of(BlockProduct(), layer.task, _TARGET) == expected
    assert BlockProduct().build(layer.task, {}, _TARGET) == expected


def test_more_threads_get_more_workgroups(imported: ImportedModel) -> None:
    task = next(layer.task for layer in imported.graph.layers if layer.name == "one_row")
    counts = []
    for threads in (1, 4):
        listed = choices_of(BlockProduct(), task, replace(_TARGET, threads=threads))
        assert not isinstance(listed, Rejected)
        counts.append(max(int(str(each["panel_groups"])) for each in listed))
    assert counts[0] < counts[1]


def test_panels_leave_registers_to_what_decodes_them(imported: ImportedModel) -> None:
    """With all registers in use, a sum would be stored and loaded in each step."""
    target = Target.create("cpu", "x86-64-v3")
    task = next(layer.task for layer in imported.graph.layers if layer.name == "many_rows")
    listed = BlockPanels().parameters(task, target)
    assert not isinstance(listed, Rejected)
    for each in listed:
        rows, vectors = (int(str(each[name])) for name in ("columns", "vectors"))
        assert rows * vectors + vectors + 2 <= machine_of(target).registers
