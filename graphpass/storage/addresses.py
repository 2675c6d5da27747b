"""Folders at addresses: ``s3://``, ``gs://``, ``memory://``, and all other protocols of fsspec."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphpass.errors import GraphpassError, ReadError, UsageError, WriteError

#: Seconds without a renewal after which the owner of a lease counts as dead.
_LEASE = 20.0

#: Names of the field for a file's version in listings of the various protocols.
_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "created")


def is_address(location: str) -> bool:
    """Return whether ``location`` is an address rather than a path."""
    return "://" in location


def filesystem_of(address: str) -> tuple[Any, str]:
    """Return fsspec's file system for an address, and the path in it.

    Raises:
        UsageError: GP236, the protocol is unknown or requires a missing package.
    """
    protocol = address.partition("://")[0]
    extra = {"s3": "s3", "gs": "gs", "gcs": "gs"}.get(protocol, "remote")
    try:
        import fsspec

        # A cached listing would omit files that other processes write in the meantime.
        resolved: tuple[Any, str] = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        hint = f"pip install 'graphpass[{extra}]'"
        raise UsageError("GP236", f"{address} cannot be reached: {error.name or error} is missing", hint) from error
    except (ValueError, TypeError) as error:
        raise UsageError(
            "GP236", f"{address} is not an address that fsspec supports: {error}", "use a protocol of fsspec"
        ) from error
    return resolved


def matching(pattern: str) -> list[str]:
    """Return the addresses that match a pattern, sorted.

    Raises:
        ReadError: GP115, the storage reports an error.
        UsageError: GP236, as `filesystem_of`.
    """
    system, path = filesystem_of(pattern)
    with _reaching(pattern, writes=False):
        return sorted(system.unstrip_protocol(name) for name in system.glob(path))


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a storage.

    Attributes:
        bytes: Size in bytes.
        version: A text that changes with the content; empty if the storage has none.
    """

    bytes: int
    version: str


