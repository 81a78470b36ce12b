"""Options that several commands share, and functions that parse their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sartor.codegen.ir.machines.cuda import NATIVE, newest_for
from sartor.codegen.ir.target import Target
from sartor.devices import CPU, CUDA, is_cpu
from sartor.errors import UsageError
from sartor.runtime.driver.bound_input import Bindings
from sartor.runtime.driver.cuda_capability import compute_capability
from sartor.runtime.driver.device import device_settings
from sartor.runtime.driver.signature import SIGNATURE_EXAMPLE
from sartor.settings.state_patterns import FORM, StatePattern
from sartor.settings.values import input_values, parsed

Value = TypeVar("Value")

SIZE = re.compile(r"\d{1,18}")
"""A size of a shape; Python reads no numbers of thousands of digits."""


def show_version(wanted: bool) -> None:
    """Print versions and end the command, if that is what the user wants."""
    if wanted:
        print(f"sartor {version('sartor')} (IREE {version('iree-base-runtime')})")
        raise typer.Exit


TargetOption = Annotated[
    str, typer.Option("--target", help="Device to compile for: cpu, vulkan or cuda, or two: cpu,vulkan.")
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        help="Device to compile for: cpu, vulkan or cuda, or two for one plan over both: cpu,vulkan. "
        "Repeat it for a plan for each in one file. (default: cpu)",
    ),
]
CpuOption = Annotated[
    str | None,
    typer.Option("--cpu", help="CPU level: host, x86-64-v3, x86-64-v4, aarch64:neoverse-n1, ... (default: host)"),
]
CpusOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        metavar="LEVEL[,LEVEL...]|all",
        help="CPU level: host, x86-64-v3, x86-64-v4, aarch64:neoverse-n1, ... Several make a file that chooses one "
        "where it is loaded; all are those of this instruction set. (default: host)",
    ),
]
ArchOption = Annotated[
    str | None,
    typer.Option("--arch", help="GPU architecture: sm_80, sm_90, native, llvmpipe, ... (default: llvmpipe or sm_80)"),
]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1,3,224,224", help="Bind an input's dynamic dimensions; repeatable."),
]
ShapesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,3,224,224",
        help="Bind an input's dynamic dimensions; repeatable. A range such as NAME=1..8,3,224,224 makes a file for any "
        "size in it; several shapes, or sizes such as NAME=1|8,3,224,224, make a file with a plan for each.",
    ),
]
SizesOption = Annotated[
    Path | None,
    typer.Option(
        "--sizes",
        metavar="FILE",
        help="Select the plan for any size by the sizes of these calls, one on each line, as batch=1 sequence=77, with "
        "a number of calls behind a colon. (default: spread over the ranges)",
    ),
]
BindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bind", metavar="NAME=VALUE[,VALUE...]", help="Fix the value of an input at compile time; repeatable."
    ),
]
StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="OUTPUT=INPUT",
        help="Keep an output in the module, as what the next call reads as an input; repeatable. A * is any text, the "
        "same in both: present.*=past_key_values.*. (default: what exporters name so)",
    ),
]
NoStateOption = Annotated[
    bool, typer.Option("--no-state", help="Keep nothing between calls: callers pass and take all states.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="CPU threads. (default: one per fast core of a NUMA node, or those with which a module is fastest)",
    ),
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="cpu, vulkan, cuda or vulkan:1. (default: what it was compiled for)")
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input", metavar="NAME=FILE.npy|zeros|random", help="Value of an input; repeatable. (default: random)"
    ),
]
SignatureOption = Annotated[
    str | None,
    typer.Option(
        "--signature",
        metavar="SIGNATURE|FUNCTION",
        help="What a module takes and gives that another program compiled and that does not say so, as "
        f"'{SIGNATURE_EXAMPLE}'; or which of its functions to run.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
VersionOption = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print versions and exit.")
]
ModuleArgument = Annotated[Path, typer.Argument(metavar="MODEL.vmfb", help="A compiled module.")]


def read_target(device: str, cpu: str | None, arch: str | None) -> Target:
    """The target of ``--target``, ``--cpu`` and ``--arch``.

    Raises:
        UsageError: if the device is unknown, or the option for the level is that of another device.
    """
    devices = device.split(",")
    if cpu is not None and CPU not in devices:
        raise UsageError(f"--cpu is for the target cpu, not for '{device}'; name its architecture with --arch")
    if arch is not None and all(map(is_cpu, devices)):
        raise UsageError("--arch is for the targets vulkan and cuda; name the CPU's level with --cpu")
    levels = {kind: cpu if is_cpu(kind) else read_architecture(kind, arch) for kind in devices}
    return Target.joined([Target.create(kind, levels[kind]) for kind in devices])


def read_architecture(device: str, arch: str | None) -> str | None:
    """The architecture of ``--arch``; ``native`` is that of the GPU that is found.

    Raises:
        DeviceError: if no GPU is found.
        UsageError: if it is older than all architectures that Sartor has limits of.
    """
    if arch != NATIVE or device != CUDA:
        return arch
    capability = compute_capability()
    newest = newest_for(*capability)
    if newest is None:
        raise UsageError(f"the GPU has compute capability {'.'.join(map(str, capability))}, sm_80 is the oldest")
    return newest


def read_threads(threads: int | None) -> int:
    """The number of threads, by default ``default_threads``.

    Raises:
        UsageError: if the number is out of range.
    """
    return device_settings(CPU, threads).threads


def read_pairs(option: str, form: str, texts: Sequence[str] | None, read: Callable[[str], Value]) -> dict[str, Value]:
    """Parse a repeatable option of the form ``NAME=VALUE``; the name may contain ``=``. Returns values by name.

    Raises:
        UsageError: if a text has another form, or two have the same name.
    """
    return _pairs(option, form, [(text, text.rpartition("=")) for text in texts or ()], read)


def _pairs(
    option: str, form: str, split: Sequence[tuple[str, tuple[str, str, str]]], read: Callable[[str], Value]
) -> dict[str, Value]:
    """The values of texts that were split, by name; errors as of ``read_pairs``."""
    pairs: dict[str, Value] = {}
    for text, (name, equals, value) in split:
        if not (name and equals and value):
            raise UsageError(f"{option} '{text}' cannot be read, expected {form}")
        if name in pairs:
            raise UsageError(f"{option} is given twice for '{name}'")
        pairs[name] = read(value)
    return pairs


def read_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Input name to shape, from texts such as ``data=1,3,224,224``.

    Raises:
        UsageError: if a text has another form.
    """
    return read_pairs("--shape", "NAME=1,3,224,224", texts, _shape)


