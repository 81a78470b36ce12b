"""The first inference as a picture: what was read, prepared and executed when, one lane per thread."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape as escaped

from sartor.first_inference.layer_phases import LayerPhases
from sartor.first_inference.sample import FirstRun

_WIDTH, _LEFT, _LANE, _TOP, _BOTTOM = 900, 190, 34, 44, 60
COLOURS = {"read": "#4f8bc9", "move": "#9b7fc4", "prepare": "#d9a441", "execute": "#5aa469"}
_MEANING = {
    "read": "read ahead",
    "move": "moved to huge pages",
    "prepare": "interpreter, imports, opening",
    "execute": "inferences",
}
# Inferences after these show nothing new.
_SHOWN_RUNS = 4


@dataclass(frozen=True)
class Bar:
    """What a thread did, in seconds since the process was started; ``size`` in bytes, 0 if nothing is read."""

    lane: str
    kind: str
    label: str
    begin: float
    end: float
    size: int = 0


@dataclass(frozen=True)
class Panel:
    """Bars with one scale; its lanes are in the order of their first bars."""

    title: str
    bars: Sequence[Bar]

    @property
    def lanes(self) -> list[str]:
        """Names of the lanes, from above."""
        return list(dict.fromkeys(bar.lane for bar in self.bars))


def bars_of(name: str, run: FirstRun) -> Iterator[Bar]:
    """What the threads of a process did, until some inferences after the first."""
    loading = run.start + run.imports
    at = 0.0
    for label, seconds in {"start": run.start, "import": run.imports, "open": run.load}.items():
        if seconds:
            yield Bar(name, "prepare", label, at, at + seconds)
        at += seconds
    for index, seconds in enumerate(run.runs[:_SHOWN_RUNS]):
        yield Bar(name, "execute", f"inference {index + 1}", at, at + seconds)
        at += seconds
    for kind, begin, end, size in run.steps:
        if loading + begin < at:
            yield Bar(f"{name}, beside", kind, _MEANING[kind], loading + begin, loading + end, size)


def layer_bars(layers: Sequence[LayerPhases]) -> Iterator[Bar]:
    """What each layer takes, as the model of overlap puts it together, in seconds since reading began.

    Layers are read one after the other. Each is executed once it was read and the layer before was executed, so that
    gaps between executions are waits for the file. Executing is timed with the files in memory; where nothing told when
    a file was read, layers wait for nothing.
    """
    for state in layers[0].read or ("in memory",):
        arrived = at = 0.0
        for phases in layers:
            read = phases.read.get(state, 0.0)
            if read:
                yield Bar(f"{state}: read", "read", phases.layer, arrived, arrived + read, phases.weight_bytes)
            arrived += read
            at = max(at, arrived) + phases.first
            yield Bar(f"{state}: executed", "execute", phases.layer, at - phases.first, at)
    at = 0.0
    for phases in layers:
        yield Bar("later: executed", "execute", phases.layer, at, at + phases.later)
        at += phases.later


def draw(*panels: Panel) -> str:
    """An SVG picture of panels, one above the other, each with a scale of its own and a lane for each name."""
    tops = [0, *itertools.accumulate(_height(panel) for panel in panels)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{tops[-1]}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{tops[-1]}" fill="white"/>',
        *(f'<g transform="translate(0,{top})">{_panel(panel)}</g>' for panel, top in zip(panels, tops, strict=False)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _height(panel: Panel) -> int:
    return _TOP + _LANE * len(panel.lanes) + _BOTTOM


def _panel(panel: Panel) -> str:
    lanes = panel.lanes
    last = max((bar.end for bar in panel.bars), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - 20) / last
    parts = [
        f'<text x="10" y="22" font-size="15">{_escape(panel.title)}</text>',
        *(_lane(lane, _TOP + _LANE * index) for index, lane in enumerate(lanes)),
        *(_bar(bar, _TOP + _LANE * lanes.index(bar.lane), scale) for bar in panel.bars),
        *_axis(last, scale, _TOP + _LANE * len(lanes)),
        *_legend({bar.kind for bar in panel.bars}, _height(panel) - 12),
    ]
    return "\n".join(parts)


def _lane(name: str, top: int) -> str:
    return f'<text x="10" y="{top + 19}">{_escape(name)}</text>'


def _bar(bar: Bar, top: int, scale: float) -> str:
    left, width = _LEFT + bar.begin * scale, max((bar.end - bar.begin) * scale, 0.5)
    said = f"{bar.label}: {bar.begin * 1e3:.2f} to {bar.end * 1e3:.2f} ms"
    said += f", {bar.size / (1 << 20):.1f} MiB" if bar.size else ""
    return (
        f'<rect x="{left:.1f}" y="{top + 4}" width="{width:.1f}" height="{_LANE - 10}" fill="{COLOURS[bar.kind]}" '
        f'stroke="white" stroke-width="0.5"><title>{_escape(said)}</title></rect>'
    )


def _axis(last: float, scale: float, top: int) -> Iterator[str]:
    step = 10.0 ** (len(str(int(last * 1e3))) - 1) / 1e3
    step = next(width for width in (step / 5, step / 2, step, 2 * step) if last / width <= 12)
    for index in range(int(last / step) + 1):
        x = _LEFT + index * step * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{top}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{top + 16}" text-anchor="middle">{index * step * 1e3:g} ms</text>'


def _legend(kinds: set[str], y: int) -> Iterator[str]:
    for index, kind in enumerate(kind for kind in COLOURS if kind in kinds):
        x = _LEFT + 180 * index
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLOURS[kind]}"/>'
        yield f'<text x="{x + 17}" y="{y}">{_MEANING[kind]}</text>'


def _escape(text: str) -> str:
    """Text of a picture, which may have no control characters."""
    return escaped("".join(letter if letter.isprintable() else " " for letter in text))
