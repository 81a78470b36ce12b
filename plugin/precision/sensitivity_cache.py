"""What was found out about a model on samples, in files beside the tuning database."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sartor.codegen.digest import digest
from sartor.codegen.source_digest import source_digest
from sartor.frontend import import_job
from sartor.precision import observe_job, sensitivity_job
from sartor.tuning.records.measurement import reference_version
from sartor.workspace import partial_file

_LOG = logging.getLogger(__name__)
_SUFFIX = ".calibration"
# What is found out follows from what these do.
_JOBS = (import_job.__name__, observe_job.__name__, sensitivity_job.__name__)

Numbers = dict[str, tuple[float, ...]]
"""Numbers by what they are of."""


@dataclass(frozen=True)
class Findings:
    """Keeps numbers by a key; what cannot be read or written is found out again."""

    directory: Path

    @staticmethod
    def beside(database: Path) -> Findings:
        """Those that belong to a tuning database."""
        return Findings(database.with_name(database.name + _SUFFIX))

    def get(self, *key: str) -> Numbers:
        """What is known under a key."""
        try:
            data = json.loads(self._path(key).read_text(encoding="utf-8"))
            return {str(name): tuple(map(float, numbers)) for name, numbers in data.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def put(self, found: Mapping[str, tuple[float, ...]], *key: str) -> None:
        """Add to what is known under a key."""
        path, known = self._path(key), self.get(*key)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with partial_file(self.directory) as partial:
                partial.write_text(json.dumps({**known, **found}), encoding="utf-8")
                os.replace(partial, path)
        except OSError as error:
            _LOG.warning("'%s' cannot be written (%s): what was calibrated is not kept", path, error.strerror)

    def _path(self, key: tuple[str, ...]) -> Path:
        return self.directory / f"{digest(source_digest(*_JOBS), reference_version(), *key)}.json"
