"""The matrix of a suite: one row per op and case, kept as JSON and printed as a table."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

__all__ = [
    "MatrixRow",
    "circumstances",
    "digest_of",
    "matrix_path",
    "not_run_message",
    "render",
    "sources_digest",
    "write",
]

_PACKAGES = ("tileops", "tileops-kernels", "torch", "tilelang")
_OURS = ("tileops", "tileops_kernels", "tileops_testing")
_SOURCES = frozenset({".py", ".h", ".yaml"})


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """What one suite found on one case of one op. ``outcome`` is ``passed``, ``failed`` or ``not run``."""

    suite: str
    device: str
    op: str
    case: str
    outcome: str
    reason: str = ""
    checks: Sequence[Mapping[str, str]] = ()
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the row as JSON, as it travels in a test report."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MatrixRow:
        """Return the row that `to_json` wrote."""
        return cls(**json.loads(text))


def circumstances(device: str, root: Path) -> dict[str, Any]:
    """Return where and on what a run was made: device, versions, commit, sources.

    Results of equal circumstances may stand together; others may not, whatever they agree in.
    """
    return {
        "device": device,
        "device_name": _device_name(device),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(root),
        "sources": sources_digest(),
    }


@functools.cache
def sources_digest() -> str:
    """Return a digest of the packages' sources and manifests as they lay when this process first asked.

    An edit that is not committed changes it, where the commit stays.
    """
    digest = hashlib.sha256()
    for package in _OURS:
        spec = importlib.util.find_spec(package)
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            digest.update(digest_of(Path(folder)).encode())
    return digest.hexdigest()


def digest_of(folder: Path) -> str:
    """Return a digest of the names and contents of the sources under `folder`, its linked folders included."""
    digest = hashlib.sha256()
    for place, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files):
            if Path(name).suffix in _SOURCES:
                path = Path(place, name)
                contents = path.read_bytes()
                digest.update(f"{path.relative_to(folder).as_posix()} {len(contents)}\n".encode())
                digest.update(contents)
    return digest.hexdigest()


def matrix_path(root: Path, suite: str, device: str) -> Path:
    """Return where the matrix of a suite lies."""
    return root / "build" / "matrix" / f"{suite}-{device}.json"


def write(root: Path, suite: str, device: str, rows: Iterable[MatrixRow]) -> Path:
    """Write the rows of one suite and return the file.

    Rows that an earlier run of the same sources on the same device wrote for other cases stay, so that a suite can run
    in parts.
    """
    path = matrix_path(root, suite, device)
    facts = circumstances(device, root)
    merged = _earlier_rows(path, facts)
    merged.update({(row.op, row.case): asdict(row) for row in rows})
    ordered = [merged[key] for key in sorted(merged)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"suite": suite, **facts, "rows": ordered}, indent=1) + "\n", encoding="utf-8")
    return path


def _earlier_rows(path: Path, facts: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    if not path.is_file():
        return {}
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if any(earlier.get(name) != value for name, value in facts.items()):
        return {}
    return {(row["op"], row["case"]): row for row in earlier["rows"]}


def render(suite: str, device: str, rows: Sequence[MatrixRow], *, width: int = 120) -> str:
    """Return the table of one suite: a line per op and case, and one for all cases not run for one reason.

    Below it stand the names of what was checked.
    """
    names = dict.fromkeys(str(check["name"]) for row in rows for check in row.checks)
    caption = f"checked: {', '.join(names)}" if names else None
    table = Table(title=f"{suite} on {device}", title_justify="left", caption=caption, caption_justify="left")
    for heading in ("op", "case", "outcome", "checks", "s", "reason"):
        table.add_column(heading, overflow="fold")
    for row in _folded(rows):
        passed = sum(check["outcome"] == "passed" for check in row.checks)
        applicable = sum(check["outcome"] != "not applicable" for check in row.checks)
        counted = f"{passed}/{applicable}" if row.checks else ""
        table.add_row(row.op, row.case, row.outcome, counted, f"{row.seconds:.1f}", _short_reason(row))
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(table)
    return output.getvalue()


def _short_reason(row: MatrixRow) -> str:
    """Return the first check that failed and what it found, else the reason's first line."""
    for check in row.checks:
        if check["outcome"] == "failed":
            return f"{check['name']}: {check['detail']}".splitlines()[0]
    return row.reason.splitlines()[0] if row.reason else ""


def _folded(rows: Sequence[MatrixRow]) -> list[MatrixRow]:
    """Return the rows in order, those of one op that were not run for one reason folded into one."""
    shown = [row for row in rows if row.outcome != "not run"]
    reasons: dict[tuple[str, str], list[MatrixRow]] = {}
    for row in rows:
        if row.outcome == "not run":
            reasons.setdefault((row.op, row.reason), []).append(row)
    for alike in reasons.values():
        case = alike[0].case if len(alike) == 1 else f"all {len(alike)} cases"
        shown.append(replace(alike[0], case=case))
    return sorted(shown, key=lambda row: (row.op, row.case))


def not_run_message(rows: Iterable[MatrixRow]) -> str | None:
    """Return one line naming every op that a suite did not run, or None when all were run."""
    by_reason: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if row.outcome == "not run":
            by_reason.setdefault((row.suite, row.reason), set()).add(row.op)
    if not by_reason:
        return None
    return "; ".join(
        f"{suite}: not run for {', '.join(sorted(ops))} ({reason})"
        for (suite, reason), ops in sorted(by_reason.items())
    )


def _device_name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(torch.device(device))
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit(root: Path) -> str | None:
    """The commit of the checkout, or what TILEOPS_COMMIT states where it was copied without its history."""
    git = shutil.which("git")
    if git is not None:
        found = subprocess.run(  # noqa: S603 - the command is our own
            [git, "rev-parse", "--verify", "HEAD"], cwd=root, capture_output=True, text=True, check=False, timeout=10
        )
        if found.returncode == 0:
            return found.stdout.strip()
    return os.environ.get("TILEOPS_COMMIT")
