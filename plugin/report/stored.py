"""Joins what the tuning database contains to what a report is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sartor.report.evidence import read_evidence
from sartor.report.subject import Subject
from sartor.tuning.store.store import Store


def with_stored(subject: Subject, database: Path) -> Subject:
    """A subject with the measurements of its layers' candidates; unchanged if there is no database.

    Raises:
        UsageError: if the database cannot be read or is damaged.
    """
    if not database.exists():
        return subject
    with Store.open_to_read(database) as store:
        return replace(subject, evidence=read_evidence(store, subject.plan, subject.tasks))
