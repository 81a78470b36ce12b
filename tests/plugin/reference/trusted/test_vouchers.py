"""Every operator that a rewrite takes apart has somebody else who vouches for its results."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import sartor.onnx_model
from sartor.onnx_model.rewrites.operator_sets import experimental, training, upgrades
from sartor.onnx_model.rewrites.operator_sets.contrib.refused import CONTRIB_REASONS
from sartor.onnx_model.rewrites.operator_sets.expand_operators import CONTRIB_OPERATORS
from sartor.reference.trusted.oracles.vouchers import Voucher, as_markdown, listed, voucher_of

_MS = "com.microsoft"
_TRAINING = "ai.onnx.preview.training"
# A model that has it is refused: derivatives of graphs.
_REFUSED = {(_TRAINING, "Gradient")}


def _accepted() -> set[tuple[str, str]]:
    """All operators of ONNX, and of others those that a table of rewrites has."""
    registered = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    # Inference of shapes registers an operator that no model has.
    standard = {each for each in registered if not each[0].startswith("sartor.")}
    tables = {("", name) for name in (*experimental._EXPANSIONS, *upgrades.UPGRADES)}
    tables |= {(_TRAINING, name) for name in training.OPTIMISERS} | {(_MS, name) for name in CONTRIB_OPERATORS}
    return {each for each in standard | tables if each[0] != "ai.onnx.ml"}


def test_every_operator_has_an_independent_voucher() -> None:
    assert {each for each in _accepted() if voucher_of(each) is Voucher.NOBODY} == _REFUSED


def _rewrites() -> Iterator[Path]:
    (folder,) = sartor.onnx_model.__path__
    for room in ("rewrites", "quantisation", "dynamic", "preparing"):
        yield from sorted((Path(folder) / room).rglob("*.py"))


@pytest.mark.parametrize("path", list(_rewrites()), ids=lambda path: str(path.parent.name + "/" + path.name))
def test_every_operator_that_a_rewrite_names_has_one(path: Path) -> None:
    accepted = _accepted()
    domains = {name: [domain for domain, other in accepted if other == name] for _, name in accepted}
    texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    named = {text for text in texts if isinstance(text, str) and text in domains and text not in CONTRIB_REASONS}
    unvouched = {
        (domain, name) for name in named for domain in domains[name] if voucher_of((domain, name)) is Voucher.NOBODY
    }
    assert unvouched <= _REFUSED


def test_what_is_listed_has_a_source() -> None:
    assert all(operator and source.strip() for operator, _, source in listed())


def test_the_documentation_lists_them() -> None:
    text = (Path(__file__).parents[4] / "docs" / "records" / "accuracy.md").read_text()
    assert as_markdown() in text
