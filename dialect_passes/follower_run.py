"""The ops that follow a group, one by one in program order, without looking at the rest of the network."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.codegen.mlir.iree_compiler import ir


@dataclass(frozen=True)
class UseGraph:
    """Which op uses the results of which.

    Attributes:
        order: position of each op in the program.
        producers: ops that each op reads, once for each use.
        users: ops that read each op, once for each use; None for the world outside.
    """

    order: Mapping[ir.Operation, int]
    producers: Mapping[ir.Operation, Sequence[ir.Operation]]
    users: Mapping[ir.Operation, Sequence[ir.Operation | None]]


class FollowerRun:
    """A growing set of ops. A step takes time in proportion to the uses of one op, not to the length of the network.

    Args:
        graph: of the network.
        ops: the first members, none of which has a user before the last of them.

    Attributes:
        ops: members in the order in which they joined.
        leaving: how many members are used by ops that are no members.
    """

    def __init__(self, graph: UseGraph, ops: Sequence[ir.Operation]) -> None:
        self.ops: list[ir.Operation] = []
        self.leaving = 0
        self._graph = graph
        self._uses_outside: dict[ir.Operation, int] = {}
        self._refused: dict[ir.Operation, None] = {}
        self._unrelated: set[ir.Operation] = set()
        self._escaped: set[ir.Operation] = set()
        self._pending: list[tuple[int, ir.Operation]] = []
        self._seen: set[ir.Operation] = set(ops)
        for op in ops:
            self.join(op)

    def next(self) -> ir.Operation | None:
        """The next op that uses a member, to be joined or refused.

        None if there is none, or if two members are used by what was refused: ``leaving`` stays above 1 from then on.
        """
        if len(self._escaped) > 1 or not self._pending:
            return None
        return heapq.heappop(self._pending)[1]

    def join(self, op: ir.Operation) -> None:
        """Make an op a member."""
        self.ops.append(op)
        for producer in self._graph.producers[op]:
            self._count(producer, -1)
        self._uses_outside[op] = 0
        self._count(op, sum(user not in self._uses_outside for user in self._graph.users[op]))
        for user in self._graph.users[op]:
            if user is None:
                self._escaped.add(op)
            elif user not in self._seen:
                self._seen.add(user)
                heapq.heappush(self._pending, (self._graph.order[user], user))

    def refuse(self, op: ir.Operation) -> None:
        """Leave an op outside; the members that it uses are then used outside, whatever else joins."""
        self._refused[op] = None
        self._escaped.update(producer for producer in self._graph.producers[op] if producer in self._uses_outside)

    def goes_around(self, op: ir.Operation) -> bool:
        """Whether the op that ``next`` returned last also depends on a member by way of ops outside.

        The first op outside on such a way was refused, as all users of members before ``op`` have been decided on.
        """
        if not self._refused:
            return False
        order, producers = self._graph.order, self._graph.producers
        first = order[next(iter(self._refused))]
        pending = [producer for producer in producers[op] if producer not in self._uses_outside]
        seen: set[ir.Operation] = set()
        while pending:
            candidate = pending.pop()
            if candidate in self._refused:
                return True
            # What does not depend on what was refused so far never does: ops are refused in program order.
            if candidate not in seen and candidate not in self._unrelated and order[candidate] > first:
                seen.add(candidate)
                pending.extend(producers[candidate])
        self._unrelated |= seen
        return False

    def _count(self, op: ir.Operation, change: int) -> None:
        """Change how many uses outside a member has."""
        if op in self._uses_outside:
            before = self._uses_outside[op]
            self._uses_outside[op] = before + change
            self.leaving += bool(before + change) - bool(before)
