"""`python -m tests.manifest.benchmark`: how long the registry takes to load, and a generated check to run.

The manifest is to have some 205 entries, and to load in 500 ms. Until it has them, two figures stand for that time:
that of the entries that there are, times 205 / their number, and that of a folder in which copies of them, under other
names, make up 205. Copies share their expressions, which are parsed once; other entries share some of theirs too.
"""

from __future__ import annotations

import itertools
import re
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import torch

from tests.manifest.rms_norm import PLAN, constructed
from tileops.manifest import registry
from tileops.manifest.expressions import parse_expression, parse_shape
from tileops.manifest.kinds import parse_kind
from tileops.manifest.plan import build_plan
from tileops.manifest.registry import Registry

ENTRIES = 205
ROOT = Path(__file__).resolve().parents[2] / "manifests"


def best(function: Callable[[], object], number: int, repeat: int = 5) -> float:
    """Return the least seconds per run."""
    return min(timeit.repeat(function, number=number, repeat=repeat)) / number


def load(root: Path, *families: str) -> int:
    """Read families as a new process does, all of them when none is named, and return the number of entries."""
    for cached in (parse_expression, parse_shape, parse_kind):
        cached.cache_clear()
    found = Registry(root)
    return sum(len(found.family(family)) for family in families or found.families())


def enlarge(root: Path, entries: int) -> None:
    """Fill a folder with copies of the manifest's files, each entry under a name of its own."""
    (root / "types.yaml").write_text((ROOT / "types.yaml").read_text())
    made = 0
    for copy in itertools.count():
        for file in sorted(ROOT.glob("*/*.yaml")):
            text = re.sub(r"^([A-Z]\w*):", rf"Copy{copy}\1:", file.read_text(), flags=re.MULTILINE)
            (root / file.parent.name).mkdir(exist_ok=True)
            (root / file.parent.name / f"{file.stem}_{copy}.yaml").write_text(text)
            made += len(re.findall(r"^[A-Z]\w*:", text, flags=re.MULTILINE))
            if made >= entries:
                return


def lines() -> list[str]:
    """Return one line per measurement."""
    x, weight, settled = (
        torch.empty(2048, 4096, dtype=torch.float16),
        torch.empty(4096, dtype=torch.float16),
        constructed((4096,)),
    )
    call = PLAN.check_call(settled, x, weight)
    entries, whole = len(registry.names()), best(lambda: load(ROOT), 2)
    with tempfile.TemporaryDirectory() as folder:
        enlarge(Path(folder), ENTRIES)
        copied, copies = load(Path(folder)), best(lambda: load(Path(folder)), 1)
    measured = [
        ("RMSNormFwdOp: check_call", best(lambda: PLAN.check_call(settled, x, weight), 20_000) * 1e6, "us"),
        ("RMSNormFwdOp: metadata_key", best(lambda: PLAN.metadata_key(x, weight), 20_000) * 1e6, "us"),
        ("RMSNormFwdOp: check_result", best(lambda: PLAN.check_result(call, x), 20_000) * 1e6, "us"),
        ("RMSNormFwdOp: build_plan", best(lambda: build_plan(registry.entry("RMSNormFwdOp")), 20) * 1e3, "ms"),
        ("GQAPagedFwdOp: build_plan", best(lambda: build_plan(registry.entry("GQAPagedFwdOp")), 5) * 1e3, "ms"),
        ("one family (norm)", best(lambda: load(ROOT, "norm"), 5) * 1e3, "ms"),
        (f"whole registry ({entries} entries)", whole * 1e3, "ms"),
        (f"{ENTRIES} entries, that time * {ENTRIES} / {entries}", whole * 1e3 * ENTRIES / entries, "ms"),
        (f"{copied} entries, copies of these", copies * 1e3, "ms"),
    ]
    return [f"{name}: {value:.2f} {unit}" for name, value, unit in measured]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
