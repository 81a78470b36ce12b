"""Attention whose heads of queries share keys and values: each reads its own queries and mask, and its group's keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from sartor.codegen.ir.layer import Fusion
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Rejected, choices_of, variants_of
from sartor.codegen.kernels.attention.attention_form import AttentionForm
from sartor.codegen.kernels.attention.attention_loops import Strided
from sartor.codegen.kernels.attention.head_code import HeadCode
from sartor.codegen.kernels.attention.hidden_keys import HiddenKeys
from sartor.codegen.kernels.emit.assembler import Assembler
from sartor.codegen.kernels.emit.index_arithmetic import Index
from sartor.codegen.routines.open_sizes.attention import OpenAttentionKernel
from sartor.codegen.routines.open_sizes.blocked_attention import BlockedAttentionKernel
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.driver.signature import Array
from tests.codegen.routines.harness import Subject, load, run
from tests.importing import imported_model
from tests.tiny_models import Builder

TARGET = Target.create("cpu")
_Routine = BlockedAttentionKernel | OpenAttentionKernel
MAX_ERROR = 2e-6
DEPTH = 24


@dataclass(frozen=True)
class Case:
    """An attention of grouped queries.

    Attributes:
        sizes: batches, heads of keys, heads of queries for each, queries, and keys.
        mask: "add" for an input that is added to scores, "choose" for one of truth values, "causal" for a weight.
        way: the op that repeats keys and values.
        is_turned: whether inputs and the result are by heads.
        scale: of scores.
        hidden: what "causal" adds to scores of later keys.
    """

    sizes: tuple[int, int, int, int, int]
    mask: str = ""
    way: str = "Expand"
    is_turned: bool = False
    scale: float = 0.3
    hidden: float = -1e9


CASES = {
    "none": Case((1, 4, 3, 21, 40)),
    "causal": Case((1, 4, 3, 128, 128), "causal"),
    "causal_tiled": Case((2, 2, 2, 21, 21), "causal", "Tile"),
    "causal_turned": Case((1, 4, 3, 21, 21), "causal", is_turned=True),
    "add": Case((8, 4, 3, 7, 19), "add"),
    "add_turned": Case((8, 2, 2, 7, 19), "add", is_turned=True),
    "choose": Case((1, 4, 3, 7, 130), "choose"),
    "one_group": Case((1, 1, 12, 7, 19), "add"),
    "one_group_causal": Case((8, 1, 3, 7, 7), "causal"),
    "one_member": Case((8, 12, 1, 19, 19), "causal"),
    "one_head": Case((1, 1, 1, 128, 40), "add"),
    "one_query": Case((1, 1, 12, 1, 19), "add"),
    "many_hidden": Case((1, 1, 2, 150, 300), "causal"),
    "infinite": Case((1, 2, 2, 40, 40), "causal", hidden=-math.inf),
    # Scores reach what hides others, so that nothing may be left out.
    "weak": Case((1, 2, 2, 40, 40), "causal", scale=9.0, hidden=-100.0),
    "opposite": Case((1, 2, 2, 40, 40), "causal", scale=-9.0, hidden=-100.0),
}


FEW = {
    "token": Case((1, 4, 3, 1, 40)),
    "token_masked": Case((1, 2, 4, 1, 129), "add"),
    "tokens": Case((8, 4, 1, 5, 19), "add"),
    "tokens_causal": Case((1, 2, 2, 4, 4), "causal", is_turned=True),
}


def add(builder: Builder, name: str, case: Case) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """Add an attention to a model; returns the shapes of its inputs and its result."""
    batches, groups, members, queries, keys = case.sizes
    heads = groups * members

    def by_heads(part: str, count: int, rows: int) -> tuple[str, tuple[int, ...]]:
        given = f"{name}.{part}"
        if case.is_turned:
            return given, (batches, count, rows, DEPTH)
        split = builder.op("Reshape", f"{given}.split", given, builder.constant(np.array([0, 0, count, DEPTH])))
        turned = builder.op("Transpose", f"{given}.turned", split, perm=[0, 2, 1, 3])
        return turned, (batches, rows, count * DEPTH)

    def repeated(value: str) -> str:
        wide = builder.op("Unsqueeze", f"{value}.wide", value, builder.constant(np.array([2])))
        repeats = [batches, groups, members, keys, DEPTH] if case.way == "Expand" else [1, 1, members, 1, 1]
        each = builder.op(case.way, f"{value}.each", wide, builder.constant(np.array(repeats)))
        return builder.op("Reshape", f"{value}.heads", each, builder.constant(np.array([batches, heads, keys, DEPTH])))

    parts = [by_heads("q", heads, queries), by_heads("k", groups, keys), by_heads("v", groups, keys)]
    shapes = {f"{name}.{part}": shape for part, (_, shape) in zip("qkv", parts, strict=True)}
    turned = builder.op("Transpose", f"{name}.k.columns", repeated(parts[1][0]), perm=[0, 1, 3, 2])
    scores = builder.op("MatMul", f"{name}.scores", parts[0][0], turned)
    scores = builder.op("Mul", f"{name}.scaled", scores, builder.constant(np.array(case.scale, np.float32)))
    if case.mask:
        mask = f"{name}.mask"
        shapes[mask] = (1, 1, queries, keys)
        if case.mask == "causal":
            mask = builder.constant(np.triu(np.full(shapes.pop(mask)[2:], case.hidden, np.float32), 1))
        if case.mask == "choose":
            hidden = [builder.constant(np.array(value, np.float32)) for value in (0, -1e9)]
            mask = builder.op("Where", f"{name}.chosen", mask, *hidden)
        scores = builder.op("Add", f"{name}.masked", scores, mask)
    shares = builder.op("Softmax", f"{name}.shares", scores, axis=-1)
    result = f"{name}.result"
    if case.is_turned:
        builder.op("MatMul", result, shares, repeated(parts[2][0]))
        return shapes, (batches, heads, queries, DEPTH)
    mixed = builder.op("MatMul", f"{name}.mixed", shares, repeated(parts[2][0]))
    back = builder.op("Transpose", f"{name}.back", mixed, perm=[0, 2, 1, 3])
    builder.op("Reshape", result, back, builder.constant(np.array([0, 0, heads * DEPTH])))
    return shapes, (batches, queries, heads * DEPTH)


def imported_cases(cases: dict[str, Case]) -> ImportedModel:
    builder, inputs, outputs = Builder(), list[tuple[str, tuple[int, ...]]](), list[tuple[str, tuple[int, ...]]]()
    for name, case in cases.items():
        shapes, shape = add(builder, name, case)
        inputs += shapes.items()
        outputs.append((f"{name}.result", shape))
    model = builder.model(inputs, outputs)
    for each in model.graph.input:
        if each.name.endswith(".mask") and cases[each.name.partition(".")[0]].mask == "choose":
            each.type.tensor_type.elem_type = TensorProto.BOOL
    return imported_model(model, target=TARGET)


Subjects = dict[str, tuple[Subject, list[Array]]]


def found_subjects(cases: dict[str, Case], routine: _Routine) -> Subjects:
    """The attention of each case with a routine's kernels and what it computes; and what it reads."""
    imported = imported_cases(cases)
    random = np.random.default_rng(3)
    given = dict[str, Array]()
    for each in imported.graph.inputs:
        numbers = random.standard_normal(each.type.shape).astype(np.float32)
        given[each.name] = numbers > 0 if each.type.dtype == "i1" else numbers
    session = onnxruntime.InferenceSession(imported.path, providers=["CPUExecutionProvider"])
    expected = dict(zip(cases, session.run([f"{name}.result" for name in cases], given), strict=True))
    subjects: Subjects = {}
    for fusion in imported.graph.fusions:
        name = fusion.members[-1].partition(".")[0]
        # Where a layer turns the keys, it is part of the attention; another may make the mask.
        sources = {ref.source for ref in fusion.layer.inputs} - {None}
        if all(source and "for_heads" in source for source in sources):
            subject = Subject(fusion.layer, imported.weights, kernels(fusion, routine), expected[name])
            if subject.implementations:
                subjects[name] = subject, [*_inputs(fusion, cases[name], given)]
    return subjects


