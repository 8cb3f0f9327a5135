"""Each package as a user gets it: its wheel, in an environment that holds nothing else, outside this tree.

One environment serves the whole module and is deleted after it: the kernels go in first and are used alone, then the
ops, then the testing kit. Only that order makes sense, so the tests stand in it. The commands of two guides are run as
they stand, in a copy of what they need of a clone.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs.pages import Block, blocks_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tileops-kernels", "tileops", "tileops-testing")

pytestmark = [pytest.mark.dist, pytest.mark.xdist_group("dist")]

RUN_A_KERNEL = """
import importlib.util
import torch
from tileops_kernels.norm import LayerNormCall, rms_norm_kernels

assert importlib.util.find_spec("tileops") is None, "tileops is importable"
x, weight = torch.randn(3, 4096), torch.randn(4096)
entry = rms_norm_kernels().entry(LayerNormCall(device=x.device, n=4096, eps=1e-6, dtype=x.dtype))
torch.testing.assert_close(entry(x, weight), torch.nn.functional.rms_norm(x, (4096,), weight, 1e-6))
print(type(entry).__name__)
"""

RUN_AN_OP = """
import importlib.util
import torch
from tileops.norm import RMSNormFwdOp

assert importlib.util.find_spec("tileops_testing") is None, "tileops_testing is importable"
op = RMSNormFwdOp((4096,), eps=1e-6)
x, weight = torch.randn(3, 4096), torch.randn(4096)
compiled = torch.compile(lambda x, weight: op(x, weight).relu(), fullgraph=True)
torch.testing.assert_close(compiled(x, weight), op(x, weight).relu())
print(RMSNormFwdOp.compile_op_names)
"""


WRONGLY_TYPED = """
import torch
from torch import Tensor

from downstream.attention import norm_call
from tileops_kernels.kernel import Kernel
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface, rms_norm_kernels
from tileops_kernels.reduction import softmax_kernels

x = torch.ones(2, 64)
rms_norm_kernels().entry(norm_call(x))(x)
softmax_kernels().entry(norm_call(x))


class WrongKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    def forward(self, x: Tensor) -> Tensor:
        return x
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and an empty folder to work in, both outside this tree."""

    folder: Path
    wheels: Mapping[str, Path]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "environment" / "bin" / "python"

    def install(self, package: str) -> None:
        """Install one package from its wheel, its dependencies as pinned."""
        found = ["--find-links", str(self.wheels[package].parent)]
        pins = ["--constraint", str(ROOT / "constraints.txt")]
        self.run("-m", "pip", "install", "--quiet", "--no-compile", *found, *pins, str(self.wheels[package]))

    def run(self, *arguments: str) -> str:
        """Run its Python outside the tree and return what it printed."""
        result = self.try_to_run([str(self.python), *arguments], self.folder)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def try_to_run(self, command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command in a folder, with none of this process's own Python settings."""
        settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        settings["TILEOPS_CACHE_DIR"] = str(self.folder / "cache")
        settings["CUDA_VISIBLE_DEVICES"] = ""  # guides show what a CPU gives
        return subprocess.run(
            command, cwd=folder, env=settings, capture_output=True, text=True, check=False, timeout=800
        )

    @property
    def clone(self) -> Path:
        """A copy of what the guides' commands read of this tree, made on the first request."""
        folder = self.folder / "clone"
        if not folder.exists():
            unwanted = shutil.ignore_patterns("__pycache__")
            for place in ("packages", "manifests", "docs/examples"):
                shutil.copytree(ROOT / place, folder / place, symlinks=True, ignore=unwanted)
            shutil.copy(ROOT / "constraints.txt", folder)
        return folder

    def follow(self, guide: Path, commands: Block, *, makes: str = "") -> list[str]:
        """Run a guide's commands in the clone and return what each printed; this is the environment that one makes."""
        lines = [shlex.split(line) for line in commands.text.splitlines()]
        if makes:
            assert lines.pop(0) == ["python3", "-m", "venv", f"../{makes}"]
            (self.folder / makes).symlink_to("environment")
        printed = []
        for line in lines:
            result = self.try_to_run([str(self.clone / line[0]), *line[1:]], self.clone)
            assert result.returncode == 0, f"{guide.name}: {shlex.join(line)}\n{result.stdout}{result.stderr}"
            printed.append(result.stdout)
        return printed


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Each package's wheel, built from its source distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    for package in PACKAGES:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), f"packages/{package}"]
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
    return {package: next(folder.glob(f"{package.replace('-', '_')}-*.whl")) for package in PACKAGES}


@pytest.fixture(scope="module")
def environment(wheels: Mapping[str, Path]) -> Iterator[Environment]:
    """An environment with nothing but pip in it."""
    if "TILEOPS_NO_VENV" in os.environ:
        pytest.skip("installing wheels needs an environment of its own, which nox --no-venv rules out")
    with TemporaryDirectory(prefix="tileops-dist-") as folder:
        made = Environment(Path(folder), wheels)
        subprocess.run([sys.executable, "-m", "venv", str(made.folder / "environment")], check=True, timeout=300)
        yield made


