"""The types of ONNX Runtime's operators, from the schemas in its package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from onnx import TensorProto
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

CONTRIB_DOMAIN = "com.microsoft"
BLOCKED_DOMAIN = "com.microsoft.nchwc"
UNDECLARED_CONTRIB = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""What ONNX Runtime's optimiser writes without a domain, though the standard has it in later opsets or never."""
_NAMES = {
    "float": TensorProto.FLOAT,
    "string": TensorProto.STRING,
    **{name.lower(): number for name, number in TensorProto.DataType.items() if name not in ("FLOAT", "STRING")},
}


@dataclass(frozen=True)
class Schema:
    """What an operator declares about the element types of its operands and results.

    Attributes:
        inputs: per operand the name of its type, such as ``T``, which those of one type share.
        outputs: per result, likewise.
        allowed: the element types (``TensorProto.DataType``) that each name may stand for; without sequences and maps.
        repeats: whether the last operand may be given several times.
    """

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    allowed: Mapping[str, tuple[int, ...]]
    repeats: bool

    def operand(self, index: int) -> str:
        """The type name of the operand at an index."""
        return self.inputs[min(index, len(self.inputs) - 1)]


@cache
def schemas() -> Mapping[tuple[str, str], Schema]:
    """The newest schema of each of ONNX Runtime's own operators, by domain and name."""
    newest: dict[tuple[str, str], int] = {}
    result: dict[tuple[str, str], Schema] = {}
    for item in get_all_operator_schema():
        # LayerNormalization of opset 1 is its own, that of 17 the standard's.
        is_undeclared = not item.domain and item.name in UNDECLARED_CONTRIB and item.since_version == 1
        key = (CONTRIB_DOMAIN if is_undeclared else item.domain, item.name)
        if key[0] not in (CONTRIB_DOMAIN, BLOCKED_DOMAIN) or item.since_version < newest.get(key, 0):
            continue
        newest[key] = item.since_version
        result[key] = Schema(
            item.name,
            key[0],
            tuple(parameter.typeStr for parameter in item.inputs),
            tuple(parameter.typeStr for parameter in item.outputs),
            _allowed(item),
            bool(item.inputs) and item.inputs[-1].option.name == "Variadic",
        )
    return result


def _allowed(item: object) -> dict[str, tuple[int, ...]]:
    """Element types by type name; an operand of one fixed type is named by that."""
    allowed = {
        constraint.type_param_str: _numbers(constraint.allowed_type_strs)
        for constraint in item.type_constraints  # type: ignore[attr-defined]
    }
    parameters = (*item.inputs, *item.outputs)  # type: ignore[attr-defined]
    fixed = {parameter.typeStr for parameter in parameters} - set(allowed)
    return allowed | {name: _numbers([name]) for name in fixed}


def _numbers(types: Sequence[str]) -> tuple[int, ...]:
    names = (text.removeprefix("tensor(").removesuffix(")") for text in types)
    return tuple(_NAMES[name] for name in names if name in _NAMES)
