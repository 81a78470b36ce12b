"""The tables of the tuning database, and the migrations of older files."""

from __future__ import annotations

APPLICATION_ID = 0x53415254
"""``SART``, in the header of every file. A file without it is not Sartor's and is not changed."""

OBJECTS = {("table", "measurements")}
"""Types and names of the objects in a database of any version."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE measurements (
            task TEXT NOT NULL,
            variant TEXT NOT NULL,
            source TEXT NOT NULL,
            hardware TEXT NOT NULL,
            threads INTEGER NOT NULL,
            runtime TEXT NOT NULL,
            backend TEXT NOT NULL,
            status TEXT NOT NULL,
            samples BLOB NOT NULL,           -- seconds, little-endian float64
            baseline_samples BLOB NOT NULL,
            error REAL,
            message TEXT NOT NULL,
            created REAL NOT NULL,           -- seconds since the epoch
            packed_bytes INTEGER NOT NULL,
            PRIMARY KEY (task, variant, source, hardware, threads, runtime, backend)
        ) WITHOUT ROWID
        """,
    ),
    # A description of the task, of which ``task`` is only a hash; cost models learn from it.
    ("ALTER TABLE measurements ADD COLUMN facts TEXT NOT NULL DEFAULT ''",),
    # Processors that other programs took meanwhile; what older versions measured counts as undisturbed.
    ("ALTER TABLE measurements ADD COLUMN foreign_load REAL NOT NULL DEFAULT 0.0",),
)
"""Statements that migrate from version ``i`` to ``i + 1``; version 0 is the empty file.

A released entry is never edited: files of its version exist. ``tests/tuning/data`` keeps one per version.
"""
