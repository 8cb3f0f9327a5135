"""The cache folder: made for its owner alone, written atomically, and damaged entries rebuilt.

What it holds is code that gets executed, so a folder that others can write to is refused. It lies at
`TILEOPS_CACHE_DIR`, by default in `tileops` under the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`). Where it
cannot be written, what it already holds is still used, and new entries go to a private temporary folder that ends with
the process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tileops_kernels.errors import CacheError

ENVIRONMENT_VARIABLE = "TILEOPS_CACHE_DIR"


@dataclass(frozen=True, slots=True)
class StoredLibrary:
    """A compiled library in the cache: its file, verified against its checksum, and the facts stored with it."""

    path: Path
    facts: Mapping[str, object]


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

        The staging folder is removed on the way out, whatever happened.
        """
        folder = self.folder(name)
        try:
            staging = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
        except OSError as error:
            folder = _make(self._fallback_root(error), name)
            staging = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
        try:
            with _exclusive(folder / f".{key}.lock"):
                yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def store(self, key: str, library: Path, facts: Mapping[str, object]) -> StoredLibrary:
        """Move `library`, built in a staging folder, to its place under `key`, and write its index beside it."""
        folder = library.parent.parent
        index = {"facts": dict(facts), "sha256": _sha256(library)}
        written = library.with_suffix(".json")
        written.write_text(json.dumps(index, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        place = folder / f"{key}.so"
        library.replace(place)
        written.replace(folder / f"{key}.json")
        return StoredLibrary(place, dict(facts))

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
        return _folder_at(Path(stated).absolute())
    if base := os.environ.get("XDG_CACHE_HOME"):
        return _folder_at(Path(base).absolute() / "tileops")
    try:
        return _folder_at(Path.home() / ".cache" / "tileops")
    except RuntimeError:  # a user without a home
        return _folder_at(Path(tempfile.gettempdir()) / f"tileops-{os.geteuid()}")


@cache
def _folder_at(path: Path) -> CacheFolder:
    return CacheFolder(path)


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
        index = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
        facts, expected = index["facts"], index["sha256"]
        if not isinstance(facts, dict) or _sha256(path) != expected:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return StoredLibrary(path, facts)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold `path` as a lock among processes; where the file system has no locks, go on without.

    Entries are written atomically, so that a lock only saves building the same thing twice.
    """
    with path.open("wb") as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
