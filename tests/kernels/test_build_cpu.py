"""CPU programs: built once, shared among threads by rows, found again on disk, and errors that leave nothing behind."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.architecture.sources import ROOT
from tileops_kernels.build import compiler
from tileops_kernels.build import cpu as cpu_module
from tileops_kernels.build.cache import CacheFolder
from tileops_kernels.build.compiler import Compiler
from tileops_kernels.build.cpu import CPUBuilder
from tileops_kernels.build.launcher import GRAIN, CPUFunction, library_source
from tileops_kernels.build.program import Program
from tileops_kernels.errors import BuildError

TOYS = "tests.kernels.programs.toys"
WIDE = GRAIN + 5
SCALE = Program.of(TOYS, "scale_rows", n=WIDE, factor=2.0)
ADD = Program.of(TOYS, "add_constant", n=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> CacheFolder:
    return CacheFolder(tmp_path_factory.mktemp("cpu") / "cache")


@pytest.fixture
def builder(folder: CacheFolder) -> CPUBuilder:
    return CPUBuilder(lambda: folder)


@pytest.fixture
def empty(tmp_path: Path) -> CacheFolder:
    return CacheFolder(tmp_path / "cache")


def added(run: CPUFunction, x: Tensor) -> Tensor:
    """X + 1 by the toy program."""
    y = torch.full_like(x, torch.nan)
    run(x.data_ptr(), y.data_ptr(), 1)
    return y


def files(folder: CacheFolder) -> list[str]:
    return sorted(path.suffix for path in (folder.root / "cpu").iterdir())


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [0, 1, 2, 7])
def test_rows_are_shared_among_threads(builder: CPUBuilder, rows: int, threads: int) -> None:
    """Every row is handled exactly once, for any number of rows and threads, and none beyond the last."""
    run = builder.load(SCALE, owner="Toy")
    x = torch.randn(rows, WIDE)
    y = torch.full((rows + 1, WIDE), torch.nan)

    run(x.data_ptr(), y.data_ptr(), 0.5, rows, threads)

    assert torch.equal(y[:rows], x * 2 + 0.5)
    assert bool(y[rows].isnan().all())


def test_wrong_arguments_of_a_program_raise(builder: CPUBuilder) -> None:
    """Too few or too many, or a value of another kind, are a TypeError, and nothing runs."""
    run = builder.load(SCALE, owner="Toy")
    x, y = torch.ones(1, WIDE), torch.zeros(1, WIDE)
    places = x.data_ptr(), y.data_ptr()

    with pytest.raises(TypeError, match="a program takes 5 arguments, received 4"):
        run(*places, 0.5, 1)
    for wrong in ((None, places[1], 0.5, 1, 1), (*places, "0.5", 1, 1), (*places, 0.5, 1.0, 1)):
        with pytest.raises(TypeError):
            run(*wrong)
    assert not y.any()
    run(*places, 2, True, 1)
    assert torch.equal(y, torch.full((1, WIDE), 4.0))


def test_other_threads_run_meanwhile(builder: CPUBuilder) -> None:
    """A program lets go of the interpreter's lock: another thread of Python counts on while it runs."""
    run = builder.load(SCALE, owner="Toy")
    x = torch.ones(500, WIDE)
    y, counted, done = torch.empty_like(x), [0], threading.Event()

    def count() -> None:
        while not done.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10.0)  # no thread is made to let go of the lock
    try:
        thread.start()
        before = counted[0]
        run(x.data_ptr(), y.data_ptr(), 0.5, len(x), 1)
        after = counted[0]
    finally:
        done.set()
        sys.setswitchinterval(interval)
    thread.join()
    assert after > before


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_rows_of_a_run_time_length_know_their_place(builder: CPUBuilder, threads: int) -> None:
    """A step may be as long as a size says, and a program may ask where its range of rows begins."""
    run = builder.load(Program.of(TOYS, "number_rows"), owner="Toy")
    for rows, length in ((7, 30_001), (100, 3), (3, 50_000)):
        y = torch.full((rows + 1, length), torch.nan)

        run(y.data_ptr(), 40, rows, length, threads)

        assert torch.equal(y[:rows], torch.arange(40.0, 40.0 + rows)[:, None].expand(rows, length))
        assert bool(y[rows].isnan().all())


