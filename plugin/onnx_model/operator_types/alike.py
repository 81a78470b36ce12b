"""Which operators are alike in what they compute: whoever treats them alike takes them from here."""

from __future__ import annotations

from collections.abc import Mapping

BY_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that multiply their first operand by the second, mostly a weight."""

WITH_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose attributes are graphs, in which a node need not be computed in every call."""

GATES: Mapping[str, int] = {"GRU": 3, "LSTM": 4, "RNN": 1}
"""Recurrent operators, with the number of their gates."""

REDUCTIONS = frozenset(
    {
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
    }
)
"""Operators that make one element of those along some axes, which their second operand may name."""
