"""Mutations of container files: tuning databases, arrays and archives of arrays."""

from __future__ import annotations

import io
import sqlite3
import struct
import tempfile
import zipfile
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from tests.hostile.mutations import NUMBERS, REALS, TEXTS, damage_bytes

_COLUMNS = (
    *("task", "variant", "source", "hardware", "threads", "runtime", "backend", "status", "samples"),
    *("baseline_samples", "error", "message", "created", "packed_bytes", "facts"),
)
_PROGRAMS = (
    "CREATE TRIGGER t AFTER INSERT ON measurements BEGIN DELETE FROM measurements; END",
    "CREATE VIEW v AS SELECT * FROM measurements",
    "ALTER TABLE measurements ADD COLUMN more TEXT",
    "ALTER TABLE measurements DROP COLUMN facts",
    "ALTER TABLE measurements RENAME TO other",
    "DROP TABLE measurements",
    "PRAGMA user_version = 0",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = -5",
    "PRAGMA user_version = 99",
    "PRAGMA application_id = 7",
    "CREATE INDEX i ON measurements(task)",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'CREATE TABLE measurements (x)'",
    "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 1",
)
_PAGE_FIELDS = 100
_HEADER = b"\x93NUMPY"
_SHAPES = (
    "(2, 3, 4)",
    "(3, 4)",
    "(1, 3, 4)",
    "()",
    "(0, 3, 4)",
    "(-1, 3, 4)",
    "(1000000000000, 3, 4)",
    "(9223372036854775807, 9223372036854775807)",
    "(2.5,)",
    "(True, 3, 4)",
    "'x'",
    "[3, 4]",
    "(3, 4, " + "1, " * 70 + ")",
    "(" * 150 + ")" * 150,
    "-" * 9000 + "1",
    "(10**30,)",
)
_TYPES = ("<f4", ">f4", "|O", "<f8", "<U5", "|V2000000000", "<M8[ns]", "|b1", "f4,f4", "|S0", "x", "<f2")


def damage_database(data: bytes, random: Random) -> bytes:
    """Return an SQLite file with damaged bytes, header, rows or schema."""
    if random.random() < 0.4:
        return damage_bytes(data, random)
    if random.random() < 0.3:
        head = damage_bytes(data[:_PAGE_FIELDS], random)
        return head + data[_PAGE_FIELDS:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.db")
        path.write_bytes(data)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection, suppress(sqlite3.Error):
            connection.execute("PRAGMA journal_mode = DELETE")
            _change_database(connection, random)
        return path.read_bytes()


def _change_database(connection: sqlite3.Connection, random: Random) -> None:
    if random.random() < 0.3:
        connection.executescript(random.choice(_PROGRAMS))
        return
    for _ in range(random.randint(1, 3)):
        value: object = random.choice(
            (
                *(random.choice(NUMBERS), random.choice(REALS), random.choice(TEXTS), None),
                *(random.randbytes(random.choice((0, 1, 8, 16, 4096))), struct.pack("<d", random.choice(REALS))),
            )
        )
        rows = random.choice(("", " WHERE rowid_is_first", f" WHERE task = '{random.choice(TEXTS[:3])}'"))
        where = rows if "first" not in rows else " WHERE variant = (SELECT min(variant) FROM measurements)"
        connection.execute(f"UPDATE OR REPLACE measurements SET {random.choice(_COLUMNS)} = ?{where}", (value,))


def damage_array(data: bytes, random: Random) -> bytes:
    """Return a .npy file with a damaged header or damaged bytes."""
    if random.random() < 0.3:
        return damage_bytes(data, random)
    header = f"{{'descr': '{random.choice(_TYPES)}', 'fortran_order': {random.choice(('False', 'True', '1', 'x'))}, "
    header += f"'shape': {random.choice(_SHAPES)}, }}"
    body = random.choice((b"", bytes(96), bytes(48), data[-96:]))
    return _with_header(header.encode(), random) + body


def _with_header(header: bytes, random: Random) -> bytes:
    version = random.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    form = "<H" if version == b"\x01\x00" else "<I"
    size = len(header) + 1
    if random.random() < 0.1:
        size = random.choice((0, 1, 65535, 2**16 - 1 if form == "<H" else 2**32 - 1))
    return _HEADER + version + struct.pack(form, min(size, 65535 if form == "<H" else 2**32 - 1)) + header + b"\n"


def damage_archive(data: bytes, random: Random) -> bytes:
    """Return a .npz file with damaged bytes, directory or arrays."""
    if random.random() < 0.4:
        return damage_bytes(data, random)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    written = io.BytesIO()
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            changed = damage_array(content, random) if random.random() < 0.6 else content
            renamed = random.choice((name, name, name, *TEXTS, "../x.npy", "/x.npy", "x.npy/"))
            _add(archive, renamed.replace("\0", "") or "y.npy", changed, random.choice(methods))
        for index in range(random.choice((0, 0, 0, 1, 3000))):
            _add(archive, f"more{index}.npy", b"", zipfile.ZIP_STORED)
        if random.random() < 0.1:
            # A compression bomb: 16 MiB of zeros in a few kilobytes.
            _add(archive, "bomb.npy", bytes(1 << 24), zipfile.ZIP_DEFLATED)
    content = written.getvalue()
    return damage_bytes(content, random) if random.random() < 0.2 else content


def _add(archive: zipfile.ZipFile, name: str, content: bytes, method: int) -> None:
    """Add a member without a timestamp, so that the file is reproducible."""
    member = zipfile.ZipInfo(name)
    member.compress_type = method
    archive.writestr(member, content)