def test_a_program_without_a_split_runs_once(builder: CPUBuilder) -> None:
    """A builder that returns a prim_func alone gives a program that runs on the calling thread."""
    run = builder.load(ADD, owner="Toy")

    assert added(run, torch.arange(8.0)).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_ieee_semantics(builder: CPUBuilder) -> None:
    """Denormals, infinities and NaN pass through, and loading a program leaves torch's own denormals alone."""
    program = Program.of(TOYS, "scale_rows", n=4, factor=0.5)
    run = builder.load(program, owner="Toy")
    x = torch.tensor([[1e-40, torch.inf, torch.nan, -0.0]])
    y = torch.empty_like(x)

    run(x.data_ptr(), y.data_ptr(), -0.0, 1, 1)

    assert y[0, 0] == torch.tensor(1e-40) * 0.5
    assert y[0, 0] != 0
    assert y[0, 1] == torch.inf
    assert bool(y[0, 2].isnan())
    assert bool(torch.signbit(y[0, 3]))


def test_sixteen_threads_build_once(empty: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads load a program at once, the compiler runs once and all get the same function."""
    runs: list[str] = []
    original = compiler.run_compiler

    def counted(command: list[str], *, owner: str, limit: float) -> None:
        runs.append(owner)
        original(command, owner=owner, limit=limit)

    monkeypatch.setattr(compiler, "run_compiler", counted)
    builder, barrier = CPUBuilder(lambda: empty), threading.Barrier(16)

    def load(_: int) -> CPUFunction:
        barrier.wait()
        return builder.load(ADD, owner="Toy")

    with ThreadPoolExecutor(16) as pool:
        functions = list(pool.map(load, range(16)))

    assert runs == [f"Toy: {ADD}"]
    assert set(map(id, functions)) == {id(functions[0])}
    assert files(empty) == [".json", ".so"]


def test_another_process_loads_it_without_tilelang(builder: CPUBuilder, folder: CacheFolder) -> None:
    """A program that was built before is loaded from disk without importing TileLang or running a compiler."""
    builder.load(ADD, owner="Toy")
    code = (
        "import sys, torch; from tileops_kernels.build import compiler, cpu; from tileops_kernels.build.program import "
        "Program; compiler.run_compiler = None; "
        f"run = cpu.load(Program.of('{TOYS}', 'add_constant', n=8), owner='Toy'); x = torch.ones(8); y = x * 0; "
        "run(x.data_ptr(), y.data_ptr(), 1); print(y.sum().item(), 'tilelang' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "TILEOPS_CACHE_DIR": str(folder.root)},
    )

    assert ran.stdout.split() == ["16.0", "False"]


def test_a_damaged_library_is_rebuilt(empty: CacheFolder) -> None:
    """A truncated library is built again instead of being loaded."""
    CPUBuilder(lambda: empty).load(ADD, owner="Toy")
    (library,) = (empty.root / "cpu").glob("*.so")
    whole = library.read_bytes()
    library.unlink()  # it stays loaded in this process
    library.write_bytes(whole[:1000])

    run = CPUBuilder(lambda: empty).load(ADD, owner="Toy")

    assert added(run, torch.zeros(8)).tolist() == [1.0] * 8
    assert library.stat().st_size == len(whole)


def test_a_stored_library_that_does_not_load_is_rebuilt(empty: CacheFolder) -> None:
    """An entry that agrees with its digest and yet cannot be loaded is built again."""
    CPUBuilder(lambda: empty).load(ADD, owner="Toy")
    (library,) = (empty.root / "cpu").glob("*.so")
    with empty.building("cpu", library.stem) as staging:
        (staging / "program.so").write_bytes(b"no library")
        empty.store(library.stem, staging / "program.so", {})

    run = CPUBuilder(lambda: empty).load(ADD, owner="Toy")

    assert added(run, torch.zeros(8)).tolist() == [1.0] * 8


def test_the_key_holds_all_that_decides_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler, its flags, the instruction set, the launcher and the program each have a part in the key."""
    found = Compiler(("/usr/bin/g++",), "g++ 12")
    keys = [cpu_module._key(ADD, found), cpu_module._key(SCALE, found)]
    keys.append(cpu_module._key(ADD, Compiler(("/usr/bin/g++",), "g++ 13")))
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "FLAGS", (*compiler.FLAGS, "-g"))
        keys.append(cpu_module._key(ADD, found))
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "cpu_identity", lambda: "x86_64-other")
        keys.append(cpu_module._key(ADD, found))
    with monkeypatch.context() as patch:
        patch.setattr(cpu_module, "_build_digest", lambda: "other")
        keys.append(cpu_module._key(ADD, found))

    assert len(set(keys)) == 6
    assert cpu_module._key(ADD, found) == keys[0]


