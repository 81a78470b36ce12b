"""The example that does in C what sessions do."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = Path(__file__).parents[3] / "examples" / "overlap.c"


class _File(ctypes.Structure):
    """The beginning of ``struct overlap``, and room for the rest."""

    _fields_ = (
        ("data", ctypes.POINTER(ctypes.c_ubyte)),
        ("size", ctypes.c_size_t),
        ("own", ctypes.c_size_t),
        ("rest", ctypes.c_ubyte * 256),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    target = tmp_path_factory.mktemp("c") / "overlap.so"
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", target, _SOURCE], check=True)
    return ctypes.CDLL(str(target), use_errno=True)


def test_content_and_address_stay_while_it_is_moved(library: ctypes.CDLL, path: Path) -> None:
    expected, file = path.read_bytes(), _File()
    assert library.overlap_open(str(path).encode(), ctypes.byref(file)) == 0
    address = ctypes.addressof(file.data.contents)
    assert ctypes.string_at(file.data, file.size) == expected
    library.overlap_fill(ctypes.byref(file))
    assert library.overlap_settle(ctypes.byref(file)) == 1
    assert ctypes.addressof(file.data.contents) == address
    path.write_bytes(b"")
    assert ctypes.string_at(file.data, file.size) == expected
    library.overlap_close(ctypes.byref(file))


def test_what_cannot_be_opened_or_moved_is_said(library: ctypes.CDLL, path: Path) -> None:
    file = _File()
    assert library.overlap_open(str(path.with_name("none")).encode(), ctypes.byref(file)) == -1
    assert ctypes.get_errno() == 2
    assert library.overlap_open(str(path).encode(), ctypes.byref(file)) == 0
    with path.open("r+b") as writer:
        writer.truncate(3)
    library.overlap_fill(ctypes.byref(file))
    assert library.overlap_settle(ctypes.byref(file)) == 0
    assert file.own == 0
    library.overlap_close(ctypes.byref(file))
