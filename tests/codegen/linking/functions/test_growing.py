"""Calls of modules whose caches grow, as IREE plans them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sartor.codegen.linking import stitching
from sartor.codegen.linking.stitching import Stitched
from sartor.codegen.mlir.iree_compiler import inlined, translate
from sartor.tuning.networks import build_job
from tests.cache_models import Decoder
from tests.codegen.linking.test_stitching import TARGET
from tests.plugin.profiling.test_cache_check import built, imported


def test_a_call_is_one_piece_of_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IREE hands each piece to its workers, which may sleep before the next; rows are written where they are kept."""
    texts = list[str]()

    def stitch(*arguments: Any) -> Stitched:
        found = stitching.stitch(*arguments)
        texts.append(found.text)
        return found

    monkeypatch.setattr(build_job, "stitch", stitch)
    model = imported(Decoder(layers=2, width=16, has_mask=True), tmp_path)
    built(model, tmp_path)
    (text,) = texts
    planned = translate(inlined(text), TARGET.flags, to="stream", start="flow")
    _, found, after = planned.partition("@main_graph$stateful$apart(")
    assert found
    function = after.partition("util.func")[0]
    assert function.count("stream.cmd.execute") == 1
    assert "stream.cmd.copy" not in function, "rows of a cache lie at aligned places, so nothing of them is copied"
