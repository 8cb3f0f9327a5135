"""The pytest plugin: which ops, device and target to test; the matrix of each suite; and what was not run, and why.

Every pytest run loads this module: what imports torch is imported where it is used.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

    from tileops_testing.cases import Case
    from tileops_testing.matrix import MatrixRow
    from tileops_testing.suites import Check, Suite

__all__ = ["RunSuite"]

RunSuite = Callable[["Suite", "Case"], "tuple[Check, ...]"]
"""The type of the fixture ``run_suite``: run a suite on a case, keep its row of the matrix, return its checks."""

_ROW = "tileops-matrix-row"
_SHOWN = 40
"""So many names are listed when none was chosen."""
_MARKERS = (
    "op(*names): the ops that a test is about; --op and --family leave out tests about others",
    "op_cases(suite, ops=None, full_size=True): parametrize `op_case` with the cases of the selected ops",
)

_TORCH_WARNINGS = ("`torch.jit.script_method` is deprecated:DeprecationWarning",)
"""What inductor itself gives rise to; a project that turns warnings into errors does not mean it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--tileops-device``, ``--tileops-target``, ``--op`` and ``--family``."""
    group = parser.getgroup("tileops")
    group.addoption(
        "--tileops-device",
        default="auto",
        metavar="DEVICE",
        help="the device to test on: cpu, cuda, cuda:1, ...; auto is cuda where there is one, else cpu",
    )
    group.addoption("--tileops-target", default=None, metavar="TARGET", help="construct every op with this target")
    group.addoption("--op", action="append", default=[], metavar="OP", help="test this op only (repeatable)")
    group.addoption(
        "--family", action="append", default=[], metavar="FAMILY", help="test this family only (repeatable)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and the reporter, and refuse ops, families and devices that do not exist."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    for warning in _TORCH_WARNINGS:
        config.addinivalue_line("filterwarnings", f"ignore:{warning}")
    if config.getoption("--op") or config.getoption("--family"):
        _selected_names(config)
    if str(config.getoption("--tileops-device")) != "auto":
        _device(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reporter(config), "tileops-reporter")


def _device(config: pytest.Config) -> torch.device:
    from tileops_testing.devices import named_device
    from tileops_testing.errors import SelectionError

    asked = str(config.getoption("--tileops-device"))
    try:
        return named_device("--tileops-device", None if asked == "auto" else asked)
    except SelectionError as error:
        raise pytest.UsageError(str(error)) from None


def _selected_names(config: pytest.Config) -> frozenset[str]:
    from tileops_testing.catalog import implemented_ops
    from tileops_testing.errors import SelectionError

    try:
        return frozenset(op.__name__ for op in implemented_ops(config.getoption("--op"), config.getoption("--family")))
    except SelectionError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that take ``op_case`` with the cases of the selected ops."""
    if "op_case" not in metafunc.fixturenames:
        return
    from tileops_testing.catalog import op_class
    from tileops_testing.workload_cases import cases_of, stem_of

    marker = metafunc.definition.get_closest_marker("op_cases")
    suite, ops = (*marker.args, None, None)[:2] if marker is not None else (None, None)
    full_size = marker is None or marker.kwargs.get("full_size", True)
    small = not full_size or _device(metafunc.config).type == "cpu"
    names = sorted(_selected_names(metafunc.config) & (frozenset(ops) if ops else _selected_names(metafunc.config)))
    parameters = [
        pytest.param(case, id="-".join(filter(None, (stem_of(name), case.label, suite))), marks=pytest.mark.op(name))
        for name in names
        for case in cases_of(op_class(name), small=small)
    ]
    metafunc.parametrize("op_case", parameters)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--op`` or ``--family``, keep the tests marked with a selected op."""
    if not (config.getoption("--op") or config.getoption("--family")):
        return
    selected = _selected_names(config)
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        names = {name for marker in item.iter_markers("op") for name in marker.args}
        (kept if names & selected else dropped).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=dropped)


@pytest.fixture(scope="session")
def tileops_device(request: pytest.FixtureRequest) -> torch.device:
    """The device to test on."""
    return _device(request.config)


@pytest.fixture(scope="session")
def tileops_target(request: pytest.FixtureRequest) -> str | None:
    """The target to construct every op with, None for the usual selection."""
    target: str | None = request.config.getoption("--tileops-target")
    return target


@pytest.fixture
def run_suite(
    tileops_device: torch.device,
    tileops_target: str | None,
    record_property: Callable[[str, object], None],
) -> RunSuite:
    """Run a suite on a case: a skip with the reason where it cannot run, `CheckFailedError` where the op is wrong."""
    from tileops_testing.errors import CheckFailedError
    from tileops_testing.matrix import MatrixRow

    def run(suite: Suite, case: Case) -> tuple[Check, ...]:
        outcome, reason, started = "failed", "an error, which the test's report shows", time.monotonic()
        checks: tuple[Check, ...] = ()
        try:
            unavailable = suite.unavailable(case, tileops_device)
            if unavailable is not None:
                outcome, reason = "not run", unavailable
                pytest.skip(reason)
            checks = suite.run(case, device=tileops_device, target=tileops_target)
            outcome, reason = "passed", ""
        except AssertionError as error:
            reason = str(error)
            checks = error.checks if isinstance(error, CheckFailedError) else ()
            raise
        finally:
            row = MatrixRow(
                suite=suite.name,
                device=str(tileops_device),
                op=case.op_name,
                case=case.label,
                outcome=outcome,
                reason=reason,
                checks=[{"name": c.name, "outcome": c.outcome, "detail": c.detail} for c in checks],
                seconds=round(time.monotonic() - started, 3),
            )
            record_property(_ROW, row.to_json())
        return checks

    return run


class _Reporter:
    """Gathers matrix rows and skips from the reports, of this process or of xdist's workers, and prints them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._rows: list[MatrixRow] = []
        self._deselected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        from tileops_testing.matrix import MatrixRow, sources_digest

        if report.when != "call":
            return
        sources_digest()  # of the sources that are being tested, not of an edit made meanwhile
        self._rows += [MatrixRow.from_json(str(value)) for name, value in report.user_properties if name == _ROW]

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Remember what could have been chosen; xdist's workers keep theirs to themselves."""
        self._deselected += [item.nodeid for item in items]

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode
    ) -> None:
        """Print each suite's table and where its JSON lies, then every test that was not run, and the reason."""
        from tileops_testing import matrix

        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            for line in _nothing_chosen(self._config, self._deselected):
                terminalreporter.write_line(line)
        for suite, device, rows in _by_suite(self._rows):
            path = matrix.write(self._config.rootpath, suite, device, rows)
            terminalreporter.write_line("")
            terminalreporter.write(matrix.render(suite, device, rows))
            terminalreporter.write_line(f"written to {path.relative_to(self._config.rootpath)}")
        reasons = _skip_reasons(terminalreporter.stats.get("skipped", []))
        if reasons:
            terminalreporter.section("not run")
            for reason, tests in reasons:
                terminalreporter.write_line(f"{len(tests)} tests: {reason}")
                for test in tests[:10]:
                    terminalreporter.write_line(f"  {test}")
                if len(tests) > 10:
                    terminalreporter.write_line(f"  and {len(tests) - 10} more")
        message = matrix.not_run_message(self._rows)
        if message is not None:
            terminalreporter.write_line(f"NOT RUN: {message}")


