"""The cache folder: who may write it, what it finds again, and what it does when it cannot be written."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tileops_kernels.build.cache import ABANDONED_SECONDS, CacheFolder, StoredLibrary, cache_folder
from tileops_kernels.errors import CacheError

KEY = "0123abcd"


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache")


def put(folder: CacheFolder, content: bytes = b"library") -> StoredLibrary:
    """Store `content` under KEY."""
    with folder.building("cpu", KEY) as staging:
        (staging / "program.so").write_bytes(content)
        return folder.store(KEY, staging / "program.so", {"types": ["float"]})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def _permissive_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_permissive_umask")
def test_made_for_the_owner_alone(folder: CacheFolder) -> None:
    """The folder and its subfolders have mode 700, whatever the umask."""
    made = folder.folder("cpu")

    assert made == folder.root / "cpu"
    assert (mode(folder.root), mode(made)) == (0o700, 0o700)


@pytest.mark.parametrize(("bits", "who"), [(0o770, "group"), (0o707, "others"), (0o777, "group and others")])
@pytest.mark.parametrize("level", ["", "cpu"], ids=["root", "subfolder"])
def test_refused_when_others_can_write(folder: CacheFolder, level: str, bits: int, who: str) -> None:
    """A folder or subfolder that others can write is refused, for reading as for writing, with the way to mend it."""
    put(folder)
    path = folder.root / level
    path.chmod(bits)
    expected = (
        f"cache folder {path}: it holds code that gets executed and can be written by {who} (mode {bits:o}); expected "
        f"mode 700; run chmod 700 {path}, or set TILEOPS_CACHE_DIR to a folder of your own"
    )

    with pytest.raises(CacheError) as writing:
        folder.folder("cpu")
    with pytest.raises(CacheError) as reading:
        folder.find("cpu", KEY)

    assert (str(writing.value), str(reading.value)) == (expected, expected)
    path.chmod(0o700)
    assert folder.find("cpu", KEY) is not None


def test_refused_when_another_user_owns_it(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of another user is refused; one of root is not, since root can write everything anyway."""
    folder.folder("cpu")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(Path, "stat", lambda self, **_: SimpleNamespace(st_uid=1001, st_mode=0o40700))

    with pytest.raises(CacheError) as caught:
        folder.folder("cpu")

    assert str(caught.value) == (
        f"cache folder {folder.root}: it holds code that gets executed and belongs to user 1001; expected a folder of "
        "user 1000; set TILEOPS_CACHE_DIR to a folder of your own"
    )
    monkeypatch.setattr(Path, "stat", lambda self, **_: SimpleNamespace(st_uid=0, st_mode=0o40755))
    assert folder.folder("cpu") == folder.root / "cpu"


def test_finds_what_was_stored(folder: CacheFolder) -> None:
    """A stored library is found with its facts, by another object on the same folder too, and nothing else is left."""
    assert folder.find("cpu", KEY) is None

    stored = put(folder)

    assert stored == StoredLibrary(folder.root / "cpu" / f"{KEY}.so", {"types": ["float"]})
    assert CacheFolder(folder.root).find("cpu", KEY) == stored
    assert stored.path.read_bytes() == b"library"
    assert sorted(path.name for path in (folder.root / "cpu").iterdir()) == [f"{KEY}.json", f"{KEY}.so"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{KEY}.so", b""),
        (f"{KEY}.so", b"librarY"),
        (f"{KEY}.json", b""),
        (f"{KEY}.json", b"[1]"),
        (f"{KEY}.json", json.dumps({"digest": "0"}).encode()),
        (f"{KEY}.json", b"[" * 100_000),
        (f"{KEY}.json", b"\xff\xfe"),
    ],
)
def test_damaged_entries_are_not_found_and_can_be_stored_again(folder: CacheFolder, name: str, content: bytes) -> None:
    """A truncated or altered file makes the entry missing, and storing it again mends it."""
    stored = put(folder)
    (folder.root / "cpu" / name).write_bytes(content)

    assert folder.find("cpu", KEY) is None
    assert put(folder) == stored
    assert folder.find("cpu", KEY) == stored


def replaced(path: Path, kind: str) -> None:
    """Put something that is no regular file of the owner's in the place of `path`."""
    content = path.read_bytes()
    path.unlink()
    if kind == "folder":
        (path / "inside").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.with_suffix(".elsewhere").write_bytes(content)
        path.symlink_to(path.with_suffix(".elsewhere"))
    else:
        path.write_bytes(content)
        path.chmod(0o666)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "writable"])
@pytest.mark.parametrize("suffix", [".so", ".json"])
def test_only_regular_files_of_the_owner_are_entries(folder: CacheFolder, suffix: str, kind: str) -> None:
    """A folder, a pipe, a link or a file that others can write is no entry, and storing the entry replaces it."""
    stored = put(folder)
    place = stored.path.with_suffix(suffix)
    replaced(place, kind)

    assert folder.find("cpu", KEY) is None
    assert put(folder) == stored
    assert folder.find("cpu", KEY) == stored
    assert (place.is_symlink(), place.is_file(), mode(place)) == (False, True, 0o600)


@pytest.mark.parametrize("facts", [{}, {"types": ["double"]}, {"types": ["float"], "more": 1}, ["float"]])
def test_altered_facts_make_the_entry_missing(folder: CacheFolder, facts: object) -> None:
    """The digest covers the facts: an index that was edited is no entry, whole as its library may be."""
    index = put(folder).path.with_suffix(".json")
    stored = json.loads(index.read_text())
    index.write_text(json.dumps({**stored, "facts": facts}))

    assert folder.find("cpu", KEY) is None


