"""Hold weights that a pass made in a file that lasts as long as models refer to it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from pathlib import Path

#: Weights start at multiples of this, so that a memory-mapped file can be used in place.
ALIGNMENT = 4096

_finished: weakref.WeakValueDictionary[str, ScratchFile] = weakref.WeakValueDictionary()


class ScratchFile:
    """Collects new weights, each after the other; it goes with the last reference to it.

    Attributes:
        name: Name by which models refer to it, from its content; empty before `finish`.
        size: Bytes so far.
    """

    def __init__(self, prefix: str) -> None:
        """Open a file in the system's folder for temporary ones.

        Args:
            prefix: First letters of its name.

        Raises:
            OSError: The file system's words.
        """
        folder = tempfile.mkdtemp(prefix=".graphpass_weights-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.name, self.size = "", 0
        self._prefix = prefix
        self._path = Path(folder) / "weights"
        self._stream = self._path.open("w+b")
        self._starts: dict[bytes, int] = {}

    def begin(self) -> int:
        """Begin a new weight; return its offset."""
        self.size += self._stream.write(bytes(-self.size % ALIGNMENT))
        self._digest = hashlib.sha256()
        return self.size

    def write(self, content: bytes) -> None:
        """Append bytes to the weight."""
        self._digest.update(content)
        self.size += self._stream.write(content)

    def end(self, offset: int) -> int:
        """End the weight that begins at ``offset``; return the place of an equal one if there is one."""
        start = self._starts.setdefault(self._digest.digest(), offset)
        if start != offset:
            self._stream.truncate(offset)
            self._stream.seek(offset)
            self.size = offset
        return start

    def finish(self) -> None:
        """Close the file, and name it by its weights."""
        self._stream.close()
        content = hashlib.sha256(repr(sorted(self._starts.items())).encode())
        self.name = f"{self._prefix}-{content.hexdigest()[:12]}.data"
        _finished[self.name] = self

    @classmethod
    def find(cls, name: str) -> Path | None:
        """Return the path of the file that models refer to as ``name``; ``None`` if no pass made it."""
        found = _finished.get(name)
        return None if found is None else found._path