class StoredFolder:
    """A folder at an address, whose files can be read and published."""

    def __init__(self, address: str) -> None:
        """Create a reference without accessing the storage.

        Raises:
            UsageError: GP236, as `filesystem_of`.
        """
        self.address = address.rstrip("/")
        self._system, path = filesystem_of(self.address)
        self._path = path.rstrip("/")

    def files(self, depth: int | None = None) -> dict[str, StoredFile]:
        """Return the files by name; empty if the folder does not exist.

        Args:
            depth: 1 excludes subfolders; ``None`` includes all.

        Raises:
            ReadError: GP115, the storage reports an error.
        """
        with _reaching(self.address, writes=False):
            entries = self._system.find(self._path, maxdepth=depth, detail=True)
        return {
            path[len(self._path) + 1 :]: StoredFile(info["size"] or 0, _version(info))
            for path, info in sorted(entries.items())
            if path != self._path
        }

    def is_file(self) -> bool:
        """Return whether the address is the address of a file.

        Raises:
            ReadError: GP115, the storage reports an error.
        """
        with _reaching(self.address, writes=False):
            return bool(self._system.isfile(self._path))

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; ``None`` if it does not exist.

        Raises:
            ReadError: GP115, the storage reports an error.
        """
        with _reaching(self.address, writes=False):
            try:
                content: bytes = self._system.cat_file(f"{self._path}/{name}")
            except FileNotFoundError:
                return None
            return content

    def fetch(self, names: Iterable[str], folder: Path) -> None:
        """Download files into a local folder.

        Args:
            names: Paths of the files, relative to the address.
            folder: The local folder; missing subfolders are created.

        Raises:
            ReadError: GP115, the storage reports an error, or a name leads outside the folder.
        """
        with _reaching(self.address, writes=False):
            for name in names:
                target = folder / name
                if not target.resolve().is_relative_to(folder.resolve()):
                    raise ReadError("GP115", f"{self.address}/{name} is outside its folder", "rename it")
                target.parent.mkdir(parents=True, exist_ok=True)
                self._system.get_file(f"{self._path}/{name}", str(target))

    def publish(self, folder: Path, manifest: str, lease: Lease) -> None:
        """Replace the files by those of a local folder.

        The files are uploaded to a scratch folder, from which the storage copies them. The manifest is removed first
        and written last, because files without a manifest are not a result. Files with other names are kept.

        Args:
            folder: The local folder.
            manifest: Name of the file that makes the folder a result.
            lease: The lease on this folder.

        Raises:
            WriteError: GP504, another process took the lease; GP505, the storage reports an error.
        """
        names = [str(file.relative_to(folder)) for file in sorted(folder.rglob("*")) if file.is_file()]
        names.remove(manifest)
        names.append(manifest)
        scratch = f"{self._beside('')}{uuid.uuid4().hex}"
        with _reaching(self.address, writes=True):
            try:
                for name in names:
                    self._make_folder_of(f"{scratch}/{name}")
                    self._system.put_file(str(folder / name), f"{scratch}/{name}")
                lease.check()
                with contextlib.suppress(FileNotFoundError):
                    self._system.rm_file(f"{self._path}/{manifest}")
                for name in names:
                    self._make_folder_of(f"{self._path}/{name}")
                    self._system.cp_file(f"{scratch}/{name}", f"{self._path}/{name}")
            finally:
                self._remove(scratch)

    @contextlib.contextmanager
    def leased(self, seconds: float = _LEASE) -> Iterator[Lease]:
        """Wait until no other process writes to the folder, and hold a lease on it.

        Remains of dead processes are removed.

        Args:
            seconds: Seconds without a renewal after which a process counts as dead.

        Yields:
            The lease, released at the end of the ``with`` block.

        Raises:
            WriteError: GP505, the storage reports an error.
        """
        lease = Lease(self._system, f"{self._beside('lease')}", self.address, seconds)
        with _reaching(self.address, writes=True):
            self._make_folder_of(lease.path)
            lease.take()
        try:
            with _reaching(self.address, writes=True):
                for leftover in self._system.glob(f"{self._beside('')}*"):
                    if leftover != lease.path:
                        self._remove(leftover)
            yield lease
        finally:
            lease.give_back()

    def _beside(self, suffix: str) -> str:
        parent, _, name = self._path.rpartition("/")
        return f"{parent}/.graphpass-{name}-{suffix}"

    def _make_folder_of(self, path: str) -> None:
        """Create the folder of a file, if the storage has folders."""
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm(path, recursive=True)


class Lease:
    """A lock on a folder, which its process renews; it expires after the process dies."""

    def __init__(self, system: Any, path: str, address: str, seconds: float) -> None:
        """Create a lease that is not taken yet."""
        self.path = path
        self._system, self._address, self._seconds = system, address, seconds
        self._owner, self._count = uuid.uuid4().hex, 0
        self._lost = False
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def take(self) -> None:
        """Wait for the lease, and renew it in a thread."""
        seen, since = b"", time.monotonic()
        while not self._create():
            holder = self._read()
            if holder != seen:
                seen, since = holder, time.monotonic()
            # Clocks of machines differ, so the time counts from the last renewal that this process observed.
            elif time.monotonic() - since > self._seconds:
                with contextlib.suppress(FileNotFoundError):
                    self._system.rm_file(self.path)
                continue
            self._over.wait(self._seconds / 20)
        self._renewing.start()

    def check(self) -> None:
        """Check that no other process took the lease.

        Raises:
            WriteError: GP504, another process took it.
        """
        if self._lost or not self._read().startswith(self._owner.encode()):
            reason = f"another process took the lease on {self._address}, because this one did not renew it in time"
            raise WriteError("GP504", reason, "the other process's result is valid; run this again if there is none")

    def give_back(self) -> None:
        """Release the lease."""
        self._over.set()
        self._renewing.join()
        # The lease expires if the storage is unavailable.
        with contextlib.suppress(Exception):
            if self._read().startswith(self._owner.encode()):
                self._system.rm_file(self.path)

    @property
    def _content(self) -> bytes:
        return f"{self._owner} {self._count}".encode()

    def _create(self) -> bool:
        try:
            self._system.pipe_file(self.path, self._content, mode="create")
        except FileExistsError:
            return False
        return True

    def _read(self) -> bytes:
        try:
            content: bytes = self._system.cat_file(self.path)
        except FileNotFoundError:
            return b""
        return content

    def _renew(self) -> None:
        while not self._over.wait(self._seconds / 5):
            # A failed renewal is retried; `check` detects a lease that another process took.
            with contextlib.suppress(Exception):
                if not self._read().startswith(self._owner.encode()):
                    self._lost = True
                    return
                self._count += 1
                self._system.pipe_file(self.path, self._content)


@contextlib.contextmanager
def _reaching(address: str, *, writes: bool) -> Iterator[None]:
    try:
        yield
    except GraphpassError:
        raise
    except Exception as error:
        # Each protocol's package raises its own exceptions.
        reason = " ".join(f"{error}".split()) or type(error).__name__
        hint = "check the address, the credentials and the network"
        if writes:
            raise WriteError("GP505", f"cannot write to {address}: {reason}", hint) from error
        raise ReadError("GP115", f"{address} cannot be read: {reason}", hint) from error


def _version(info: dict[str, Any]) -> str:
    return next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
