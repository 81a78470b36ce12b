"""What comparing the layers of a network says of it."""

from __future__ import annotations

import glob
from dataclasses import dataclass

from sartor.reference.layerwise.layer_check import WrongTensor


@dataclass(frozen=True)
class LayerVerdict:
    """What comparing the layers of a network says of it.

    Attributes:
        compared: number of layers whose results were compared.
        together: number of other layers, which were compared together with those that read them.
        ties: number of elements that were rounded to the other side of a tie, in all samples.
        wrong: the first tensor that is wrong, in the order of the user's file; None if all are right.
        rounds: whether the model rounds to integers.
        reason: why nothing was compared; empty if something was.
        is_mislinked: whether the same layers, linked with further outputs, give other bits.
        instead: why the rewritten model was compared in place of the module; empty if the module was.
        suspect: a wrong tensor of another module of the same rewritten model, which may be to blame, as it was not
            compared either; None if there is none. It is told where nothing was compared.
    """

    compared: int = 0
    together: int = 0
    ties: int = 0
    wrong: WrongTensor | None = None
    rounds: bool = True
    reason: str = ""
    is_mislinked: bool = False
    instead: str = ""
    suspect: WrongTensor | None = None

    @property
    def is_right(self) -> bool:
        """Whether all layers are right."""
        return self.wrong is None and not self.reason and not self.is_mislinked

    @property
    def sentence(self) -> str:
        """The verdict for users."""
        if self.reason and self.suspect is not None:
            return (
                f"its layers were not compared: {self.reason}; of another plan {_named(self.suspect)} is wrong: "
                f"{self.suspect.told}, which may be the fault of a rewrite that all plans share"
            )
        if self.reason:
            return f"its layers were not compared: {self.reason}"
        if self.is_mislinked:
            return "linked with further outputs, its layers give other bits: what links them is wrong"
        if self.wrong is not None:
            return f"{_named(self.wrong)} is wrong: {self.wrong.told}"
        beside = f", {self.together} of them together with the next" if self.together else ""
        where = f"{self.instead}; in the rewritten model " if self.instead else ""
        layers = f"{where}each of {self.compared + self.together} layers is"
        if not self.rounds:
            return f"{layers} right within the rounding of its type{beside}"
        return f"{layers} exact{beside}; ties that differ: {self.ties}"

    @property
    def advice(self) -> str:
        """What a user can do about a wrong layer."""
        if self.suspect is not None:
            return "please report it; --max-error 0.01 compares the outputs of the network alone"
        layer = "" if self.wrong is None else self.wrong.layer
        way = f", and have stock code compute it meanwhile, by --pin '{glob.escape(layer)}=*.stock'" if layer else ""
        return f"please report it{way}"


def _named(wrong: WrongTensor) -> str:
    return f"layer '{wrong.layer}' ({wrong.node})" if wrong.layer else f"output '{wrong.tensor}' ({wrong.node})"
