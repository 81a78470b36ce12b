"""Times our rewrites that clean a model beside onnx-ir's passes that do the same, and compares what they leave:
``python -m benchmarks.onnx_ir_passes MODEL.onnx…``, with onnx-ir installed.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir
from onnx import ModelProto
from onnx_ir.passes import common

from sartor.onnx_model.rewrites.structure.drop_unused import drop_unused
from sartor.onnx_model.rewrites.structure.eliminate_identity import eliminate_identity
from sartor.onnx_model.rewrites.structure.initializers import initializers_only
from sartor.onnx_model.rewrites.structure.inline_functions import inline_functions
from sartor.onnx_model.rewrites.structure.sort_nodes import sort_nodes

_REPEATS = 3


def ours(model: ModelProto) -> ModelProto:
    """The model, cleaned in place by our rewrites."""
    for rewrite in (inline_functions, initializers_only, eliminate_identity, drop_unused, sort_nodes):
        rewrite(model)
    return model


def theirs(model: ModelProto) -> ModelProto:
    """A copy that onnx-ir's passes cleaned."""
    graph = onnx_ir.serde.deserialize_model(model)
    for rewrite in (
        common.InlinePass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.RemoveInitializersFromInputsPass(),
        common.IdentityEliminationPass(),
        common.RemoveUnusedNodesPass(),
        common.TopologicalSortPass(),
    ):
        rewrite(graph)
    cleaned: ModelProto = onnx_ir.serde.serialize_model(graph)
    return cleaned


def cleaned(clean: Callable[[ModelProto], ModelProto], model: ModelProto) -> tuple[Counter[str], float]:
    """Operators that are left, and the processor time in seconds, the least of some runs."""
    seconds = []
    for _ in range(_REPEATS):
        given = copy.deepcopy(model)
        start = time.process_time()
        result = clean(given)
        seconds.append(time.process_time() - start)
    return Counter(node.op_type for node in result.graph.node), min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    total_own = total_other = 0.0
    for path in parser.parse_args().models:
        model = onnx.load(path)
        left, own = cleaned(ours, model)
        try:
            others, other = cleaned(theirs, model)
        except onnx_ir.serde.SerdeError as error:
            print(f"{path.stem}: onnx-ir does not read it, {error}")
            continue
        total_own, total_other = total_own + own, total_other + other
        more = f", onnx-ir leaves {dict(others - left)}, ours {dict(left - others)}" if left != others else ""
        print(f"{path.stem}: ours {own * 1e3:.1f} ms, onnx-ir {other * 1e3:.1f} ms{more}")
    print(f"together: ours {total_own * 1e3:.0f} ms, onnx-ir {total_other * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
