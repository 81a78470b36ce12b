"""Tasks with variants whose times follow a rule, for tests of the search."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.codegen.routine_registry import described
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.searched import Searched

STOCK = "cpu:f32/conv2d.stock"


def facts(channels: int, side: int, kernel: int = 1) -> str:
    """Of a convolution of an image of ``side`` x ``side`` pixels with as many channels in as out."""
    elements = channels * side * side
    depth = channels * kernel**2
    numbers = {
        **{"batch": 1, "channels": channels, "columns": side, "depth": depth, "dilation": 1, "operands": 1},
        **{"operations": 2 * elements * depth, "read": 4 * elements, "rows": side, "stride": 1, "taps": kernel**2},
        **{"kernel_height": kernel, "kernel_width": kernel},
        **{"weights": 4 * channels * depth, "written": 4 * elements},
    }
    return " ".join(["convolution", *(f"{name}={value}" for name, value in sorted(numbers.items()))])


def kernel(columns: int, vectors: int, *, blocked: bool = False) -> str:
    name = "direct_blocked" if blocked else "direct"
    return f"cpu:f32/conv2d.{name}{{columns={columns},lines=1,panel_groups=1,row_groups=14,unroll=1,vectors={vectors}}}"


KERNELS = tuple(
    kernel(columns, vectors, blocked=blocked)
    for blocked in (False, True)
    for columns, vectors in ((4, 2), (7, 4), (14, 2), (28, 1), (9, 3))
)
VARIANTS = (STOCK, *KERNELS)


def listed(*descriptors: str) -> tuple[DescribedVariant, ...]:
    return tuple(map(described, descriptors))


def task(key: str, channels: int, side: int, count: int = 1) -> Searched:
    return Searched(key, facts(channels, side), listed(*VARIANTS), count)


def seconds(text: str, variant: str) -> float:
    """The rule: vectors of two are best, and blocked images where channels are many."""
    found = described(variant)
    if found.traits.family == "stock":
        return 10 * ideal_seconds(text)
    many = "channels=512" in text
    slower = {1: 1.6, 2: 1.0, 3: 1.2, 4: 1.4}[found.parameters["vectors"]]
    layout = 1.5 if found.traits.blocked != many else 1.0
    return ideal_seconds(text) * slower * layout * (1.1 if found.parameters["columns"] == 4 else 1.0)


def best(each: Searched) -> str:
    return min((one.descriptor for one in each.variants), key=lambda name: seconds(each.facts, name))


def samples(*tasks: Searched) -> list[Sample]:
    return [Sample(each.facts, one, seconds(each.facts, one.descriptor)) for each in tasks for one in each.variants]


def measured(tasks: Mapping[str, Searched], picks: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, float | None]]:
    return {key: {name: seconds(tasks[key].facts, name) for name in listed} for key, listed in picks.items()}
