"""Models of run times on a GPU: what they count, and that they refuse a CPU."""

from __future__ import annotations

import pytest

from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.analysis.task_facts import task_facts
from sartor.codegen.ir.machines.core import WIDE, core_of_gpu
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.cuda import costs
from sartor.codegen.kernels.cuda.costs import AttentionCost
from sartor.codegen.kernels.tensor_cores.instructions import HALF
from tests.importing import imported_model
from tools.cuda.assembler.models import MODELS

GPU = core_of_gpu(ARCHITECTURES["sm_80"])


@pytest.fixture(scope="module")
def attentions() -> dict[int, dict[str, int]]:
    """Sizes of attentions that are checked with the assembler, one for each number of keys."""
    imported = imported_model(MODELS["attention"](), target=Target.create("cuda", "sm_80"))
    fused = [fusion.layer.task for fusion in imported.graph.fusions]
    return {task.inputs[0].shape[-2]: dict(kind_and_sizes(task_facts(task))[1]) for task in fused if task.inputs}


@pytest.mark.parametrize(("keys", "small", "large"), [(128, 4, 2), (1024, 32, 16), (197, 7, 4)])
def test_an_attention_waits_for_each_block_of_keys_once(
    keys: int, small: int, large: int, attentions: dict[int, dict[str, int]]
) -> None:
    model = AttentionCost(HALF)
    by_32, by_64 = (model.cycles(attentions[keys], {"block": block, "warps": 4}, GPU) for block in (32, 64))
    assert by_32 - by_64 == pytest.approx((small - large) * costs._BLOCK_LATENCY)


def test_no_model_of_a_gpu_is_that_of_a_cpu(attentions: dict[int, dict[str, int]]) -> None:
    with pytest.raises(ValueError, match="that of a GPU"):
        AttentionCost(HALF).cycles(attentions[128], {"block": 32, "warps": 4}, WIDE)
