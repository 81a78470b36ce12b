"""Attention of known sizes by one kernel: right results for odd sizes, planted faults, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from sartor.codegen.ir.layer import Fusion
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Rejected, variants_of
from sartor.codegen.kernels.attention import key_panels
from sartor.codegen.kernels.attention.attention_form import AttentionForm, attention_form
from sartor.codegen.kernels.attention.attention_loops import Strided
from sartor.codegen.kernels.attention.blocked_attention import StepWriter
from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.routines.open_sizes.blocked_attention import BlockedAttentionKernel
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, load, run
from tests.importing import imported_model
from tests.tiny_models import Builder

TARGET = Target.create("cpu")
MAX_ERROR = 2e-6


@dataclass(frozen=True)
class Case:
    """Extents of an attention, and what is unusual about it.

    Attributes:
        sizes: batches, heads, queries, keys, elements of a key, and of a value.
        mask: shape of what is added to scores; None for none.
        hidden: first keys that the mask of the first batch leaves out.
        is_joined: whether batches and heads are one dimension.
        is_constant: whether the mask is a weight.
    """

    sizes: tuple[int, int, int, int, int, int]
    mask: tuple[int, ...] | None = None
    hidden: int = 0
    is_joined: bool = False
    is_constant: bool = False


CASES = {
    "small": Case((1, 2, 9, 7, 8, 8)),
    # More keys than a block, more queries than a step, and a block of which all keys are left out of one batch.
    "blocks": Case((2, 3, 70, 150, 24, 20), (2, 1, 1, 150), 131),
    "whole": Case((1, 2, 64, 128, 32, 32), (1, 1, 64, 128)),
    "joined": Case((1, 4, 9, 33, 16, 17), (1, 9, 33), is_joined=True),
    "causal": Case((1, 2, 21, 21, 40, 8), (1, 1, 21, 21), is_constant=True),
    "wide": Case((1, 1, 10, 40, 104, 136)),
    "few": Case((1, 2, 8, 40, 8, 8)),
}


def add(builder: Builder, name: str, case: Case) -> dict[str, tuple[int, ...]]:
    """Add an attention to a model; returns the shapes of its inputs."""
    batches, heads, queries, keys, depth, columns = case.sizes
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.q": (batches, queries, heads * depth),
        f"{name}.k": (batches, keys, heads * depth),
        f"{name}.v": (batches, keys, heads * columns),
    }
    orders = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]
    parts = []
    for given, order, width in zip([*shapes], orders, (depth, depth, columns), strict=True):
        split = builder.op("Reshape", f"{given}.split", given, builder.constant(np.array([0, 0, heads, width])))
        turned = builder.op("Transpose", f"{given}.turned", split, perm=order)
        if case.is_joined:
            sides = {"k": [-1, depth, keys]}.get(given[-1], [-1, shapes[given][1], width])
            turned = builder.op("Reshape", f"{given}.joined", turned, builder.constant(np.array(sides)))
        parts.append(turned)
    scores = builder.op("MatMul", f"{name}.scores", parts[0], parts[1])
    scores = builder.op("Mul", f"{name}.scaled", scores, builder.constant(np.array(0.3, np.float32)))
    if case.mask is not None:
        mask = f"{name}.mask"
        if case.is_constant:
            mask = builder.constant(np.triu(np.full(case.mask, -np.inf, np.float32), 1))
        else:
            shapes[mask] = case.mask
        scores = builder.op("Add", f"{name}.masked", scores, mask)
    mixed = builder.op("MatMul", f"{name}.mixed", builder.op("Softmax", f"{name}.share", scores, axis=-1), parts[2])
    if case.is_joined:
        return shapes
    back = builder.op("Transpose", f"{name}.back", mixed, perm=[0, 2, 1, 3])
    builder.op("Reshape", f"{name}.flat", back, builder.constant(np.array([0, 0, heads * columns])))
    return shapes


def output_of(name: str) -> tuple[str, tuple[int, ...]]:
    case = CASES[name]
    batches, heads, queries, _, _, columns = case.sizes
    if case.is_joined:
        return f"{name}.mixed", (batches * heads, queries, columns)
    return f"{name}.flat", (batches, queries, heads * columns)


@pytest.fixture(scope="module")
def imported() -> ImportedModel:
    builder = Builder()
    inputs = [pair for name, case in CASES.items() for pair in add(builder, name, case).items()]
    return imported_model(builder.model(inputs, [*map(output_of, CASES)]), target=TARGET)


@pytest.fixture(scope="module")
def subjects(imported: ImportedModel) -> dict[str, tuple[Subject, list[Array]]]:
    """The attention of each case with its inputs, its kernels by descriptor, and what it computes."""
    random = np.random.default_rng(3)
    given = {each.name: random.standard_normal(each.type.shape).astype(np.float32) for each in imported.graph.inputs}
    for name, case in CASES.items():
        if case.hidden:
            given[f"{name}.mask"][:1, ..., : case.hidden] = -np.inf
    session = onnxruntime.InferenceSession(imported.path, providers=["CPUExecutionProvider"])
    names = [output_of(name)[0] for name in CASES]
    expected = dict(zip(CASES, session.run(names, given), strict=True))
    arrays = list(given.values())
    return {
        name: (_subject(fusion, imported, expected[name]), [arrays[ref.index] for ref in fusion.layer.inputs])
        for fusion in imported.graph.fusions
        for name in (fusion.members[-1].partition(".")[0],)
    }


def _subject(fusion: Fusion, imported: ImportedModel, expected: Array) -> Subject:
    variants = [*variants_of(BlockedAttentionKernel(), fusion.layer.task, TARGET)]
    kernels = {each.descriptor: each.implementation for each in variants if not isinstance(each, Rejected)}
    if "blocks" not in fusion.layer.name:
        kernels = dict([*kernels.items()][:1])
    return Subject(fusion.layer, imported.weights, kernels, expected)


def error(subject: Subject, found: Array) -> float:
    assert subject.expected is not None
    return float(np.abs(found - subject.expected.reshape(found.shape)).max() / np.abs(subject.expected).max())


def test_attention_is_right_for_all_sizes(subjects: dict[str, tuple[Subject, list[Array]]]) -> None:
    assert {*subjects} == {*CASES}
    offered = {name: subject for name, (subject, _) in subjects.items() if subject.implementations}
    assert {*CASES} - {*offered} == {"few"}
    program = load(offered, TARGET, 2)
    for name, subject in offered.items():
        for descriptor in subject.implementations:
            found = run(program, subject, descriptor, subjects[name][1])
            assert error(subject, found) < MAX_ERROR, (name, descriptor)


def fault_sums_are_not_rescaled(patch: pytest.MonkeyPatch) -> None:
    rescaled = StepWriter._rescaled

    def without(self: StepWriter, *given: Any) -> tuple[list[ir.Value], list[ir.Value]]:
        bases, factors = rescaled(self, *given)
        return bases, [self._head.splat(1.0)] * len(factors)

    patch.setattr(StepWriter, "_rescaled", without)


def fault_keys_beyond_the_last_count(patch: pytest.MonkeyPatch) -> None:
    finished: Callable[..., Any] = HeadCode.finished
    patch.setattr(HeadCode, "finished", lambda self, *given: finished(self, *given[:-1], None))


def fault_keys_are_not_transposed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(key_panels, "transposed", lambda asm, rows: rows)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (fault_sums_are_not_rescaled, "blocks"),
        (fault_keys_beyond_the_last_count, "small"),
        (fault_keys_are_not_transposed, "small"),
    ],
)
def test_faults_are_seen(
    fault: Callable[[pytest.MonkeyPatch], None],
    name: str,
    subjects: dict[str, tuple[Subject, list[Array]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, inputs = subjects[name]
    descriptor, implementation = next(iter(subject.implementations.items()))
    fault(monkeypatch)
    alone = replace(subject, implementations={descriptor: implementation})
    found = run(load({name: alone}, TARGET, 1), alone, descriptor, inputs)
    assert not error(alone, found) < 10 * MAX_ERROR


BATCHES, HEADS, QUERIES, KEYS, DEPTH = 2, 4, 16, 32, 8
USUAL = (BATCHES, HEADS, QUERIES, KEYS)
GROUPED = (BATCHES, 2, QUERIES * HEADS // 2, KEYS)
# For each case the batches, heads and queries of the products, the shapes that scores have where the mask is added to
# them and in the softmax, and the mask's shape.
ATTENTION_SPLITS_CASES = {
    "usual": (USUAL, USUAL, USUAL, (BATCHES, 1, QUERIES, KEYS)),
    "joined": (USUAL, (BATCHES * HEADS, QUERIES, KEYS), USUAL, (1, QUERIES, KEYS)),
    "grouped": (GROUPED, USUAL, USUAL, (BATCHES, 1, QUERIES, KEYS)),
    "multi_query": (
        (BATCHES, QUERIES * HEADS, KEYS),
        (BATCHES, QUERIES, HEADS, KEYS),
        (BATCHES, QUERIES, HEADS, KEYS),
        (BATCHES, QUERIES, 1, KEYS),
    ),
    "beside": (USUAL, (BATCHES, HEADS * QUERIES, KEYS), USUAL, (BATCHES, 1, KEYS)),
}
ACCEPTED = ("usual", "joined")
REFUSED = {
    "grouped": "the softmax is over other batches, heads or queries than the first product's",
    "multi_query": "the softmax is over other batches, heads or queries than the first product's",
    "beside": "an op on the scores is not by their batches, heads and queries",
}


@pytest.fixture(scope="module")
def forms() -> dict[str, AttentionForm | str]:
    """The form of each case, or why there is none."""
    builder, inputs, outputs = Builder(), list[tuple[str, tuple[int, ...]]](), list[tuple[str, tuple[int, ...]]]()
    for name, (product, masked, softmax, mask) in ATTENTION_SPLITS_CASES.items():
        *outer, rows, keys = product
        given = (*outer, rows, DEPTH), (*outer, DEPTH, keys), (*outer, keys, DEPTH), mask
        names = [f"{name}.{part}" for part in ("q", "k", "v", "mask")]
        inputs += zip(names, given, strict=True)
        scores = builder.op("MatMul", f"{name}.scores", *names[:2])
        split = builder.op("Reshape", f"{name}.split", scores, builder.constant(np.array(masked)))
        hidden = builder.op("Add", f"{name}.hidden", split, names[3])
        whole = builder.op("Reshape", f"{name}.whole", hidden, builder.constant(np.array(softmax)))
        shares = builder.op("Softmax", f"{name}.shares", whole, axis=-1)
        back = builder.op("Reshape", f"{name}.back", shares, builder.constant(np.array(product)))
        outputs.append((builder.op("MatMul", f"{name}.mixed", back, names[2]), (*outer, rows, DEPTH)))
    imported = imported_model(builder.model(inputs, outputs), target=TARGET)
    forms: dict[str, AttentionForm | str] = {}
    for fusion in imported.graph.fusions:
        name = fusion.members[-1].partition(".")[0]
        try:
            forms[name], _ = attention_form(fusion.layer.task)
        except ValueError as error:
            forms[name] = str(error)
    return forms


def test_scores_of_the_products_heads_and_queries_are_accepted(forms: dict[str, AttentionForm | str]) -> None:
    for name in ACCEPTED:
        form = forms[name]
        assert isinstance(form, AttentionForm), (name, form)
        assert form.extents == USUAL
        assert form.queries.steps == (HEADS * QUERIES * DEPTH, QUERIES * DEPTH, 0, DEPTH, 1)
        (operand,) = [each for step in form.steps for each in step.operands if isinstance(each, Strided)]
        assert operand.steps == {"usual": (QUERIES * KEYS, 0, 0, KEYS, 1), "joined": (0, 0, 0, KEYS, 1)}[name]


@pytest.mark.parametrize("name", REFUSED)
def test_scores_that_are_split_otherwise_are_refused(name: str, forms: dict[str, AttentionForm | str]) -> None:
    assert forms[name] == REFUSED[name]