def _shape(text: str) -> tuple[int, ...]:
    sizes = text.split(",")
    if not all(SIZE.fullmatch(size.strip()) for size in sizes):
        raise UsageError(f"--shape '{text}' is no shape, expected numbers such as 1,3,224,224")
    return tuple(int(size) for size in sizes)


def read_bindings(texts: Sequence[str] | None) -> Bindings:
    """Input name to value, from texts such as ``sr=16000`` or ``sizes=1,2``.

    Raises:
        UsageError: if a text has another form, or a value is not a number.
    """
    return input_values("--bind", read_pairs("--bind", "NAME=16000 or NAME=1,2,3", texts, str))


def read_states(texts: Sequence[str] | None, *, keeps_none: bool) -> tuple[StatePattern, ...]:
    """The states that are declared, from texts such as ``hn=h`` or ``present.*=past_key_values.*``.

    Raises:
        UsageError: if a text has another form, or there are some although none shall be kept.
    """
    if texts and keeps_none:
        raise UsageError(f"--no-state keeps nothing, and --state {texts[0]} something; leave one of the two out")
    return tuple(parsed("--state", text, StatePattern, StatePattern.parse, FORM) for text in texts or ())


def read_sources(texts: Sequence[str] | None, names: Collection[str]) -> dict[str, str]:
    """Input name to the source of its value, from texts such as ``data=image.npy``.

    Both names and files may contain ``=``; a text is split behind the longest of ``names``, the module's inputs as far
    as they are known, or else at the first one.

    Raises:
        UsageError: if a text has another form.
    """
    form = "NAME=FILE.npy, NAME=zeros or NAME=random"
    return _pairs("--input", form, [(text, _behind_name(text, names)) for text in texts or ()], str)


def _behind_name(text: str, names: Collection[str]) -> tuple[str, str, str]:
    known = max((name for name in names if text.startswith(f"{name}=")), key=len, default=None)
    return text.partition("=") if known is None else (known, "=", text[len(known) + 1 :])


def existing_file(path: Path) -> Path:
    """Check that a file exists; returns its path.

    Raises:
        UsageError: if not.
    """
    if path.is_file():
        return path
    if str(path) == "-" or path.is_fifo() or path.is_char_device():
        raise UsageError(f"'{path}' is not a regular file: standard input and pipes are not read; write a file first")
    raise UsageError(f"'{path}' is not a file" if path.exists() else f"'{path}' is not there")
