"""Sets of plans: those of one file, each with the shapes that it is for, stored as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from sartor.errors import UsageError
from sartor.publishing import written
from sartor.runtime.files.regular_files import read_json
from sartor.tuning.records.plan import Plan

FORMAT = 1
_MOST_BYTES = 1 << 30
_PLANS = "plans"
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@validated(frozen=True, config=_STRICT)
class ShapedPlan:
    """A plan with the shapes that bind its inputs' dynamic dimensions, by the inputs' names."""

    shapes: dict[str, tuple[int, ...]]
    plan: Plan


@validated(frozen=True, config=_STRICT)
class PlanSet:
    """The plans of one file.

    Attributes:
        plans: in the order of the file.
        format: version of this record.
    """

    plans: tuple[ShapedPlan, ...]
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        """The set as JSON data, with keys in a fixed order."""
        return {_PLANS: [{"shapes": plan.shapes, "plan": plan.plan.to_json()} for plan in self.plans], "format": FORMAT}

    def text(self) -> str:
        """The set as indented JSON."""
        return json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n"

    def save(self, path: Path) -> None:
        """Write the set as indented JSON.

        Raises:
            UsageError: if the file cannot be written.
        """
        with written(path) as new:
            new.write_text(self.text(), encoding="utf-8")


def load_plans(path: Path) -> Plan | PlanSet:
    """Read a plan, or the plans of a file with several, from a JSON file.

    Raises:
        UsageError: if the file cannot be read or is neither.
    """
    try:
        data = read_json(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"the plan '{path}' cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"the plan '{path}' is not JSON: {error}") from None
    if not (isinstance(data, dict) and _PLANS in data):
        return Plan.from_json(data, f"'{path}'")
    if data.get("format") != FORMAT:
        raise UsageError(f"'{path}' has plans of format {data.get('format')}, this version reads {FORMAT}")
    try:
        plan_set = _ADAPTER.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the top"
        raise UsageError(f"'{path}' holds no plans: {first['msg']} at {where}") from None
    if not plan_set.plans:
        raise UsageError(f"'{path}' holds no plans")
    return plan_set


_ADAPTER: TypeAdapter[PlanSet] = TypeAdapter(PlanSet)