def _nothing_chosen(config: pytest.Config, deselected: Sequence[str]) -> Iterator[str]:
    """Yield why no test ran: the options that chose none, and what they could have chosen."""
    options = [("--op", config.getoption("--op")), ("--family", config.getoption("--family"))]
    options += [("-k", [config.getoption("keyword")])]
    given = " ".join(f"{name} {value!r}" for name, values in options for value in values if value)
    marks = config.getoption("markexpr")
    yield f"NOTHING RUN: {given or (f'-m {marks!r}' if marks else 'the arguments')} chose no test"
    if deselected:
        shown = [nodeid.rpartition("::")[2] for nodeid in deselected[:_SHOWN]]
        yield f"{len(deselected)} could be chosen, by any part of their names:"
        yield from (f"  {name}" for name in shown)
        if len(deselected) > _SHOWN:
            yield f"  and {len(deselected) - _SHOWN} more, which --collect-only lists without the option"


def _by_suite(rows: Sequence[MatrixRow]) -> Iterator[tuple[str, str, list[MatrixRow]]]:
    for suite, device in sorted({(row.suite, row.device) for row in rows}):
        yield suite, device, [row for row in rows if (row.suite, row.device) == (suite, device)]


def _skip_reasons(reports: Sequence[pytest.TestReport]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for report in reports:
        place = report.longrepr
        reason = str(place[2] if isinstance(place, tuple) else place).removeprefix("Skipped: ")
        found.setdefault(reason, []).append(report.nodeid)
    return sorted(found.items())