def test_an_entry_under_another_key_is_missing(folder: CacheFolder) -> None:
    """Both files of an entry, renamed to another key, are no entry of that key."""
    stored = put(folder)
    for suffix in (".so", ".json"):
        stored.path.with_suffix(suffix).rename(stored.path.with_name(f"other{suffix}"))

    assert folder.find("cpu", "other") is None


def test_what_killed_builds_left_is_removed(folder: CacheFolder) -> None:
    """Staging folders and locks older than an hour go when something is built; younger ones and other files stay."""
    made = folder.folder("cpu")
    old = time.time() - ABANDONED_SECONDS - 60
    for name in (".build-old", ".build-new"):
        (made / name).mkdir()
        (made / name / "program.cpp").write_text("half")
    for name in (".old.lock", ".new.lock", ".note", "another.so"):
        (made / name).touch()
    for name in (".build-old", ".old.lock", ".note", "another.so"):
        os.utime(made / name, (old, old))

    put(folder)

    left = sorted(path.name for path in made.iterdir())
    assert left == sorted([".build-new", ".new.lock", ".note", "another.so", f"{KEY}.json", f"{KEY}.so"])


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_lock_is_gone_past(folder: CacheFolder, kind: str) -> None:
    """A lock's name that is taken by a folder or a pipe keeps no build from its end."""
    lock = folder.folder("cpu") / f".{KEY}.lock"
    lock.touch()
    replaced(lock, kind)

    assert put(folder) == folder.find("cpu", KEY)


def test_a_missing_file_makes_the_entry_missing(folder: CacheFolder) -> None:
    """An index without its library, or a library without its index, is no entry."""
    put(folder).path.unlink()
    assert folder.find("cpu", KEY) is None

    put(folder)
    (folder.root / "cpu" / f"{KEY}.json").unlink()
    assert folder.find("cpu", KEY) is None


def test_a_failed_build_leaves_no_file(folder: CacheFolder) -> None:
    """The staging folder goes, with all in it, when building raises."""

    def interrupted() -> None:
        with folder.building("cpu", KEY) as staging:
            (staging / "program.cpp").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert list((folder.root / "cpu").iterdir()) == []


def test_builders_of_one_key_take_turns(folder: CacheFolder) -> None:
    """Of several that build a key at the same time, the first builds and the others find what it stored."""
    barrier, built = threading.Barrier(8), []

    def build(number: int) -> StoredLibrary:
        barrier.wait()
        with folder.building("cpu", KEY) as staging:
            if (found := folder.find("cpu", KEY)) is not None:
                return found
            built.append(number)
            (staging / "program.so").write_bytes(b"library")
            return folder.store(KEY, staging / "program.so", {"types": []})

    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(build, range(8)))

    assert len(built) == 1
    assert set(map(repr, stored)) == {repr(stored[0])}


def test_a_folder_that_cannot_be_made_is_replaced_for_this_process(tmp_path: Path) -> None:
    """Where the folder cannot be written, entries go to a private temporary folder, with one warning."""
    (tmp_path / "file").write_text("in the way")
    folder = CacheFolder(tmp_path / "file")

    with pytest.warns(RuntimeWarning) as warned:
        stored = put(folder)

    assert len(warned) == 1
    assert str(warned[0].message) == (
        f"cache folder {tmp_path / 'file'} cannot be written (File exists): programs compiled by this process are kept "
        f"in {stored.path.parent.parent} and lost when it ends; make the folder writable or set TILEOPS_CACHE_DIR to "
        "one that is"
    )
    assert mode(stored.path.parent.parent) == 0o700
    assert folder.find("cpu", KEY) == stored
    assert put(folder) == stored


def test_a_folder_that_cannot_be_written_is_still_read(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a read-only folder already holds is found, and new entries go to the temporary folder."""
    stored = put(folder)

    def refuse(*_: object, dir: Path, **__: object) -> str:  # noqa: A002
        if folder.root in dir.parents:
            raise OSError(30, "Read-only file system")
        return original(prefix="staging-", dir=dir)

    import tempfile

    original = tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **given: refuse(**given) if "dir" in given else original(**given))

    with pytest.warns(RuntimeWarning, match="Read-only file system"):
        elsewhere = put(folder, b"another")

    assert elsewhere.path.parent.parent != folder.root
    assert folder.find("cpu", KEY) == stored


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TILEOPS_CACHE_DIR may begin with ~, though no shell expanded it; a relative path starts at the working folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    roots = []
    for stated in ("~/own", "~", "~nobody-of-that-name/own", "own"):
        monkeypatch.setenv("TILEOPS_CACHE_DIR", stated)
        roots.append(cache_folder().root)

    home = tmp_path / "home"
    assert roots == [home / "own", home, tmp_path / "~nobody-of-that-name" / "own", tmp_path / "own"]


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TILEOPS_CACHE_DIR, else tileops in XDG_CACHE_HOME, else in ~/.cache, else in the temporary folder."""
    monkeypatch.setenv("TILEOPS_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder().root == tmp_path / "own"
    assert cache_folder() is cache_folder()

    monkeypatch.delenv("TILEOPS_CACHE_DIR")
    assert cache_folder().root == tmp_path / "xdg" / "tileops"

    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder().root == tmp_path / "home" / ".cache" / "tileops"

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cache_folder().root == tmp_path / f"tileops-{os.geteuid()}"
