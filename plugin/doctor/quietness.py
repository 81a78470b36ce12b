"""Whether times measured now can be trusted: clocks, other programs, and the spread of a known piece of work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from sartor.doctor.finding import Finding, State
from sartor.tuning.workers.sharing import Load

_TOPIC = "quietness"
_CLOCKS = Path("/sys/devices/system/cpu/cpufreq")
_SECONDS = 1.5
_ELEMENTS = 1 << 15
# Others may take this much of a processor: shells and daemons do.
_MOST_OTHERS = 0.1
# Selection tells variants apart that differ by a few per cent.
_WIDEST = 0.05
QUIET = "quiet enough to tune"


def examine_quietness(clocks: Path = _CLOCKS, seconds: float = _SECONDS) -> Iterator[Finding]:
    """How exact times are on this machine at this moment; takes ``seconds``."""
    yield _governor(clocks)
    before = Load.now([])
    spread = spread_of(_times(seconds))
    after = Load.now([])
    others = _others(before, after)
    yield _load(others)
    yield _spread(spread)
    yield _verdict(others, spread)


def spread_of(times: Sequence[float]) -> float:
    """By how much the 90th percentile exceeds the shortest time, as a share of that."""
    return float(np.percentile(times, 90) / min(times) - 1)


def _times(seconds: float) -> list[float]:
    """Times of equal pieces of work by one thread, each about as long as a layer."""
    values = np.linspace(0.0, 1.0, _ELEMENTS, dtype=np.float32)
    result = np.empty_like(values)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(8):
            np.sqrt(values, out=result)
            np.exp(result, out=result)
        taken.append(time.perf_counter() - begin)
    return taken


def _governor(clocks: Path) -> Finding:
    names: set[str] = set()
    with suppress(OSError):
        names = {path.read_text(encoding="ascii").strip() for path in clocks.glob("policy*/scaling_governor")}
    if not names:
        return Finding(_TOPIC, "frequency scaling", "the system does not tell, as in most virtual machines")
    names_of_governors = ", ".join(sorted(names))
    if names <= {"performance"}:
        return Finding(_TOPIC, "frequency scaling", names_of_governors)
    advice = "cpupower frequency-set -g performance, as root: clocks that change make times differ"
    return Finding(_TOPIC, "frequency scaling", names_of_governors, State.LIMITED, advice)


def _others(before: Load | None, after: Load | None) -> float | None:
    """Processors that other programs and the hypervisor took; None where the system does not tell."""
    if before is None or after is None:
        return None
    taken = (after.busy - before.busy) - (after.own - before.own)
    return max(0.0, taken / (after.moment - before.moment))


def _load(others: float | None) -> Finding:
    if others is None:
        return Finding(_TOPIC, "other programs", "the system does not tell", State.LIMITED, "watch the load yourself")
    load = f"take {others:.2f} processors"
    if others <= _MOST_OTHERS:
        return Finding(_TOPIC, "other programs", load)
    return Finding(_TOPIC, "other programs", load, State.LIMITED, "end them, or wait; 'top' shows which they are")


def _spread(spread: float) -> Finding:
    spread_of_work = f"equal work takes up to {spread:.1%} longer (9 of 10 runs)"
    if spread <= _WIDEST:
        return Finding(_TOPIC, "noise", spread_of_work)
    advice = "look for other virtual machines, thermal limits and power saving"
    return Finding(_TOPIC, "noise", spread_of_work, State.LIMITED, advice)


def _verdict(others: float | None, spread: float) -> Finding:
    if spread <= _WIDEST and (others is None or others <= _MOST_OTHERS):
        return Finding(_TOPIC, "verdict", QUIET)
    advice = (
        "tune later: what is measured now may choose slower routines, until a compilation on a quiet machine repeats it"
    )
    return Finding(_TOPIC, "verdict", f"not {QUIET}", State.LIMITED, advice)
