"""Temporary files for weights that a pass created, kept while models refer to them."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from graphpass.errors import WriteError

#: Offsets of weights are multiples of this, so that a memory-mapped file can be used in place.
ALIGNMENT = 4096

_finished: weakref.WeakValueDictionary[str, ScratchFile] = weakref.WeakValueDictionary()


class ScratchFile:
    """A file of new weights in sequence, removed with the last reference to this object.

    Attributes:
        name: Name by which models refer to the file, derived from its content; empty before `finish`.
        size: Number of bytes written.
    """

    def __init__(self, prefix: str) -> None:
        """Create a file in the system's folder for temporary files.

        Args:
            prefix: Prefix of the name.

        Raises:
            WriteError: GP501, the file system reports an error, here or in `write`.
        """
        with _explained():
            folder = tempfile.mkdtemp(prefix=".graphpass_weights-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._path = Path(folder) / "weights"
            self._stream = self._path.open("w+b")
            weakref.finalize(self, self._stream.close)  # for a file that an error left open
        self.name, self.size = "", 0
        self._prefix = prefix
        self._starts: dict[bytes, int] = {}

    def begin(self) -> int:
        """Begin a weight at the next aligned offset.

        Returns:
            The offset in bytes, a multiple of `ALIGNMENT`.

        Raises:
            WriteError: GP501, the folder of temporary files is full or write-protected.
        """
        self._append(bytes(-self.size % ALIGNMENT))
        self._digest = hashlib.sha256()
        return self.size

    def write(self, content: bytes) -> None:
        """Append bytes to the current weight.

        Raises:
            WriteError: GP501, as `begin`.
        """
        self._digest.update(content)
        self._append(content)

    def end(self, offset: int) -> int:
        """End the weight at ``offset``; remove it again if an earlier one has equal content.

        Returns:
            The offset in bytes of the first weight with this content.
        """
        start = self._starts.setdefault(self._digest.digest(), offset)
        if start != offset:
            self._stream.truncate(offset)
            self._stream.seek(offset)
            self.size = offset
        return start

    def _append(self, content: bytes) -> None:
        with _explained():
            self.size += self._stream.write(content)

    def finish(self) -> None:
        """Close the file, and set its name to a digest of the weights.

        Raises:
            WriteError: GP501, as `begin`.
        """
        with _explained():
            self._stream.close()
        content = hashlib.sha256(repr(sorted(self._starts.items())).encode())
        self.name = f"{self._prefix}-{content.hexdigest()[:12]}.data"
        _finished[self.name] = self

    @classmethod
    def find(cls, name: str) -> Path | None:
        """Return the path of a finished file by its name; ``None`` if unknown."""
        file = _finished.get(name)
        return None if file is None else file._path


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = f"cannot write weights to {tempfile.gettempdir()}: {error.strerror or error}"
        raise WriteError("GP501", reason, "free space there, or set TMPDIR to another folder") from error
