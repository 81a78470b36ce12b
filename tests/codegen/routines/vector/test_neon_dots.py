"""AArch64's instructions for integers and bf16 compute what candidate 0 computes of the same numbers, under
emulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sartor.codegen.ir.layer import Layer
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation, Parameters, Rejected, choices_of
from sartor.codegen.routines import LOW_PRECISION, ROUTINES
from sartor.codegen.routines.vector.neon_dots import (
    BFDOT,
    BFMMLA,
    NEON_BFLOAT_DOTS,
    NEON_DOTS,
    SDOT,
    SMMLA,
    NeonDots,
)
from sartor.runtime.driver.program import Program
from tests.codegen.routines.harness import Found, Subject, compiled, layers, load
from tests.codegen.routines.kernel_cases import EXTREME, kernel_model
from tests.codegen.routines.narrow import rounded_subject, wrong
from tests.emulated import EmulatedProgram, Emulator, emulator
from tests.thorough import in_turns

HOST, NEON = Target.create("cpu"), Target.create("cpu", "aarch64:neoverse-v1")
EMULATOR = emulator()
BY_GROUP, BY_ROW = NeonDots("neon_dots", SDOT), NeonDots("neon_matrix_dots", SMMLA)
OF_BFLOATS = NeonDots("neon_dots", BFDOT, "bf16"), NeonDots("neon_matrix_dots", BFMMLA, "bf16")
ALL = (BY_GROUP, BY_ROW, *OF_BFLOATS)

# Channels that groups and vectors do not divide, windows beyond the image, single pixels, joined rows, products.
CASES = (
    "uneven_padding",
    "uneven_window",
    "channels5",
    "larger_kernel",
    "stride3",
    "panels",
    "prime1x1",
    "padded1x1",
    "one_pixel3x3",
    "images3",
    "squeeze_excite",
    "odd",
    "batch_by_weight",
    "vector",
)
CASES_OF_BFLOATS = ("channels5", "prime1x1", "images3", "odd")
EXTREMES = ("uneven_padding", "padded1x1", "odd")
"""Those that are computed with register tiles of ``EXTREME`` too."""


@dataclass(frozen=True)
class Listing(Target):
    """A target whose modules the compiler lists as text too.

    Attributes:
        folder: where texts go.
    """

    folder: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        return (*super().flags, f"--iree-hal-dump-executable-intermediates-to={self.folder}")


@dataclass(frozen=True)
class Compiled:
    """All subjects of a routine, compiled.

    Attributes:
        subjects: by layer.
        module: file of the module.
        listing: its machine code as text, by the kernel.
    """

    subjects: Mapping[str, Subject]
    module: Path
    listing: Mapping[str, str]


@pytest.fixture(scope="module")
def found() -> Found:
    models = {"kernels": kernel_model}
    return {layer.name: (layer, weights) for layer, weights in layers(models)}


def _extremes(routine: NeonDots, config: pytest.Config) -> list[Parameters]:
    offered = {str(number): each for number, each in enumerate(EXTREME["images3"]["direct"][:4])}
    return [*in_turns(offered, ALL.index(routine), config).values()]


def _implementations(layer: Layer, routine: NeonDots, config: pytest.Config) -> dict[str, Implementation]:
    found, first = {}, choices_of(routine, layer.task, NEON)
    assert isinstance(first, list), (layer.name, first)
    for parameters in [*first[:1], *(_extremes(routine, config) if layer.name in EXTREMES else [])]:
        built = routine.build(layer.task, parameters, NEON)
        if not isinstance(built, Rejected):
            found[f"{routine.name}{sorted(parameters.items())}"] = built
    return found


def _subjects(found: Found, routine: NeonDots, config: pytest.Config) -> dict[str, Subject]:
    subjects = {}
    for name in _cases(routine):
        layer, weights = found[name]
        subject = Subject(layer, weights, _implementations(layer, routine, config))
        subjects[name] = rounded_subject(subject, routine.element.dtype)
    return {name: each for name, each in subjects.items() if each.implementations}


def _cases(routine: NeonDots) -> tuple[str, ...]:
    return CASES if routine.element.is_quantised else CASES_OF_BFLOATS


def _stock(subject: Subject) -> Subject:
    built = ROUTINES[0].build(subject.task, {}, HOST)
    assert isinstance(built, Implementation), built
    return replace(subject, implementations={"stock": built})


@pytest.fixture(scope="module")
def stock_program(found: Found) -> Program:
    """Candidate 0 of all cases, on this machine."""
    return load({name: _stock(Subject(*found[name], {})) for name in CASES}, HOST)


@pytest.fixture(scope="module", params=ALL, ids=lambda each: f"{each.name}-{each.storage}")
def routine(request: pytest.FixtureRequest) -> NeonDots:
    assert isinstance(request.param, NeonDots)
    return request.param


@pytest.fixture(scope="module")
def made(
    found: Found, routine: NeonDots, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Compiled:
    folder = tmp_path_factory.mktemp("compiled")
    subjects, module = _subjects(found, routine, pytestconfig), folder / "kernels.vmfb"
    module.write_bytes(compiled(subjects, Listing(NEON.device, NEON.architecture, folder=str(folder))))
    (listing,) = folder.glob("*.s")
    return Compiled(subjects, module, dict(_functions(listing.read_text())))


def _functions(listing: str) -> Iterator[tuple[str, str]]:
    for section in re.split(r"^\t\.section\t\.text\.", listing, flags=re.MULTILINE)[1:]:
        yield section.partition(",")[0], section


def test_kernels_multiply_by_the_instruction(routine: NeonDots, made: Compiled) -> None:
    name = routine.element.product.split(".")[3]
    found = {
        kernel: set(re.findall(r"^\t(\w*dot|\w*mmla)\t", code, re.MULTILINE)) for kernel, code in made.listing.items()
    }
    symbols = {subject.symbol(each) for subject in made.subjects.values() for each in subject.implementations}
    for symbol in symbols:
        assert {frozenset(words) for kernel, words in found.items() if kernel.startswith(symbol)} == {frozenset({name})}


@pytest.mark.skipif(isinstance(EMULATOR, str), reason=str(EMULATOR))
def test_kernels_compute_the_layers(routine: NeonDots, made: Compiled, stock_program: Program) -> None:
    assert isinstance(EMULATOR, Emulator)
    program, stock = EmulatedProgram(EMULATOR, made.module), {each: _stock(of) for each, of in made.subjects.items()}
    dtype = routine.element.dtype
    found = {
        name: wrong(program, each, dtype, stock=(stock_program, stock[name])) for name, each in made.subjects.items()
    }
    assert found == {name: {} for name in made.subjects}


def test_every_case_has_its_kernels(made: Compiled, routine: NeonDots, pytestconfig: pytest.Config) -> None:
    assert set(_cases(routine)) == set(made.subjects)
    for name in set(EXTREMES) & set(_cases(routine)):
        assert len(made.subjects[name].implementations) == 1 + len(_extremes(routine, pytestconfig))


@pytest.mark.parametrize(
    ("cpu", "reasons"),
    [
        ("aarch64:neoverse-v1", {None}),
        ("aarch64:neoverse-n1", {None, "the CPU has no i8mm"}),
        ("aarch64:cortex-a72", {"the CPU has no dotprod", "the CPU has no i8mm"}),
        ("cascadelake", {"the CPU has no dotprod", "the CPU has no i8mm"}),
    ],
)
@pytest.mark.parametrize("case", ["images3", "odd"])
def test_a_cpu_without_the_instruction_says_so(cpu: str, reasons: set[str | None], case: str, found: Found) -> None:
    answers = [choices_of(each, found[case][0].task, Target.create("cpu", cpu)) for each in NEON_DOTS[:2]]
    assert {each.reason if isinstance(each, Rejected) else None for each in answers} == reasons


def test_they_are_offered_for_8_bits(found: Found) -> None:
    offered = [each for each in LOW_PRECISION["i8"] if each in NEON_DOTS]
    assert [each.name for each in offered] == [
        "neon_matrix_dots",
        "neon_dots",
        "whole_neon_matrix_dots",
        "whole_neon_dots",
    ]
    assert [each.traits.needs_run_time_ranges for each in offered] == [False, False, True, True]
    assert [each.traits.instruction for each in offered] == [SMMLA, SDOT] * 2


@pytest.mark.parametrize(("cpu", "reason"), [("neoverse-v1", None), ("neoverse-n1", "the CPU has no bf16")])
def test_bf16_is_multiplied_where_the_cpu_can(cpu: str, reason: str | None, found: Found) -> None:
    target = Target.create("cpu", f"aarch64:{cpu}")
    answers = [choices_of(each, found["images3"][0].task, target) for each in NEON_BFLOAT_DOTS]
    assert [each.reason if isinstance(each, Rejected) else None for each in answers] == [reason] * 3
    assert set(NEON_BFLOAT_DOTS) <= set(LOW_PRECISION["bf16"])