def kernels(fusion: Fusion, routine: _Routine) -> dict[str, Implementation]:
    variants = variants_of(routine, fusion.layer.task, TARGET)
    return {each.descriptor: each.implementation for each in variants if not isinstance(each, Rejected)}


def _inputs(fusion: Fusion, case: Case, given: dict[str, Array]) -> Iterator[Array]:
    arrays, name = [*given.values()], fusion.members[-1].partition(".")[0]
    for ref, kind in zip(fusion.layer.inputs, fusion.layer.task.inputs, strict=True):
        if ref.source is None:
            yield arrays[ref.index]
            continue
        mask = given[f"{name}.mask"]
        added = np.where(mask, 0, -1e9) if case.mask == "choose" else mask
        times = math.prod(kind.shape) // mask.size
        yield np.tile(added, (1, times, 1, 1)).reshape(kind.shape).astype(np.float32)


@pytest.fixture(scope="module")
def subjects() -> Subjects:
    return found_subjects(CASES, BlockedAttentionKernel())


def error(subject: Subject, found: Array) -> float:
    assert subject.expected is not None
    return float(np.abs(found - subject.expected.reshape(found.shape)).max() / np.abs(subject.expected).max())


def test_each_head_has_its_own_queries_and_its_groups_keys(subjects: Subjects) -> None:
    assert {*subjects} == {*CASES}
    chosen = {name: _alone(subject) for name, (subject, _) in subjects.items()}
    program = load(chosen, TARGET, 2)
    for name, subject in chosen.items():
        (descriptor,) = subject.implementations
        assert error(subject, run(program, subject, descriptor, subjects[name][1])) < MAX_ERROR, name


