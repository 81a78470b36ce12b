"""Hashes of a model's files, each computed once for all that depends on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.kept.values import FileState, digest_of_file, file_state
from sartor.tuning.networks.module_key import weights_digest


@dataclass
class FileDigests:
    """Hashes of the files that an imported model needs.

    Attributes:
        imported: the model.
    """

    imported: ImportedModel
    _known: dict[tuple[Path, FileState], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        origin = self.imported.origin
        if origin is not None:
            # The model's own hash may be another by now, as of one for any size.
            known = zip(origin.files, origin.digests, strict=True) if origin.digests else ()
            self._known.update((place, digest) for place, digest in known if digest)

    def of(self, path: Path) -> str:
        """The SHA-256 of a file.

        Raises:
            OSError: if it cannot be read.
        """
        place = path, file_state(path)
        if place not in self._known:
            self._known[place] = digest_of_file(path)
        return self._known[place]

    @cached_property
    def weights(self) -> str:
        """A hash of the model's weights."""
        return weights_digest(self.imported.weights, self.of)
