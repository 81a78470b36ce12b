"""The record, in a manifest, of a plan that takes over from another behind the first inference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sartor.runtime.files.json_fields import Fields, checked, record, text, whole


@dataclass(frozen=True)
class Successor:
    """The plan for later inferences, of a file with another for the first one.

    Attributes:
        entry: the function that runs it; it takes and gives what the file's entry does.
        weight_bytes: of the weights that only this plan reads.
        plan: as JSON data, which is not checked here.
    """

    entry: str
    weight_bytes: int
    plan: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(content: object, where: str = "") -> Successor:
        """The fields of JSON data.

        Raises:
            FieldError: if they are not those of a plan.
        """
        fields = Fields(content, where)
        found = Successor(
            entry=fields.take("entry", text),
            weight_bytes=fields.take("weight_bytes", checked(whole, _check_bytes)),
            plan=fields.take("plan", record, {}),
        )
        fields.end()
        return found


def _check_bytes(count: int) -> None:
    if count < 0:
        raise ValueError(f"{count} is no number of bytes")
