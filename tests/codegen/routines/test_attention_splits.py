"""Attention is refused where the softmax, or what is beside the scores, splits their rows unlike the products."""

from __future__ import annotations

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.attention.attention_form import AttentionForm, attention_form
from sartor.codegen.kernels.attention.attention_loops import Strided
from tests.importing import imported_model
from tests.tiny_models import Builder

TARGET = Target.create("cpu")
BATCHES, HEADS, QUERIES, KEYS, DEPTH = 2, 4, 16, 32, 8
USUAL = (BATCHES, HEADS, QUERIES, KEYS)
GROUPED = (BATCHES, 2, QUERIES * HEADS // 2, KEYS)
# For each case the batches, heads and queries of the products, the shapes that scores have where the mask is added to
# them and in the softmax, and the mask's shape.
CASES = {
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
    for name, (product, masked, softmax, mask) in CASES.items():
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
