"""Joins what the tuning database contains to what a report is about."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from sartor.errors import UsageError
from sartor.report.evidence import read_evidence
from sartor.report.subject import Subject
from sartor.tuning.store.store import Store

_LOG = logging.getLogger(__name__)


def with_readable(subject: Subject, database: Path) -> Subject:
    """As ``with_stored``, but unchanged if the database cannot be read, as what was compiled is not to be lost."""
    try:
        return with_stored(subject, database)
    except UsageError as error:
        _LOG.warning("the report lacks what was measured: %s", error)
        return subject


def with_stored(subject: Subject, database: Path) -> Subject:
    """A subject with the measurements of its layers' candidates; unchanged if there is no database.

    Raises:
        UsageError: if the database cannot be read or is damaged.
    """
    if not database.exists():
        return subject
    with Store.open_to_read(database) as store:
        return replace(subject, evidence=read_evidence(store, subject.plan, subject.tasks))
