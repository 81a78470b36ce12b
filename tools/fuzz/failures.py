"""Failures found by a campaign: their signatures and the files written for them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from onnx import ModelProto

from sartor.codegen.ir.variants.descriptor import without_parameters
from tools.fuzz.forced_plans import Forced
from tools.fuzz.trial import Setting

WRONG = "wrong"
"""Kind of a failure with a wrong output."""

_VARYING = re.compile(r"m?\d[\d.e+x-]*\w*|'[^']*'|\"[^\"]*\"|%\w+|@\w+")
_SIGNATURE_LENGTH = 160


@dataclass(frozen=True)
class Failure:
    """A model that fails with a plan.

    Attributes:
        kind: ``wrong``, or the status of the worker's job.
        message: the error message.
        model: the serialised model.
        forced: the plan; None for the unsplit model.
        setting: the setting that the plan is made for.
    """

    kind: str
    message: str
    model: bytes
    forced: Forced | None
    setting: Setting

    @property
    def operators(self) -> list[str]:
        """Operators of the model's nodes, in order."""
        return [node.op_type for node in ModelProto.FromString(self.model).graph.node]

    @property
    def signature(self) -> str:
        """Key that is equal for similar failures.

        For a wrong output it consists of operators and routines, for other failures of the message without names and
        numbers.
        """
        said = _VARYING.sub("_", self.message)[:_SIGNATURE_LENGTH]
        how = "unsplit" if self.forced is None else "plan"
        if self.kind != WRONG:
            return f"{self.kind} {how}: {said}"
        routines = sorted({without_parameters(each) for each in (self.forced or {}).values()})
        return f"{self.kind} {how}: {' '.join([*self.operators, *routines])}"

    def write(self, folder: Path) -> None:
        """Write the model and a JSON description of the failure to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(self.model)
        said = {
            "kind": self.kind,
            "message": self.message,
            "operators": self.operators,
            "setting": asdict(self.setting),
            "forced": self.forced,
        }
        (folder / "failure.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
