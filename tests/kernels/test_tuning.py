"""Tuning: the fastest configuration, remembered on disk, whatever the file holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops_kernels import tuning
from tileops_kernels.build.cache import ENVIRONMENT_VARIABLE
from tileops_kernels.errors import BuildError, ContractTypeError
from tileops_kernels.kernel import Kernel
from tileops_kernels.table import KernelTable
from tileops_kernels.tuning import seconds_per_run, tune

from .toys import CPU, SCALE, GeneralScale, ScaleCall, ScaleInterface


class Tuned(Kernel[ScaleCall], ScaleInterface):
    """Offers three thread counts, of which 128 is the fastest; one that the test names does not build."""

    devices = frozenset({"cpu", "cuda"})
    tried: list[int]
    broken: frozenset[int] = frozenset()

    def __init__(self, call: ScaleCall) -> None:
        super().__init__(call)
        self.threads = 32
        self.tried = []

    @classmethod
    def autotune_configs(cls, call: ScaleCall) -> Sequence[int]:
        return (64, 128, 256)

    def configure(self, config: object) -> None:
        assert isinstance(config, int)
        if config in self.broken:
            raise BuildError(f"{config} threads do not build")
        self.threads = config

    def trial(self) -> Callable[[], object]:
        return lambda: self.tried.append(self.threads)

    def forward(self, x: int) -> str:
        return f"{self.threads} threads {x}"


def measured(run: Callable[[], object], device: torch.device | None) -> float:
    """Runs once; times that make 128 threads the fastest."""
    run()
    kernel: Any = run.__closure__[0].cell_contents  # type: ignore[index]
    return {64: 3.0, 128: 1.0, 256: 2.0}[kernel.threads]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; returns where choices are kept."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "seconds_per_run", measured)
    return tmp_path / "cache" / tuning.SUBFOLDER


def tuned(identity: Hashable = 8, kernel_type: type[Tuned] = Tuned) -> tuple[Tuned, int | None]:
    """A new kernel after tuning, and what was chosen."""
    kernel = kernel_type(ScaleCall(device=CPU, n=8))
    return kernel, tune(kernel, identity)


def test_the_fastest_configuration_is_chosen() -> None:
    """Each is tried in turn, and the kernel ends with the best."""
    kernel, chosen = tuned()

    assert (kernel.tried, chosen, kernel.threads) == ([64, 128, 256], 1, 128)


def test_progress_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """At level INFO tuning says which configuration of how many it builds, and what came of each."""
    monkeypatch.setattr(Tuned, "broken", frozenset({64}))
    with caplog.at_level("INFO", logger="tileops_kernels.tuning"):
        tuned()
    assert caplog.messages == [
        "tuning Tuned: building configuration 1 of 3: 64",
        "tuning Tuned: configuration 1 of 3, 64, does not build",
        "tuning Tuned: building configuration 2 of 3: 128",
        "tuning Tuned: configuration 2 of 3, 128, takes 1000000.0 us",
        "tuning Tuned: building configuration 3 of 3: 256",
        "tuning Tuned: configuration 3 of 3, 256, takes 2000000.0 us",
    ]


def test_a_choice_is_remembered() -> None:
    """The second kernel of an identity takes it without a trial; another identity is measured."""
    tuned()
    again, chosen = tuned()
    other, _ = tuned(identity=9)

    assert (again.tried, chosen, again.threads) == ([], 1, 128)
    assert other.tried == [64, 128, 256]


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(tuning, "device_name", lambda _: "another device"),
        lambda patch: patch.setattr(tuning, "version", lambda _: "9.9"),
        lambda patch: patch.setattr(Tuned, "autotune_configs", classmethod(lambda cls, call: (64, 128))),
    ],
)
def test_a_choice_belongs_to_what_it_was_measured_for(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another device model, package version or set of configurations is measured anew."""
    tuned()
    change(monkeypatch)

    assert tuned()[0].tried[:2] == [64, 128]


def test_a_choice_belongs_to_its_kernel_type() -> None:
    """Another kernel type with the same configurations and identity is measured anew."""
    tuned()

    assert tuned(kernel_type=type("Renamed", (Tuned,), {"forward": Tuned.forward}))[0].tried == [64, 128, 256]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"chosen": "1"}',
        b'{"chosen": 3}',
        b'{"chosen": -1}',
        b'{"chosen": true}',
    ],
)
def test_a_damaged_file_is_measured_anew(content: bytes, folder: Path) -> None:
    """What holds no choice among the configurations is not trusted, and is replaced."""
    tuned()
    (path,) = folder.iterdir()
    path.write_bytes(content)

    assert tuned()[0].tried == [64, 128, 256]
    assert json.loads(path.read_text()) == {"chosen": 1}