def test_flags_keep_ieee_semantics() -> None:
    """No flag gives up NaN, infinities, signed zeros or denormals."""
    assert {"-ffast-math", "-Ofast", "-ffinite-math-only", "-fno-signed-zeros"}.isdisjoint(compiler.FLAGS)
    assert compiler.cpu_identity().startswith(f"{platform.machine()}-")


@pytest.mark.parametrize(
    ("machine", "system"), [("riscv64", "linux"), ("x86_64", "win32"), ("arm64", "darwin")], ids=["cpu", "nt", "mac"]
)
def test_other_platforms_are_refused(
    builder: CPUBuilder, machine: str, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU programs are for Linux on x86-64 and aarch64; elsewhere the first build says so."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)

    with pytest.raises(BuildError) as caught:
        builder.load(ADD, owner="Toy")

    assert str(caught.value) == (
        f"Toy: {ADD}: CPU programs are built on Linux x86-64 and aarch64; received {system} {machine}; run on one of "
        "those"
    )


def test_a_program_that_tilelang_refuses(builder: CPUBuilder) -> None:
    """What TileLang says becomes one line of ours, with kernel type and program."""
    program = Program.of(TOYS, "untraceable")

    with pytest.raises(BuildError) as caught:
        builder.load(program, owner="Toy")

    assert str(caught.value) == (
        f"Toy: {program}: lowering to C failed: ValueError: no layout | found for this buffer; expected TileLang to "
        "accept the program; install a tilelang version that this package names"
    )


def test_a_builder_must_return_a_split(builder: CPUBuilder) -> None:
    """Anything but a RowSplit beside the prim_func is refused."""
    program = Program.of(TOYS, "wrong_split", n=4)

    with pytest.raises(BuildError) as caught:
        builder.load(program, owner="Toy")

    assert str(caught.value) == (
        f"Toy: {program}: the builder returned more than a prim_func; expected a RowSplit beside it, received int; "
        "return one"
    )


def test_a_program_uses_its_parameters(builder: CPUBuilder) -> None:
    """A parameter that the generated function lacks is an error: callers could not know to leave it out."""
    with pytest.raises(BuildError) as caught:
        builder.load(Program.of(TOYS, "unused_parameter", n=4), owner="Toy")

    assert str(caught.value).startswith("generated CPU source of ")
    assert ": parameters Z of the program are not used; expected every parameter in use, received " in str(caught.value)
    assert str(caught.value).endswith("; leave unused parameters out of the prim_func")


def test_arguments_have_types_that_can_be_passed() -> None:
    """A scalar type that no number of Python is read as is refused when the source is generated."""
    generated = "#include <tl_templates/cpp/common.h>\nint32_t main_kernel(float* X, half scale) {\n}\n"

    with pytest.raises(BuildError) as caught:
        library_source(generated, ["X", "scale"], None)

    assert str(caught.value) == (
        "generated CPU source of main_kernel: arguments of type half; expected pointers and float, double, int8_t, "
        "int16_t, int32_t, int64_t, bool, received float* X, half scale; give the prim_func parameters of those types"
    )


def test_generated_text_must_be_one_function() -> None:
    """Text that is not what the installed TileLang generates is refused, not compiled."""
    with pytest.raises(BuildError) as caught:
        library_source("int main() { return 0; }", ["X"], None)

    assert str(caught.value) == (
        "generated CPU source: expected one function and the line #include <tl_templates/cpp/common.h>, received 0 "
        "functions; write the program as one prim_func, and install the TileLang version that this package names"
    )
