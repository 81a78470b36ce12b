"""Modules of earlier compilations, so that compiling again with the same plan does not run the compiler.

They lie in the user's cache folder and not beside the database, which may be shared: a module is code, and only what
this user wrote is run.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from sartor.tuning.kept.values import FileState, KeptValues, digest_of_file, file_state

_LOG = logging.getLogger(__name__)

USUAL_LIMIT = 1 << 30
"""Bytes that all modules together may take: eight of ResNet-50, or one of VGG-16."""


@dataclass(frozen=True)
class Hashed:
    """A module as it was when its hash was taken.

    Attributes:
        module: its file.
        state: of the file.
        sha256: of its content.
    """

    module: Path
    state: FileState
    sha256: str


@dataclass(frozen=True)
class KeptModules:
    """Modules by the hash of all that they are made of. What cannot be read or written counts as missing.

    Attributes:
        folder: where they lie; it may be deleted at any time.
        limit: bytes that they may take; those that were not used for longest are removed.
    """

    folder: Path
    limit: int = USUAL_LIMIT

    @staticmethod
    def of_user() -> KeptModules:
        """Those in the user's cache folder."""
        return KeptModules(user_cache_path("sartor") / "modules")

    def may_have(self, beginning: str) -> bool:
        """Whether there is a module whose key begins so."""
        return self._values.may_have(beginning)

    def restore(self, key: str, target: Path) -> int | None:
        """Give the module of a key a second name, or copy it to another disk.

        Returns:
            The bytes of its weights; None if there is no such module, or not as it was written.
        """
        content = self._values.restore(key, target.parent, [target.name])
        with suppress(ValueError):
            if content is not None:
                return int(content)
        with suppress(OSError):
            target.unlink(missing_ok=True)
        return None

    def hashed(self, module: Path) -> Hashed | None:
        """What keeping a module takes time for; None if it cannot be kept."""
        if not self._values.fits([module]):
            return None
        try:
            return Hashed(module, file_state(module), digest_of_file(module))
        except OSError as error:
            _LOG.info("a module is not kept in '%s': %s", self.folder, error)
            return None

    def keep(self, key: str, hashed: Hashed, weight_bytes: int) -> None:
        """Keep a module, which is not to be written again, unless it takes more than the limit."""
        self._values.keep(key, str(weight_bytes).encode(), [hashed.module], [hashed.state], [hashed.sha256])

    def remove(self, key: str) -> None:
        """Remove the module of a key, if there is one."""
        self._values.remove(key)

    @property
    def _values(self) -> KeptValues:
        return KeptValues(self.folder, self.limit)