def test_a_folder_that_cannot_be_written_is_no_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel is tuned, and nothing is remembered."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("tempfile.mkstemp", refuse)

    assert tuned()[0].threads == 128
    assert list(folder.iterdir()) == []


def test_a_kernel_without_configurations_is_left_alone(folder: Path) -> None:
    """It is not tried, and no file is made for it."""
    assert tune(GeneralScale(ScaleCall(device=CPU, n=8)), 8) is None
    assert not folder.exists()


def test_configurations_without_their_methods_say_so() -> None:
    """A kernel type that offers configurations and neither trial nor configure is named, with what to define."""

    class Half(GeneralScale):
        @classmethod
        def autotune_configs(cls, call: ScaleCall) -> Sequence[int]:
            return (1, 2)

    class Third(Half):
        def trial(self) -> Callable[[], object]:
            return lambda: None

    with pytest.raises(ContractTypeError) as caught:
        tune(Half(ScaleCall(device=CPU, n=8)), 8)
    assert str(caught.value) == (
        "Half: trial is missing; expected a method that gives a run to time, received none; define configure and trial "
        "beside autotune_configs"
    )
    with pytest.raises(ContractTypeError) as caught:
        tune(Third(ScaleCall(device=CPU, n=8)), 8)
    assert str(caught.value) == (
        "Third: configure is missing; expected a method that takes one of autotune_configs, received 1; define "
        "configure and trial beside autotune_configs"
    )


def test_a_configuration_that_does_not_build_is_passed_over() -> None:
    """The others are measured; when none builds, the error is the last one's."""
    some = type("Some", (Tuned,), {"broken": frozenset({128}), "forward": Tuned.forward})
    none = type("NoneBuild", (Tuned,), {"broken": frozenset({64, 128, 256}), "forward": Tuned.forward})

    assert tuned(kernel_type=some)[0].threads == 256
    with pytest.raises(BuildError, match="256 threads do not build"):
        tuned(kernel_type=none)


def test_nothing_is_timed_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A remembered choice is taken; without one the kernel keeps its default."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(tuning, "device_name", lambda _: "H200")
    kernel = Tuned(ScaleCall(device=torch.device("cuda", 0), n=8))
    assert (tune(kernel, 8), kernel.threads, kernel.tried) == (None, 32, [])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    tune(kernel, 8)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    again = Tuned(ScaleCall(device=torch.device("cuda", 0), n=8))

    assert (tune(again, 8), again.threads, again.tried) == (1, 128, [])


def test_a_table_tunes_what_is_built_and_what_will_be() -> None:
    """After the request every entry is tuned, the ones that are there and the ones to come."""
    table = KernelTable(SCALE, {"tuned": Tuned})
    before = table.entry(ScaleCall(device=CPU, n=8))
    assert before(1) == "32 threads 1"
    table.request_tune()
    after = table.entry(ScaleCall(device=CPU, n=9))

    assert (before(1), after(1)) == ("128 threads 1", "128 threads 1")


def test_an_entry_built_while_tuning_is_asked_for_is_tuned() -> None:
    """A request that arrives while another thread builds reaches that entry."""

    class Asking(Tuned):
        def __init__(self, call: ScaleCall) -> None:
            super().__init__(call)
            table.request_tune()

        forward = Tuned.forward

    table = KernelTable(SCALE, {"asking": Asking})

    assert table.entry(ScaleCall(device=CPU, n=8))(1) == "128 threads 1"


def test_a_run_is_timed_by_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the best wall time of several runs counts, after one that warms up."""
    runs: list[None] = []
    clock = iter([0.0, 5.0, 10.0, 12.0, *([20.0, 30.0] * 18)])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))

    assert seconds_per_run(lambda: runs.append(None), CPU) == 2.0
    assert len(runs) == 21


def test_another_process_uses_the_choice(tmp_path: Path) -> None:
    """A choice made by one process is taken by the next, which tries nothing."""
    program = (
        "import tests.kernels.test_tuning as t\n"
        "t.tuning.seconds_per_run = t.measured\n"
        "kernel, chosen = t.tuned()\n"
        "print(kernel.threads, len(kernel.tried))\n"
    )
    environment = {**os.environ, ENVIRONMENT_VARIABLE: str(tmp_path / "shared")}
    printed = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert printed == ["128 3\n", "128 0\n"]
