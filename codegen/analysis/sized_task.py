"""What is known of a task of open sizes when it is called with some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sartor.codegen.analysis.integer_ranges import integer_ranges
from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.analysis.task_bounds import Numbers, read_facts
from sartor.codegen.analysis.task_facts import extents_of, task_facts, write_facts
from sartor.codegen.ir.layer import Task, TensorType
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.ir.sizes.fit import Fit

Sizes = Mapping[str, int]


def facts_at(task: Task, sizes: Sizes) -> str:
    """As ``task_facts``, for sizes of the symbols; for a task whose sizes are known the same as that.

    The number of operations is that of its formula by the two sizes of the task's code, else it grows like the result.
    """
    if task.opened is None:
        return task_facts(task)
    kind, numbers = read_facts(task_facts(task))
    inputs, results = ([tensor.at(sizes) for tensor in types] for types in (task.inputs, task.results))
    numbers |= extents_of(replace(task, results=tuple(results)))
    numbers["operations"] = _operations_at(task, task.opened.fit, sizes)
    numbers["depth"] = max(1, numbers["operations"] // (2 * max(1, results[0].elements)))
    numbers["read"], numbers["written"] = (sum(tensor.bytes for tensor in types) for types in (inputs, results))
    return write_facts(kind, numbers)


def mean_facts(facts: Sequence[tuple[float, str]]) -> str:
    """Facts with the mean of each number over calls, which are given by their share of all calls.

    So a cost model may learn from the mean time of calls as from that of a task whose sizes are known.
    """
    kind, first = read_facts(facts[0][1])
    listed = [(share, read_facts(text)[1]) for share, text in facts]
    means: Numbers = {name: max(1, round(sum(share * numbers[name] for share, numbers in listed))) for name in first}
    return write_facts(kind, {name: means[name] if first[name] else 0 for name in first})


def _operations_at(task: Task, fit: Fit, sizes: Sizes) -> int:
    most = operation_count(task)
    assert task.opened is not None
    try:
        dim = fit.dim(most, operation_count(task.opened.twin))
    except RejectionError:
        return round(most * _share(task.results[0], sizes))
    return dim if isinstance(dim, int) else dim.at(sizes)


def _share(tensor: TensorType, sizes: Sizes) -> float:
    return tensor.at(sizes).elements / max(1, tensor.elements)


def integers_at(task: Task, sizes: Sizes) -> tuple[range | None, ...]:
    """As ``integer_ranges``, for sizes of the symbols: what is indexed may be shorter than for the largest ones.

    Where the ends of a range follow from sizes in an unknown way it is ``range(1)``, the 0 alone.
    """
    if task.opened is None:
        return integer_ranges(task)
    pairs = zip(integer_ranges(task), integer_ranges(task.opened.twin), strict=True)
    return tuple(_range_at(one, other, task.opened.fit, sizes) for one, other in pairs)


def _range_at(one: range | None, other: range | None, fit: Fit, sizes: Sizes) -> range | None:
    if one is None or other is None or one == other:
        return one
    try:
        ends = [fit.dim(*pair) for pair in ((one.start, other.start), (one.stop, other.stop))]
    except RejectionError:
        return range(1)
    start, stop = (end if isinstance(end, int) else end.at(sizes) for end in ends)
    return range(start, stop)
