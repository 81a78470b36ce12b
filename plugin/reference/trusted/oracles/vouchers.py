"""Who vouches for an operator, whatever its attributes: what ``docs/records/accuracy.md`` lists, and tests ask for."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cache
from typing import Any

import onnx
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state as state

from sartor.reference.trusted.oracles.table import DEVIATIONS, ORACLES, Operator, is_evaluated

_PROVIDER = "CPUExecutionProvider"
# ONNX Runtime makes weights of them when it loads a model.
_LOADED = frozenset({("", "Constant")})


class Voucher(Enum):
    """Who computes an operator where results are checked."""

    KERNEL = "ONNX Runtime's kernel"
    BODY = "its body in ONNX, by ONNX Runtime's kernels"
    DEFINITION = "a definition of Sartor's own"
    EVALUATOR = "ONNX's evaluator in Python"
    NOBODY = "nobody"


def voucher_of(operator: Operator) -> Voucher:
    """The first that vouches for an operator, in some types at least."""
    if operator in ORACLES and operator not in _kernels():
        return Voucher.DEFINITION
    if operator in _kernels() | _LOADED:
        return Voucher.KERNEL
    if operator in _bodies():
        return Voucher.BODY
    domain, name = operator
    is_known = onnx.defs.has(name, domain) and is_evaluated(NodeProto(op_type=name, domain=domain))
    return Voucher.EVALUATOR if is_known and _has_evaluator(operator) else Voucher.NOBODY


def _has_evaluator(operator: Operator) -> bool:
    domain, name = operator
    version = onnx.defs.get_schema(name, domain=domain).since_version
    graph = helper.make_graph([helper.make_node(name, [], [], domain=domain)], "one", [], [])
    try:
        ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, version)]))
    except NotImplementedError:
        return False
    except RuntimeError:
        # It knows the operator, and misses an attribute.
        return True
    return True


@cache
def _kernels() -> frozenset[Operator]:
    """Operators for which ONNX Runtime's CPU provider has a kernel."""
    kernels = (kernel for kernel in state.get_all_opkernel_def() if kernel.provider == _PROVIDER)
    return frozenset(("" if kernel.domain == "ai.onnx" else kernel.domain, kernel.op_name) for kernel in kernels)


@cache
def _bodies() -> frozenset[Operator]:
    """Operators that ONNX defines by others."""
    schemas: Iterable[Any] = onnx.defs.get_all_schemas_with_history()
    return frozenset(
        (schema.domain, schema.name)
        for schema in schemas
        if schema.has_function or schema.has_context_dependent_function
    )


def listed() -> list[tuple[str, str, str]]:
    """Operators for which not ONNX Runtime's kernel alone vouches: operator, who does, and from what or why."""
    rows = [(_shown(key), Voucher.DEFINITION.value, f"from {oracle.source}") for key, oracle in ORACLES.items()]
    rows += [
        (_shown(key), Voucher.DEFINITION.value, f"ONNX Runtime deviates: {deviation.reason}")
        for key, deviation in DEVIATIONS.items()
    ]
    return sorted(rows)


def as_markdown() -> str:
    """The table of ``listed`` as ``docs/records/accuracy.md`` shows it."""
    lines = ["| operator | written from, or why |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{operator}` | {source} |" for operator, _, source in listed())])


def _shown(operator: Operator) -> str:
    domain, name = operator
    return f"{domain}.{name}" if domain else name
