"""Limits of a search for fast variants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sartor.codegen.ir.variants.traits import DescribedVariant
from sartor.tuning.search.cost_model import Sample
from sartor.tuning.search.shipped.informed import FirstLimits
from sartor.tuning.search.shipped.likeness import is_covered


@dataclass(frozen=True)
class SearchSettings:
    """Limits of the search.

    Attributes:
        rounds: largest number of rounds after the first.
        share: cost limit of a round, as a fraction of the first round's cost.
        most: largest number of variants of a task in a round.
        optimism: factor by which predictions are multiplied, so that unmeasured variants get a chance.
        gain: fraction of the network's time that a variant must be predicted to save.
        until: fraction of the network's time that all variants together must promise to save for the search to go on.
        whole_rounds: whether each round is measured to its end, whatever the rest of it promises.
        layout_weight: weight of being faster only than variants with the same layout and element type, which
            neighbouring layers may need.
        first: number of variants of a task and format class in the first round, if there are samples of other networks.
        far: a format class that is slower than another by this factor is not searched: converting costs less.
        informed: limits of the first round where many networks were measured elsewhere.
        threads: number of threads; with several, the first round has other numbers of workgroups, too.
    """

    rounds: int = 2
    share: float = 0.33
    most: int = 3
    optimism: float = 0.9
    gain: float = 0.001
    until: float = 0.0
    whole_rounds: bool = False
    layout_weight: float = 0.3
    first: int = 2
    far: float = 1.1
    informed: FirstLimits = field(default_factory=FirstLimits)
    threads: int = 1


INFORMED = SearchSettings(share=0.2, gain=0.002)
"""Limits where many networks were measured elsewhere: chosen with families of them held out, docs/records/tuning.md."""


def settings_for(variants: Iterable[DescribedVariant], shipped: Sequence[Sample], threads: int) -> SearchSettings:
    """Limits of the search among these variants: small ones only if the package's samples tell of nearly all."""
    return replace(INFORMED if is_covered(variants, shipped) else SearchSettings(), threads=threads)
