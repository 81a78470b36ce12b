"""A cache of calibrated ranges and sensitivities, in files beside the tuning database."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.digest import digest
from sartor.codegen.source_digest import source_digest
from sartor.frontend import import_job
from sartor.precision import observe_job, sensitivity_job
from sartor.publishing import open_to_others
from sartor.samples import sample_sets
from sartor.tuning.records.measurement import reference_version
from sartor.workspace import partial_file

_LOG = logging.getLogger(__name__)
_SUFFIX = ".calibration"
# Entries depend on the source of these jobs, and of what they run the model on.
_JOBS = (import_job.__name__, observe_job.__name__, sample_sets.__name__, sensitivity_job.__name__)

Numbers = dict[str, tuple[float, ...]]
"""Numbers by name, such as a tensor, or a layer and a type."""


@dataclass(frozen=True)
class SensitivityCache:
    """Stores numbers by key in files; an unreadable file counts as missing, and a failed write is only logged.

    Errors may be infinite, but nothing that is stored is NaN.
    """

    directory: Path

    @staticmethod
    def beside(database: Path) -> SensitivityCache:
        """The cache that belongs to a tuning database."""
        return SensitivityCache(database.with_name(database.name + _SUFFIX))

    def get(self, *key: str) -> Numbers:
        """The numbers under a key; empty if there are none."""
        try:
            return _numbers(json.loads(self._path(key).read_text(encoding="utf-8")))
        except (OSError, OverflowError, RecursionError, ValueError):
            return {}

    def put(self, numbers: Mapping[str, tuple[float, ...]], *key: str) -> None:
        """Add numbers under a key, replacing those of the same name."""
        path, known = self._path(key), self.get(*key)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with partial_file(self.directory) as partial:
                partial.write_text(json.dumps({**known, **numbers}), encoding="utf-8")
                open_to_others(partial)
                os.replace(partial, path)
        except OSError as error:
            _LOG.warning("'%s' cannot be written (%s): ranges and errors are not stored", path, error.strerror)

    def _path(self, key: tuple[str, ...]) -> Path:
        return self.directory / f"{digest(source_digest(*_JOBS), reference_version(), *key)}.json"


def _numbers(content: object) -> Numbers:
    """What a file holds, which anybody may have written.

    Raises:
        ValueError: if it is no object of lists of numbers.
        OverflowError: if a number is too large.
    """
    if not isinstance(content, dict) or not all(map(_are_numbers, content.values())):
        raise ValueError("lists of numbers by name were expected")
    return {name: tuple(map(float, numbers)) for name, numbers in content.items()}


def _are_numbers(content: object) -> bool:
    return isinstance(content, list) and all(type(value) in (int, float) and not math.isnan(value) for value in content)
