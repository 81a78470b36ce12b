"""Figures that no command records any more: who reads a document must be able to tell where each is from.

Early measurements, and what was tried and left out, are told in the documents with figures whose samples were not kept.
Each is listed in ``benchmarks/results/observations``, in a file with the page's path below ``docs``, with the section
that tells it, the machine, the day and commit, and how it was made. A figure that is in no table of results and in no
such list is one that nobody can trace.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from benchmarks.record.documents import FIGURE, TABLE
from sartor.errors import UsageError

_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_COUNTS = re.compile(r"<!-- conformance: .*?<!-- end of conformance -->", re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\]\([^)]*\)")
_HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
_VERSION = re.compile(
    r"\b(?:(?:IREE|Python|ONNX|Mesa|QEMU|Linux|Apache|[Ss]ection) \d+(?:\.\d+)+"
    r"|OpenVINO 20\d\d\.\d+|Runtime 1\.\d\d\b(?! m?s))"
)
_NUMBER = r"\d+(?:[.,]\d+)*"
_UNIT = "|".join(
    (
        r" ?(?:ms|µs|us|ns|%|[MGT]FLOP/s|[KMGT]i?B/s|[KMG]B|minutes?|cycles)(?![\w/])",
        r" (?:s|seconds?)(?![\w'])",
        r"(?:x|-fold)(?!\w)",
        r" times (?:as|faster|slower|longer|worse|fewer|less|more|here|over)\b",
    )
)
_LIST = rf"{_NUMBER}(?:(?:, {_NUMBER})* (?:to|and|or|of|instead of) {_NUMBER})*"
_MEASURED = re.compile(rf"(?<![\w.-]){_LIST}(?:{_UNIT})|(?<=\bwithin ){_NUMBER} times\b")
# Whole numbers without a unit are mostly counts, but in columns of times; 1e-3 and the like are bounds.
_FRACTION = re.compile(r"(?<![\w.-])-?(?:\d+\.\d+(?:e[+-]?\d+)?|[2-9]e-\d+)(?![\w.]*\w)")
# A column of times or rates, by its heading: whole numbers in it are figures, too.
_OF_UNIT = re.compile(r"(?:^|[ ,(])(?:m?s|µs|seconds?|minutes?|%|[GT]FLOP/s|[GM]B(?:/s)?|KB)(?:$|[ ,)])")
_RULE = re.compile(r"^\|(?: *:?-+:? *\|)+$")
_WHOLE = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?![\w.,-]*\d)")
_OUTSIDE = "beginning"
_Text = Annotated[str, Field(min_length=4)]


@dataclass(frozen=True)
class Observation:
    """Figures of one section of a document.

    Attributes:
        section: its heading.
        machine: where they were taken, with the instruction set; or "any" if they do not depend on it.
        made: day, and commit that first had them.
        how: the command, or what was done.
        figures: as the document has them.

    Machine, day and how may not be empty.
    """

    section: str
    machine: _Text
    made: _Text
    how: _Text
    figures: tuple[str, ...]


_ADAPTER = TypeAdapter(tuple[Observation, ...])


def draft(section: str, figures: Sequence[str]) -> str:
    """An observation to be completed, as TOML."""
    # Spaces within a figure are no places to break a line.
    quoted = ", ".join(json.dumps(figure, ensure_ascii=False).replace(" ", "\0") for figure in figures)
    listed = textwrap.fill(f"{quoted},", 120, initial_indent="    ", subsequent_indent="    ").replace("\0", " ")
    heading = json.dumps(section, ensure_ascii=False)
    return f'[[observation]]\nsection = {heading}\nmachine = ""\nmade = ""\nhow = ""\nfigures = [\n{listed}\n]\n'


def figures_of(text: str) -> dict[str, list[str]]:
    """The measured figures of a document by section, without those in recorded tables, code and names."""
    for pattern in (TABLE, FIGURE, _COUNTS, _FENCE, _CODE, _LINK, _VERSION):
        text = pattern.sub(" ", text)
    found: dict[str, list[str]] = {}
    parts = _HEADING.split(text)
    for heading, body in zip([_OUTSIDE, *parts[1::2]], parts[0::2], strict=True):
        if figures := list(dict.fromkeys(_figures(body))):
            found.setdefault(heading, []).extend(figure for figure in figures if figure not in found.get(heading, []))
    return found


def observed(page: Path) -> Path:
    """The file that lists a page's figures, below the folder of all lists: its path below ``docs``, or its name."""
    _, is_in_docs, below = f"/{page.with_suffix('.toml').as_posix()}".rpartition("/docs/")
    return Path(below if is_in_docs else f"{page.stem}.toml")


def observations(page: Path, folder: Path) -> tuple[Observation, ...]:
    """What is listed for a document.

    Raises:
        UsageError: if the list is damaged.
    """
    path = folder / "observations" / observed(page)
    if not path.exists():
        return ()
    try:
        return _ADAPTER.validate_python(tomllib.loads(path.read_text(encoding="utf-8")).get("observation", []))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise UsageError(f"'{path}' is no list of observations: {error}") from None


def untraceable(page: Path, folder: Path) -> Iterator[str]:
    """What is wrong with a document: figures that no observation lists, and listed ones that it does not have."""
    for section, figures in without_source(page, folder).items():
        for each in figures:
            yield f"{page}, section '{section}': {each} is in no result and no observation"
    found = figures_of(page.read_text(encoding="utf-8"))
    for section, known in _listed(observations(page, folder)).items():
        for each in sorted(known - set(found.get(section, ()))):
            yield f"{page}, section '{section}': {each} is observed, but the document does not have it"


def without_source(page: Path, folder: Path) -> dict[str, list[str]]:
    """Figures by section that are in no result and no observation."""
    listed = _listed(observations(page, folder))
    found = figures_of(page.read_text(encoding="utf-8"))
    lacking = {
        section: [figure for figure in figures if figure not in listed.get(section, ())]
        for section, figures in found.items()
    }
    return {section: figures for section, figures in lacking.items() if figures}


def _listed(known: tuple[Observation, ...]) -> Mapping[str, set[str]]:
    listed: dict[str, set[str]] = {}
    for each in known:
        listed.setdefault(each.section, set()).update(each.figures)
    return listed


def _figures(body: str) -> Iterator[str]:
    yield from _whole_numbers(body.splitlines())
    text = " ".join(body.split())
    for found in _MEASURED.finditer(text):
        yield found[0]
    yield from _FRACTION.findall(_MEASURED.sub(" ", text))


def _whole_numbers(lines: Sequence[str]) -> Iterator[str]:
    """Whole numbers in columns of tables whose headings have a unit."""
    headings: list[str] = []
    for place, line in enumerate(lines):
        if not line.startswith("|"):
            headings = []
        elif place + 1 < len(lines) and _RULE.match(lines[place + 1]):
            headings = _cells(line)
        elif headings and not _RULE.match(line):
            for heading, cell in zip(headings, _cells(line), strict=False):
                if _OF_UNIT.search(heading):
                    yield from _WHOLE.findall(_FRACTION.sub(" ", cell))


def _cells(line: str) -> list[str]:
    return [part.strip() for part in line.strip().strip("|").split("|")]