def test_few_queries_of_known_sizes_have_a_kernel_that_threads_share() -> None:
    subjects = found_subjects(FEW, OpenAttentionKernel())
    assert {*subjects} == {*FEW}
    program = load({name: subject for name, (subject, _) in subjects.items()}, TARGET, 2)
    for name, (subject, inputs) in subjects.items():
        batches, groups, *_ = FEW[name].sizes
        for descriptor in subject.implementations:
            assert error(subject, run(program, subject, descriptor, inputs)) < MAX_ERROR, (name, descriptor)
        listed = choices_of(OpenAttentionKernel(), subject.task, TARGET)
        assert not isinstance(listed, Rejected)
        assert all(int(str(each["groups"])) >= min(batches * groups, 14) for each in listed)


def test_many_queries_of_known_sizes_have_another_kernel(subjects: Subjects) -> None:
    subject, _ = subjects["none"]
    assert isinstance(choices_of(OpenAttentionKernel(), subject.task, TARGET), Rejected)


def _alone(subject: Subject) -> Subject:
    """A subject with its first kernel."""
    return replace(subject, implementations=dict([*subject.implementations.items()][:1]))


def fault_of_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys are those of the head whose number is that of the member in its group."""
    offset = HeadCode.offset

    def wrong(self: HeadCode, strided: Strided, row: Index) -> Index:
        return offset(replace(self, group=self.member) if strided is self.form.keys else self, strided, row)

    patch.setattr(HeadCode, "offset", wrong)


def fault_of_members(patch: pytest.MonkeyPatch) -> None:
    """All heads of a group are the first."""

    def wrong(asm: Assembler, form: AttentionForm, memories: Any, batch: Index, head: Index) -> HeadCode:
        return HeadCode(asm, form, memories, batch, asm.divide(head, form.members)[0], 0)

    patch.setattr(HeadCode, "of", wrong)


@pytest.mark.parametrize("fault", [fault_of_keys, fault_of_members])
def test_wrong_groups_are_seen(
    fault: Callable[[pytest.MonkeyPatch], None], subjects: Subjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "causal_tiled"
    subject, inputs = _alone(subjects[name][0]), subjects[name][1]
    fault(monkeypatch)
    (descriptor,) = subject.implementations
    found = run(load({name: subject}, TARGET, 1), subject, descriptor, inputs)
    assert not error(subject, found) < 1000 * MAX_ERROR


def test_hidden_keys_are_left_out(subjects: Subjects) -> None:
    """Values of keys that a mask hides from all queries of a tile are not read."""
    for name, is_left_out in (("many_hidden", True), ("causal", True), ("infinite", True), ("weak", False)):
        (subject, inputs), case = subjects[name], CASES[name]
        subject, keys = _alone(subject), case.sizes[-1]
        *others, values = inputs
        values = values.copy()
        values.reshape(values.shape[0], keys, -1)[:, -1] = math.nan
        (descriptor,) = subject.implementations
        found = run(load({name: subject}, TARGET, 1), subject, descriptor, [*others, values])
        assert bool(np.isfinite(found).any()) == is_left_out, name


def test_bounds_that_are_too_small_are_seen(subjects: Subjects, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = HiddenKeys.bound

    def wrong(self: HiddenKeys, place: Index, row: Index) -> None:
        bound(replace(self, most=self.head.splat(0.0)), place, row)

    monkeypatch.setattr(HiddenKeys, "bound", wrong)
    subject, inputs = _alone(subjects["weak"][0]), subjects["weak"][1]
    (descriptor,) = subject.implementations
    found = run(load({"weak": subject}, TARGET, 1), subject, descriptor, inputs)
    assert not error(subject, found) < 1000 * MAX_ERROR
