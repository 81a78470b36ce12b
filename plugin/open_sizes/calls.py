"""For which sizes plans are selected: some of the range, or those of a log of calls."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.analysis.sized_task import facts_at
from sartor.codegen.analysis.task_bounds import ideal_seconds
from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.sizes.calls import SizedCall
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.errors import UsageError

Sizes = tuple[tuple[str, int], ...]
# Sizes of a log at which layers are measured, each for as much of the work.
_PARTS = 3
_LINE = re.compile(r"(?P<sizes>[^:]*?)\s*(?::\s*(?P<count>[0-9]{1,12}))?")
_SIZE = re.compile(r"(?:(?P<name>\S+)=)?(?P<size>[0-9]{1,9})")


@dataclass(frozen=True)
class CallLog:
    """How often a network was called with which sizes.

    Attributes:
        path: the file that tells so.
    """

    path: Path

    def counts(self, symbols: Sequence[Symbol]) -> Mapping[Sizes, int]:
        """The number of calls with each sizes.

        Each line has the sizes of a call, as ``batch=1 sequence=77``, or ``77`` if there is one symbol, and behind a
        colon the number of such calls, 1 if it is left out. Empty lines, and those that begin with ``#``, do not count.

        Raises:
            UsageError: if the file cannot be read, has no calls, or sizes that no caller may choose.
        """
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--sizes '{self.path}' cannot be read: {error}") from None
        counter: Counter[Sizes] = Counter()
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.lstrip().startswith("#"):
                sizes, count = self._read(line.strip(), number, symbols)
                counter[sizes] += count
        if not counter.total():
            raise UsageError(f"--sizes '{self.path}' has no calls; write the sizes of one on each line")
        return counter

    def _read(self, line: str, number: int, symbols: Sequence[Symbol]) -> tuple[Sizes, int]:
        where, names = f"line {number} of --sizes '{self.path}'", [symbol.name for symbol in symbols]
        example = " ".join(f"{symbol.name}={symbol.most}" for symbol in symbols)
        match = _LINE.fullmatch(line)
        texts = match["sizes"].split() if match else []
        sizes = [size for text in texts if (size := _SIZE.fullmatch(text))]
        named = {(size["name"] or (names[0] if len(names) == 1 else "")): int(size["size"]) for size in sizes}
        if match is None or len(sizes) < len(texts) or len(named) < len(texts) or named.keys() != set(names):
            raise UsageError(
                f"{where} is '{line}', expected the sizes of a call such as '{example}', or '{example}: 12'"
            )
        for symbol in symbols:
            if not symbol.allows(named[symbol.name]):
                raise UsageError(f"{where} has {symbol.name}={named[symbol.name]}, which is not in the range {symbol}")
        return tuple((name, named[name]) for name in names), int(match["count"] or 1)


def usual_calls(graph: LayerGraph, symbols: Sequence[Symbol]) -> tuple[SizedCall, ...]:
    """Calls with the largest sizes, the least, and those in the middle by octaves, where no log tells of others.

    The larger, the rarer: as often as calls of all three take the same time together, by the least time that layers can
    take. So the mean time of a call weighs the ratios of times at all sizes alike, and not the largest size alone.
    """
    most, least = (_sizes(symbols, share) for share in (1.0, 0.0))
    listed = list(dict.fromkeys((most, least, _sizes(symbols, 1 / 2))))
    rates = [1 / _seconds(graph, dict(sizes)) for sizes in listed]
    return tuple(SizedCall(sizes, rate / sum(rates)) for sizes, rate in zip(listed, rates, strict=True))


def logged_calls(counts: Mapping[Sizes, int], symbols: Sequence[Symbol]) -> tuple[SizedCall, ...]:
    """A few sizes that stand for all calls of a log, behind the largest that callers may choose.

    The calls, sorted by the product of their sizes, are cut in parts of about the same sum of products, and the middle
    call of each part stands for it.
    """
    order = sorted(counts, key=lambda sizes: (math.prod(size for _, size in sizes), sizes))
    weights = [counts[sizes] * math.prod(size for _, size in sizes) for sizes in order]
    parts: list[list[Sizes]] = [[] for _ in range(_PARTS)]
    before = 0.0
    for sizes, weight in zip(order, weights, strict=True):
        parts[min(int(_PARTS * (before + weight / 2) / sum(weights)), _PARTS - 1)].append(sizes)
        before += weight
    shares: Counter[Sizes] = Counter()
    for part in filter(None, parts):
        shares[_middle(part, counts)] += sum(counts[sizes] for sizes in part)
    most, total = _sizes(symbols, 1.0), sum(counts.values())
    others = tuple(SizedCall(sizes, count / total) for sizes, count in shares.items() if sizes != most)
    return (SizedCall(most, shares[most] / total), *others)


def odd_size(symbol: Symbol, share: float) -> int:
    """A size at a share of the range's octaves, an odd number of multiples if there is one near."""
    if share in (0.0, 1.0):
        return symbol.most if share else symbol.least
    return symbol.odd_near(symbol.least * math.pow(symbol.most / symbol.least, share))


def _sizes(symbols: Sequence[Symbol], share: float) -> Sizes:
    return tuple((symbol.name, odd_size(symbol, share)) for symbol in symbols)


def _middle(part: Sequence[Sizes], counts: Mapping[Sizes, int]) -> Sizes:
    """The sizes below and above which there are as many calls."""
    total, before = sum(counts[sizes] for sizes in part), 0
    for sizes in part:
        before += counts[sizes]
        if 2 * before >= total:
            return sizes
    raise ValueError("a part of a log has no calls")


def _seconds(graph: LayerGraph, sizes: Mapping[str, int]) -> float:
    """The least time that the layers can take."""
    return sum(ideal_seconds(facts_at(layer.task, sizes)) for layer in graph.layers)
