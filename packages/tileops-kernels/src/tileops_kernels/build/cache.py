"""The cache folder: made for its owner alone, written atomically, and damaged entries rebuilt.

What it holds is code that gets executed, so a folder that others can write to is refused. It lies at
`TILEOPS_CACHE_DIR` (a leading `~` is the user's home, and a relative path starts at the working folder), by default in
`tileops` under the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`). Where it cannot be written, what it already
holds is still used, and new entries go to a private temporary folder that ends with the process.

An entry is two regular files that only their owner can write: a library, and an index with the facts stored with it and
a digest of both. Anything else under an entry's names is no entry, and storing one replaces it.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path

from tileops_kernels.errors import CacheError

ENVIRONMENT_VARIABLE = "TILEOPS_CACHE_DIR"
ABANDONED_SECONDS = 3600.0
"""The age at which what an interrupted build left is removed: well above the time that a compiler is given."""


@dataclass(frozen=True, slots=True)
class StoredLibrary:
    """A compiled library in the cache: its file and the facts stored with it, verified against their digest."""

    path: Path
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class FolderUsage:
    """How many files a folder holds, in its own folders too, and their bytes."""

    files: int
    bytes: int


class CacheFolder:
    """One cache folder and its subfolders, each checked before it is used; any number of processes may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._fallback: Path | None = None
        self._lock = threading.Lock()

    def folder(self, name: str) -> Path:
        """The subfolder `name`, made if it is missing, in the temporary folder where this one cannot be written.

        Raises CacheError when the cache folder or the subfolder can be written by others.
        """
        try:
            return _make(self.root, name)
        except OSError as error:
            return _make(self._fallback_root(error), name)

    def find(self, name: str, key: str) -> StoredLibrary | None:
        """The library stored under `key` in subfolder `name`; None when it is missing or damaged."""
        for root in (self.root, self._fallback):
            if root is None or not _is_folder(root / name):
                continue
            _check(root)
            _check(root / name)
            if (found := _read(root / name, key)) is not None:
                return found
        return None

    @contextlib.contextmanager
    def building(self, name: str, key: str) -> Iterator[Path]:
        """A staging folder in which to build `key`; other processes that build the same key wait meanwhile.

        The staging folder is removed on the way out, whatever happened; what killed processes left is removed later.
        """
        folder = self.folder(name)
        try:
            staging = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
        except OSError as error:
            folder = _make(self._fallback_root(error), name)
            staging = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
        _sweep(folder)
        try:
            with _exclusive(folder / f".{key}.lock"):
                os.utime(staging)  # the wait for the lock does not count towards its age
                yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def store(self, key: str, library: Path, facts: Mapping[str, object]) -> StoredLibrary:
        """Move `library`, built in a staging folder, to its place under `key`, and write its index beside it."""
        folder = library.parent.parent
        library.chmod(0o600)
        index = {"facts": dict(facts), "digest": _digest(key, library, facts)}
        written = library.with_suffix(".json")
        written.write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        places = [(library, folder / f"{key}.so"), (written, folder / f"{key}.json")]
        written.chmod(0o600)
        for file, place in places:
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            file.replace(place)
        return StoredLibrary(places[0][1], dict(facts))

    def check(self) -> None:
        """Raise CacheError when the folder or one of its subfolders can be written by others; a missing one is fine."""
        for folder in (self.root, *self._subfolders()):
            if _is_folder(folder):
                _check(folder)

    def obstacle(self, *names: str) -> str | None:
        """Why nothing new can be kept here, nor in its subfolders `names`; None where it can. Nothing is written.

        A folder that is missing is made by the first build, in the nearest one that is there.
        """
        for folder in (self.root, *(self.root / name for name in names)):
            place = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
            if not _is_folder(place):
                return f"{place} is no folder"
            if not os.access(place, os.W_OK | os.X_OK):
                return f"{place} cannot be written by user {os.geteuid()}"
        return None

    def usage(self) -> dict[str, FolderUsage]:
        """What each subfolder holds; nothing for a folder that is not there or cannot be read."""
        return {folder.name: _usage(folder) for folder in self._subfolders()}

    def _subfolders(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(path for path in self.root.iterdir() if path.is_dir())
        return []

    def _fallback_root(self, reason: OSError) -> Path:
        """The temporary folder of this process, made with one warning that says why."""
        with self._lock:
            if self._fallback is None:
                self._fallback = Path(tempfile.mkdtemp(prefix="tileops-cache-"))
                atexit.register(shutil.rmtree, self._fallback, ignore_errors=True)
                warnings.warn(
                    f"cache folder {self.root} cannot be written ({reason.strerror or reason}): programs compiled by "
                    f"this process are kept in {self._fallback} and lost when it ends; make the folder writable or set "
                    f"{ENVIRONMENT_VARIABLE} to one that is",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return self._fallback


def cache_folder() -> CacheFolder:
    """The cache folder that the environment names now; the same object for the same path."""
    if stated := os.environ.get(ENVIRONMENT_VARIABLE):
        return _folder_at(Path(os.path.expanduser(stated)).absolute())  # noqa: PTH111 - leaves unknown users alone
    if base := os.environ.get("XDG_CACHE_HOME"):
        return _folder_at(Path(base).absolute() / "tileops")
    try:
        return _folder_at(Path.home() / ".cache" / "tileops")
    except RuntimeError:  # a user without a home
        return _folder_at(Path(tempfile.gettempdir()) / f"tileops-{os.geteuid()}")


@cache
def _folder_at(path: Path) -> CacheFolder:
    return CacheFolder(path)


def _usage(folder: Path) -> FolderUsage:
    """What a folder holds; files that vanish meanwhile are not counted."""
    files = size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += (Path(parent) / name).lstat().st_size
                files += 1
    return FolderUsage(files, size)


def _is_folder(path: Path) -> bool:
    """Whether `path` is a folder that can be looked into."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _make(root: Path, name: str) -> Path:
    """Make `root` and its subfolder `name` for the owner alone, check both, and return the subfolder."""
    root.parent.mkdir(parents=True, exist_ok=True)
    for folder in (root, root / name):
        folder.mkdir(mode=0o700, exist_ok=True)
        _check(folder)
    return root / name


def _check(folder: Path) -> None:
    """Raise CacheError when anyone but its owner, or an owner other than this user and root, can write `folder`."""
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise CacheError(
            f"cache folder {folder}: it holds code that gets executed and belongs to user {status.st_uid}; expected a "
            f"folder of user {os.geteuid()}; set {ENVIRONMENT_VARIABLE} to a folder of your own"
        )
    writers = [who for who, bit in (("group", stat.S_IWGRP), ("others", stat.S_IWOTH)) if status.st_mode & bit]
    if writers:
        raise CacheError(
            f"cache folder {folder}: it holds code that gets executed and can be written by {' and '.join(writers)} "
            f"(mode {stat.S_IMODE(status.st_mode):o}); expected mode 700; run chmod 700 {folder}, or set "
            f"{ENVIRONMENT_VARIABLE} to a folder of your own"
        )


def _read(folder: Path, key: str) -> StoredLibrary | None:
    """The stored library when index and file agree, else None."""
    path = folder / f"{key}.so"
    try:
        with _opened(folder / f"{key}.json") as file:
            index = json.loads(file.read())
        facts, expected = index["facts"], index["digest"]
        if not isinstance(facts, dict) or _digest(key, path, facts) != expected:
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return StoredLibrary(path, facts)


def _digest(key: str, path: Path, facts: Mapping[str, object]) -> str:
    """A digest of the library at `path`, of the facts stored with it, and of the key that it is stored under."""
    with _opened(path) as file:
        library = hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(json.dumps([key, library, dict(facts)], sort_keys=True).encode()).hexdigest()


def _opened(path: Path) -> BufferedReader:
    """The file at `path`, open for reading; OSError unless it is a regular file that only its owner can write."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (os.geteuid(), 0)
    if others or not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file that only its owner can write", str(path))
    return os.fdopen(descriptor, "rb")


def _sweep(folder: Path) -> None:
    """Remove the staging folders and locks in `folder` that builds left which were killed long ago."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            hidden = entry.name.startswith(".build-") or (entry.name.startswith(".") and entry.name.endswith(".lock"))
            if not hidden or time.time() - entry.stat(follow_symlinks=False).st_mtime < ABANDONED_SECONDS:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold `path` as a lock among processes; where it cannot be locked, go on without.

    Entries are written atomically, so that a lock only saves building the same thing twice.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
            stack.callback(os.close, lock)
            stack.callback(path.unlink, missing_ok=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