def names_in(wheel: Path) -> list[str]:
    """Return the paths that a wheel holds."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_is_typed_and_licensed(wheels: Mapping[str, Path], package: str) -> None:
    """A wheel carries py.typed and the license, and no tests."""
    names = names_in(wheels[package])
    assert f"{package.replace('-', '_')}/py.typed" in names
    assert len([name for name in names if name.endswith("dist-info/licenses/LICENSE")]) == 1
    assert [name for name in names if name.startswith("tests/")] == []


def test_the_ops_carry_the_manifests(wheels: Mapping[str, Path]) -> None:
    """The wheel of tileops holds every manifest file."""
    expected = {path.relative_to(ROOT / "manifests").as_posix() for path in (ROOT / "manifests").rglob("*.yaml")}
    prefix = "tileops/_manifests/"
    names = {name.removeprefix(prefix) for name in names_in(wheels["tileops"]) if name.startswith(prefix)}
    assert names == expected


def test_kernels_alone(environment: Environment) -> None:
    """With tileops-kernels alone, torch and TileLang are there, tileops is not, and a kernel runs on CPU."""
    environment.install("tileops-kernels")
    installed = environment.run("-m", "pip", "list", "--format=freeze").lower()
    assert "torch==" in installed
    assert "tilelang==" in installed
    assert {"msgspec", "pyyaml"} & {line.split("==")[0] for line in installed.splitlines()} == set()
    assert environment.run("-c", RUN_A_KERNEL) == "RMSNormCPUKernel\n"


def commands_of(guide: Path) -> list[Block]:
    """Return a guide's blocks of commands, and check that the text before each says how many they are."""
    found = [block for block in blocks_of(guide) if block.language == "sh"]
    for block in found:
        before = "\n".join(guide.read_text().splitlines()[: block.line - 1]).strip().rpartition("\n\n")[2]
        count = {2: "two more commands", 3: "three commands"}[len(block.text.splitlines())]
        assert count in " ".join(before.split()), f"{guide.name}:{block.line}"
    return found


def test_a_project_on_the_kernels_alone(environment: Environment) -> None:
    """The guide's example: installed where tileops is not, it prints what the guide says, and mypy accepts it."""
    guide = ROOT / "docs/guides/kernels-alone.md"
    run, check = commands_of(guide)
    (said,) = [following.text for block, following in pairwise(blocks_of(guide)) if block == run]
    *_, printed = environment.follow(guide, run, makes="alone")
    assert printed == said
    without = environment.try_to_run([str(environment.python), "-c", "import tileops"], environment.folder)
    assert "ModuleNotFoundError: No module named 'tileops'" in without.stderr

    environment.follow(guide, check)
    wrong = environment.clone / "docs/examples/downstream/src/downstream/wrong.py"
    wrong.write_text(WRONGLY_TYPED)
    refused = environment.try_to_run(
        [str(environment.clone / word) if "/bin/" in word else word for word in shlex.split(check.text.splitlines()[1])],
        environment.clone,
    )
    wrong.unlink()
    errors = [line for line in refused.stdout.splitlines() if ": error: " in line]
    assert [line.rpartition("  ")[2] for line in errors] == ["[call-arg]", "[arg-type]", "[override]"]


def test_ops_from_their_wheel(environment: Environment) -> None:
    """With tileops added, an op runs eagerly and compiled, without the testing kit."""
    environment.install("tileops")
    assert environment.run("-c", RUN_AN_OP) == "('tileops::norm_rms_norm_fwd',)\n"


def test_the_commands_of_the_wheel(environment: Environment) -> None:
    """With tileops alone its commands run: one looks at the installation, the other explains a call."""
    environment.install("tileops")
    assert "tileops-testing  not installed" in environment.run("-m", "tileops", "doctor")
    explained = environment.run("-m", "tileops", "explain", "RMSNormFwdOp", "x=2048x4096:float16@cuda:sm90")
    assert "served by rms_norm_on_chip" in explained


def test_quickstart_outside_the_tree(environment: Environment) -> None:
    """With tileops-testing added, the quickstart runs from the wheels alone."""
    environment.install("tileops-testing")
    assert "tileops::norm_rms_norm_fwd" in environment.run("-m", "tileops_testing.quickstart")


def test_a_backend(environment: Environment) -> None:
    """The guide's example of a backend: installed beside the packages, it passes conformance."""
    guide = ROOT / "docs/guides/adding-a-backend.md"
    (commands,) = commands_of(guide)
    *_, printed = environment.follow(guide, commands, makes="acme")
    assert " passed in " in printed
    assert "failed" not in printed
    assert "skipped" not in printed
