"""Products of rows of several parts of which one is not zero: right for any rows, and the others are not computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from sartor.codegen.ir.encoding import BlockEncoding, parts_of_rows, row_of_parts
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of, integer
from sartor.codegen.kernels.encoded.block_contraction import BlockContraction
from sartor.codegen.kernels.encoded.encoded_weight import EncodedWeight, encoded_weight
from sartor.codegen.kernels.encoded.packed_blocks import PackedBlocks
from sartor.codegen.kernels.encoded.present_parts import PartContraction
from sartor.codegen.routines.encoded.block_panels import BlockPanels
from sartor.codegen.routines.encoded.block_product import BlockProduct
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.routines.encoded.blocked_products import BlockedProduct
from tests.codegen.routines.harness import Subject, compiled, opened, run
from tests.importing import imported_model
from tests.plugin.onnx_model.builders import FLOAT, INT64, MS, Array, model, node

_TARGET, _TOLERANCE, _PARTS = Target.create("cpu"), 1e-5, 4
_CASES: Mapping[str, BlockedProduct] = {
    "one_row": BlockedProduct(1, BlockEncoding(4, 32, _PARTS * 96, 200)),
    "two_rows": BlockedProduct(2, BlockEncoding(4, 16, _PARTS * 48, 40), points="packed"),
    "seven_rows": BlockedProduct(7, BlockEncoding(8, 32, _PARTS * 32, 130)),
    "bytes_by_points": BlockedProduct(3, BlockEncoding(8, 32, _PARTS * 64, 50), points="packed"),
    "many_rows": BlockedProduct(33, BlockEncoding(4, 128, _PARTS * 128, 70), points="real"),
    "half_scales": BlockedProduct(5, BlockEncoding(4, 32, _PARTS * 64, 33), scales=np.float16),
}


def _model() -> ImportedModel:
    nodes, inputs, constants = [], [], {"parts": np.arange(_PARTS), "zero": np.zeros((), np.float32)}
    constants["last"] = np.array([-1])
    for name, case in _CASES.items():
        of, parts = case.encoding, case.parts()
        depth = of.depth // _PARTS
        inputs += [(f"{name}.x", (case.rows, 1, depth), FLOAT), (f"{name}.n", (case.rows, 1), INT64)]
        constants |= {f"{name}.{part}": array for part, array in parts.items()}
        constants[f"{name}.shape"] = np.array([case.rows, of.depth])
        nodes += [
            node("Equal", [f"{name}.n", "parts"], [f"{name}.e"]),
            node("Unsqueeze", [f"{name}.e", "last"], [f"{name}.c"]),
            node("Where", [f"{name}.c", f"{name}.x", "zero"], [f"{name}.o"]),
            node("Reshape", [f"{name}.o", f"{name}.shape"], [f"{name}.r"]),
        ]
        sizes = {"K": of.depth, "N": of.columns, "bits": of.bits, "block_size": of.block}
        read = [f"{name}.r", *(f"{name}.{part}" for part in parts)]
        nodes.append(node("MatMulNBits", read, [f"{name}.y"], name=name, domain=MS, **sizes))
    return imported_model(model(nodes, inputs, [f"{name}.y" for name in _CASES], constants))


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    imported, found = _model(), dict[str, Subject]()
    for layer in imported.graph.layers:
        if layer.name in _CASES:
            assert parts_of_rows(layer.task) == _PARTS
            assert row_of_parts(layer.task) == (_CASES[layer.name].encoding.depth, _PARTS)
            assert isinstance(choices_of(BlockPanels(), layer.task, _TARGET), Rejected)
            listed = choices_of(BlockProduct(), layer.task, _TARGET)
            assert not isinstance(listed, Rejected)
            built = {str(dict(each)): BlockProduct().build(layer.task, each, _TARGET) for each in listed[:2]}
            kept = {name: code for name, code in built.items() if isinstance(code, Implementation)}
            assert len(kept) == len(built), built
            found[layer.name] = Subject(layer, imported.weights, kept)
    assert found.keys() == _CASES.keys()
    return found


def _rows(case: BlockedProduct, seed: int) -> Array:
    """Rows with numbers in one part, never the last; of some rows in none."""
    random, of = np.random.default_rng(seed), case.encoding
    rows = np.zeros((case.rows, _PARTS, of.depth // _PARTS), np.float32)
    for row in rows[: max(1, case.rows - 1)]:
        row[random.integers(0, _PARTS - 1)] = random.standard_normal(rows.shape[-1])
    return rows.reshape(case.rows, of.depth)


def _errors(subjects: Mapping[str, Subject]) -> dict[str, float]:
    """The largest error of each product, by one and two threads, of rows with one part and with any."""
    content, found = compiled(subjects, _TARGET), dict.fromkeys(subjects, 0.0)
    for threads in (1, 2):
        program = opened(content, _TARGET, threads)
        for name, subject in subjects.items():
            case = _CASES[name]
            (shape,) = [each.shape for each in subject.task.inputs]
            dense = np.random.default_rng(5).standard_normal((case.rows, case.encoding.depth)).astype(np.float32)
            for rows in (_rows(case, 3), _rows(case, 4), dense):
                expected = rows.astype(np.float64) @ case.values()
                for variant in subject.implementations:
                    made = run(program, subject, variant, [rows.reshape(shape)]).reshape(expected.shape)
                    error = np.abs(made - expected).max() / np.abs(expected).max()
                    found[name] = max(found[name], float(np.nan_to_num(error, nan=np.inf)))
    return found


def test_rows_are_multiplied_by_their_parts(subjects: dict[str, Subject]) -> None:
    assert max(_errors(subjects).values()) <= _TOLERANCE


def test_what_no_row_has_is_not_computed(subjects: dict[str, Subject]) -> None:
    """Scales of the last part are no numbers, which any product by them would be, too."""
    for name, subject in subjects.items():
        case, weight = _CASES[name], encoded_weight(subject.task)
        assert isinstance(weight, EncodedWeight)
        key, stored = subject.layer.weights[weight.parts[1]], dict(subject.weights)
        scales = stored[key].copy()
        scales[:, -(case.encoding.blocks // _PARTS) :] = np.nan
        changed = replace(subject, weights={**stored, key: scales})
        program = opened(compiled({name: changed}, _TARGET), _TARGET, 1)
        rows = _rows(case, 3).reshape(subject.task.inputs[0].shape)
        for variant in changed.implementations:
            assert np.isfinite(run(program, changed, variant, [rows])).all()


def test_a_kernel_that_looks_at_one_row_of_a_tile_is_seen(
    subjects: dict[str, Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PartContraction._blocks_of
    monkeypatch.setattr(
        PartContraction, "_blocks_of", lambda self, asm, space, slots, part: right(self, asm, space, slots[:1], part)
    )
    assert _errors({"seven_rows": subjects["seven_rows"]})["seven_rows"] > 0.1


def test_few_rows_are_multiplied_one_by_one_where_parts_are_left_out(subjects: dict[str, Subject]) -> None:
    """On a GPU each row reads all parts, and a tile of rows reads them once."""
    for name, rows in (("two_rows", 1), ("bytes_by_points", 1), ("seven_rows", 7)):
        listed = choices_of(BlockProduct(), subjects[name].task, _TARGET)
        assert not isinstance(listed, Rejected)
        assert {min(integer(each["columns"]), 2) for each in listed} == {min(rows, 2)}
    listed = choices_of(BlockProduct(), subjects["two_rows"].task, Target.create("vulkan"))
    assert not isinstance(listed, Rejected)
    assert {each["columns"] for each in listed} == {2}


def test_parts_that_are_no_whole_vectors_are_multiplied_as_they_are() -> None:
    """Vectors by which they are looked at would reach behind the last row."""
    blocks = PackedBlocks(BlockEncoding(4, 24, _PARTS * 24, 40), lanes=16, vectors=1)
    product = Mock(blocks=blocks, one_of=_PARTS)
    assert type(BlockProduct().parts(product).code) is BlockContraction
