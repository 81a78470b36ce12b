"""The rules about rooms and of the house notice what breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.house import complaints_about
from tools.rooms import drawing, floors, purpose, redrawn, room_of, rooms, stale_paths

PACKAGES = frozenset({"sartor", "sartor.codegen", "sartor.codegen.ir", "sartor.cli", "sartor.cli.output"})
IMPORTS = [
    ("sartor", "sartor.api"),
    ("sartor.api", "sartor.codegen.ir.layer"),
    ("sartor.cli.main", "sartor.api"),
    ("sartor.cli.main", "sartor.cli.output.terminal"),
    ("sartor.cli.main", "sartor.codegen.ir.layer"),
    ("sartor.codegen.ir.layer", "sartor.codegen.source_digest"),
]


def _checkout(root: Path, files: int = 1) -> Path:
    for folder in ("plugin", "plugin/cli", "codegen", "codegen/ir", "dialect_passes", "runtime", "tuning"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text(f'"""What {folder} is for.\n\nMore."""\n', encoding="utf-8")
    for name in ["plugin/api", "codegen/source_digest", *(f"codegen/ir/f{index}" for index in range(files))]:
        (root / f"{name}.py").write_text('"""A file."""\n', encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("sartor.api", "plugin/api.py"),
        ("sartor.cli.output.terminal", "plugin/cli"),
        ("sartor.codegen.ir.layer", "codegen/ir"),
        ("sartor.codegen.source_digest", "codegen/source_digest.py"),
        ("sartor.runtime.driver.device", "runtime"),
    ],
)
def test_a_module_is_in_its_room(module: str, room: str) -> None:
    assert room_of(module, PACKAGES) == room


def test_floors_follow_imports() -> None:
    assert floors(rooms(IMPORTS, PACKAGES)) == {
        "plugin/cli": 4,
        "plugin/api.py": 3,
        "codegen/ir": 2,
        "codegen/source_digest.py": 1,
    }


def test_a_circle_of_rooms_is_named() -> None:
    circle = [*IMPORTS, ("sartor.codegen.source_digest", "sartor.api")]
    with pytest.raises(ValueError, match=r"circle of rooms: .*codegen/ir"):
        floors(rooms(circle, PACKAGES))


def test_a_file_that_is_named_and_does_not_exist_is_noticed(tmp_path: Path) -> None:
    root = _checkout(tmp_path)
    (root / "docs" / "explanation").mkdir(parents=True)
    design = root / "docs/explanation/design.md"
    for each in (design, root / "README.md", root / "CONTRIBUTING.md"):
        each.write_text("See `codegen/ir/f0.py`.\n", encoding="utf-8")
    assert stale_paths(root) == []
    design.write_text("See `ir/f0.py`, `f0.py` and `codegen/ir/f9.py`, `0.py`.\n", encoding="utf-8")
    assert stale_paths(root) == [
        f"docs/explanation/design.md names {each}, which does not exist" for each in ("0.py", "codegen/ir/f9.py")
    ]


def test_a_room_says_what_it_is_for_in_its_first_sentence(tmp_path: Path) -> None:
    root = _checkout(tmp_path)
    assert purpose(root / "plugin/cli") == "What plugin/cli is for."
    (root / "plugin/cli/__init__.py").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="does not say what it is for"):
        purpose(root / "plugin/cli")


def test_the_picture_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    picture = drawing(rooms(IMPORTS, PACKAGES), _checkout(tmp_path))
    # That the command line imports the layers follows from what it imports besides.
    assert "plugin_cli --> plugin_api_py" in picture
    assert "plugin_cli --> codegen_ir" not in picture
    assert "| 4 | `plugin/cli` | What plugin/cli is for. |" in picture
    begin, end = picture.splitlines()[0], picture.splitlines()[-1]
    assert redrawn(f"before\n{begin}\nold\n{end}\nafter\n", picture) == f"before\n{picture}\nafter\n"
    with pytest.raises(ValueError, match="one place"):
        redrawn("nothing", picture)


TAKES = "try:\n    check()\nexcept (KeyError, ValueError) as error:\n    answer = Rejected(str(error))\n"


@pytest.mark.parametrize(
    ("path", "source", "sentence"),
    [
        ("runtime/driver/device.py", "open('/proc/cpuinfo')", "which runtime/driver/cpuinfo.py alone reads"),
        ("runtime/driver/cpuinfo.py", "open('/proc/cpuinfo')", None),
        ("plugin/new.py", "A = {*('Reshape', 'Unsqueeze'), 'Squeeze', 'Tile'}", "take the set from plugin/onnx_model/"),
        ("plugin/new.py", "A = {'Reshape', 'Unsqueeze', 'Tile'}", None),
        ("plugin/new.py", "A = ['Scan', 'If', 'Loop']", "take the set from plugin/onnx_model/operator_types/alike.py"),
        ("codegen/routines/new.py", TAKES, "takes a ValueError for a rejection"),
        ("codegen/routines/new.py", TAKES.replace("ValueError", "OSError"), None),
        ("codegen/routines/new.py", TAKES.replace("Rejected", "refuse"), None),
        ("codegen/routines/new.py", TAKES.replace("ValueError", "RejectionError"), None),
        ("codegen/ir/variants/routine.py", TAKES, None),
        ("codegen/kernels/new.py", "if a: raise ValueError('odd')", "raises ValueError: raise RejectionError"),
        ("codegen/kernels/new.py", "if a: raise RejectionError('odd')", None),
        ("codegen/linking/new.py", "if a: raise ValueError('odd')", None),
        ("tuning/kept/new.py", "[each.name for each in files]", "has a variable 'each'"),
        ("tuning/kept/new.py", "def kept(found): ...", "has a variable 'found'"),
        ("tuning/kept/new.py", "for file in files: file.found()", None),
        ("tuning/new/new.py", "class Look:\n    found: str", None),
        ("tuning/new.py", "if target.device == 'cpu': ...", "writes 'cpu' out: take it from plugin/devices.py"),
        ("tuning/new.py", "DEFAULT = 'vulkan'", "writes 'vulkan' out"),
        ("plugin/devices.py", "CPU = 'cpu'", None),
        ("tuning/new.py", "KINDS = ('cpus', 'vulkan:1')", None),
        (
            "codegen/routines/new.py",
            "def is_half(kind): return kind in ('f16', 'h')",
            "writes 'f16' out in a function",
        ),
        ("codegen/routines/new.py", "IS_HALF = lambda kind: kind == 'f16'", "writes 'f16' out in a function"),
        ("codegen/routines/new.py", "HALF = Format('f16')", None),
        ("codegen/routines/new.py", "def stored(kind: str = 'f16'): ...", None),
        ("codegen/ir/new.py", "def is_half(kind): return kind == 'f16'", None),
    ],
)
def test_what_breaks_a_rule_is_told(path: str, source: str, sentence: str | None) -> None:
    told = list(complaints_about(path, source))
    assert len(told) == (sentence is not None)
    assert all(sentence is not None and sentence in complaint for complaint in told)
