"""The first inference as a picture: what was read, prepared and executed when, one lane per thread."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from sartor.errors import UsageError
from sartor.first_inference.sample import FirstRun
from sartor.runtime.files.json_fields import Fields, listed, number, record, text
from sartor.runtime.files.regular_files import read_text

_MOST_BYTES = 64 << 20
_WIDTH, _LEFT, _LANE, _TOP = 900, 190, 34, 44
_COLOURS = {"read": "#4f8bc9", "move": "#9b7fc4", "prepare": "#d9a441", "execute": "#5aa469"}
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


def draw(title: str, bars: Sequence[Bar]) -> str:
    """An SVG picture of bars, a lane for each name in the order of their first bars."""
    lanes = list(dict.fromkeys(bar.lane for bar in bars))
    last = max((bar.end for bar in bars), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - 20) / last
    height = _TOP + _LANE * len(lanes) + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="22" font-size="15">{escape(title)}</text>',
        *(_lane(lane, _TOP + _LANE * index) for index, lane in enumerate(lanes)),
        *(_bar(bar, _TOP + _LANE * lanes.index(bar.lane), scale) for bar in bars),
        *_axis(last, scale, _TOP + _LANE * len(lanes)),
        *_legend({bar.kind for bar in bars}, height - 12),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _lane(name: str, top: int) -> str:
    return f'<text x="10" y="{top + 19}">{escape(name)}</text>'


def _bar(bar: Bar, top: int, scale: float) -> str:
    left, width = _LEFT + bar.begin * scale, max((bar.end - bar.begin) * scale, 0.5)
    said = f"{bar.label}: {bar.begin * 1e3:.2f} to {bar.end * 1e3:.2f} ms"
    said += f", {bar.size / (1 << 20):.1f} MiB" if bar.size else ""
    return (
        f'<rect x="{left:.1f}" y="{top + 4}" width="{width:.1f}" height="{_LANE - 10}" fill="{_COLOURS[bar.kind]}" '
        f'stroke="white" stroke-width="0.5"><title>{escape(said)}</title></rect>'
    )


def _axis(last: float, scale: float, top: int) -> Iterator[str]:
    step = 10.0 ** (len(str(int(last * 1e3))) - 1) / 1e3
    step = next(each for each in (step / 5, step / 2, step, 2 * step) if last / each <= 12)
    for index in range(int(last / step) + 1):
        x = _LEFT + index * step * scale
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{top}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{top + 16}" text-anchor="middle">{index * step * 1e3:g} ms</text>'


def _legend(kinds: set[str], y: int) -> Iterator[str]:
    for index, kind in enumerate(kind for kind in _COLOURS if kind in kinds):
        x = _LEFT + 180 * index
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_COLOURS[kind]}"/>'
        yield f'<text x="{x + 17}" y="{y}">{_MEANING[kind]}</text>'


def read_cold(path: Path) -> dict[tuple[str, str], FirstRun]:
    """The typical runs in what ``sartor bench --cold --json`` wrote, by runtime and state of the files.

    Raises:
        UsageError: if it cannot be read, or is something else.
    """
    try:
        content = json.loads(read_text(path, _MOST_BYTES))
        fields = Fields(content)
        return dict(fields.take("cold", listed(_sample)))
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"'{path}' is not what 'sartor bench --cold --json' writes: {error}") from None


def _sample(content: object, where: str) -> tuple[tuple[str, str], FirstRun]:
    found = Fields(content, where)
    return (found.take("runtime", text), found.take("files", text)), _run(found.take("typical", record))


def _run(content: Mapping[str, Any]) -> FirstRun:
    fields = Fields(content, "typical")
    start, imports, load = (float(fields.take(name, number)) for name in ("start", "imports", "load"))
    return FirstRun(start, imports, load, fields.take("runs", listed(number)), fields.take("steps", listed(_step), ()))


def _step(content: object, where: str) -> tuple[str, float, float, int]:
    kind, begin, end, size = listed(lambda value, _: value)(content, where)
    if kind not in _COLOURS:
        raise ValueError(f"'{kind}' is nothing that is drawn")
    return str(kind), float(number(begin, where)), float(number(end, where)), int(number(size, where))
