"""What commands of the pages say, and the program in C that embeds a module."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.main import get_command

from benchmarks import zoo
from benchmarks.record.documents import documents
from sartor.cli.apps import app
from sartor.cli.compile_app import compile_app
from sartor.runtime.session import Session
from tests.plugin.calling import call

ROOT = Path(__file__).parents[2]
PAGES = documents(ROOT)
_FENCE = re.compile(r"^```(?:sh|text)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_PROGRAM = re.compile(r"^```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`((?:sartor|compile-to-vmfb)\s[^`]+)`")
_COMMAND = re.compile(r"(?:\w+\$ +)?((?:compile-to-vmfb|sartor) .*)")
# What stands for something else, or is not part of the command.
_ABRIDGED = re.compile(r"…|\.\.\.|[<>|&;]|\$\(")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a page, in blocks and in running text."""
    lines = [line for block in _FENCE.finditer(text) for line in block["text"].replace("\\\n", " ").splitlines()]
    shown = [found[1] for line in lines if (found := _COMMAND.fullmatch(line.strip()))]
    for each in [*shown, *(" ".join(found.split()) for found in _INLINE.findall(_FENCE.sub("", text)))]:
        yield shlex.split(_ABRIDGED.split(each)[0], comments=True)


def refusal(words: list[str]) -> str | None:
    """Why a command is not one, or None. Arguments that lack do not count, as prose names commands without them."""
    program, *arguments = words
    command = get_command(compile_app if program == "compile-to-vmfb" else app)
    with typer.Context(command, info_name=program) as parent:
        while isinstance(command, typer.core.TyperGroup) and arguments and not arguments[0].startswith("-"):
            name, *arguments = arguments
            found = command.get_command(parent, name)
            if found is None:
                return f"there is no command '{name}'"
            command = found
        known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    used = [word.partition("=")[0] for word in arguments if re.fullmatch(r"--?[a-z][\w-]*(=.*)?", word)]
    unknown = [word for word in used if word not in known]
    return f"'{program}' has no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_exists(page: Path) -> None:
    refused = [
        f"{shlex.join(command)}: {why}" for command in commands(page.read_text("utf-8")) if (why := refusal(command))
    ]
    assert refused == []


def lacking(text: str) -> list[str]:
    """What the programs of a page import from the package that is not there."""
    programs = (ast.parse(program["text"]) for program in _PROGRAM.finditer(text))
    imports = (node for program in programs for node in ast.walk(program) if isinstance(node, ast.ImportFrom))
    return [
        f"{each.module}.{name.name}"
        for each in imports
        if each.module and each.module.split(".")[0] == "sartor"
        for name in each.names
        if not hasattr(importlib.import_module(each.module), name.name)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_the_programs_of_a_page_import_exists(page: Path) -> None:
    assert lacking(page.read_text("utf-8")) == []


def test_an_import_of_nothing_is_found() -> None:
    assert lacking("```python\nfrom sartor import Session, Sesion\n```\n") == ["sartor.Sesion"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sartor inspekt model.vmfb", "no command 'inspekt'"),
        ("sartor db export --here --csw FILE", "no option --csw"),
        ("compile-to-vmfb model.onnx --quick", "no option --quick"),
    ],
)
def test_a_command_that_is_wrong_is_found(command: str, why: str) -> None:
    (words,) = commands(f"```sh\n{command}     # a remark\n```")
    assert why in str(refusal(words))


def test_commands_are_found_wherever_they_stand() -> None:
    block = "pi$ sartor worker X \\\n   --compilers 4 &\ncompile-to-vmfb a.onnx -o …\n"
    text = f"Try `sartor\ndb` or\n\n```sh\n{block}```\n"
    assert list(commands(text)) == [
        ["sartor", "worker", "X", "--compilers", "4"],
        ["compile-to-vmfb", "a.onnx", "-o"],
        ["sartor", "db"],
    ]


FOLDER = "SARTOR_C_EXAMPLES"


@pytest.fixture
def embed() -> Path:
    """The program: no registry has IREE's C runtime, so that it is built where a checkout of IREE is at hand."""
    if FOLDER not in os.environ:
        pytest.skip(f"{FOLDER} does not name the folder in which examples/CMakeLists.txt was built")
    return Path(os.environ[FOLDER]) / "embed"


def test_it_writes_what_a_session_gives(embed: Path, tmp_path: Path) -> None:
    module, image = tmp_path / "net.vmfb", np.random.default_rng(0).random((1, 1, 32, 32), np.float32)
    database = ["--tuning-db", tmp_path / "t.db", "--threads", 1]
    assert call("compile-to-vmfb", zoo.write("lenet5", tmp_path), "-o", module, *database).returncode == 0
    image.tofile(tmp_path / "x.bin")
    arguments: list[str | Path] = [module, tmp_path / "x.bin", "1,1,32,32", tmp_path / "y.bin", "1,10"]
    subprocess.run([embed, *arguments], check=True, timeout=60)
    with Session(module, threads=1) as session:
        (name,) = (each.name for each in session.get_inputs())
        (expected,) = session.run(None, {name: image})
    np.testing.assert_array_equal(np.fromfile(tmp_path / "y.bin", np.float32), expected.ravel())
    arguments[2] = "1,1,32,31"
    refused = subprocess.run([embed, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "does not have 3968 bytes" in refused.stderr
