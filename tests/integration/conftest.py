"""No time limit passes in these tests but for what says that it hangs, however slow the machine is."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from collage.commands import optimize
from collage.measure import budget
from collage.measure.driver.child import ChildProcess
from collage.measure.driver.client import Worker
from collage.prepare.steps import prepare
from collage.setup import workload
from collage_core import plugin_calls
from collage_core.contract import Host, Target, Unsupported
from tests.integration import short
from tests.integration.hanging import HANGS, HangClock


@pytest.fixture(scope="module", autouse=True)
def known_peaks() -> Iterator[None]:
    """The machine's peaks are known: a module that has them measured replaces this fixture."""
    with short.known_peaks():
        yield


@pytest.fixture(scope="module", autouse=True)
def few_rounds() -> Iterator[None]:
    """Whole plans run for a moment."""
    with short.few_rounds():
        yield


@pytest.fixture(scope="module", autouse=True)
def tried_models() -> Iterator[None]:
    """Models crash no code of ONNX's, so no process tries them first: a module of others replaces this fixture."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (workload, optimize):
            patch.setattr(module, "prepared_apart", lambda model, shapes, **_: prepare(model, input_shapes=shapes))
        yield


@pytest.fixture(scope="session", autouse=True)
def refusals_are_printed() -> Iterator[None]:
    """What a worker refuses of the whole machine is printed, which shows where a test fails for want of a toolchain."""
    targets = Worker.targets

    def printed(self: Worker, host: Host, deadline_s: float | None = None) -> tuple[Target, ...] | Unsupported:
        answer = targets(self, host, deadline_s)
        if isinstance(answer, Unsupported):
            print(f"{self.source.toolchain} has no targets: {answer.reason}", file=sys.stderr)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "targets", printed)
        yield


@pytest.fixture(scope="session", autouse=True)
def hang_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HangClock]:
    """Gives every worker and contender a clock that stands still, and this process's own limits an hour."""
    defaults = ChildProcess.__init__.__kwdefaults__
    assert defaults is not None
    clock = HangClock(tmp_path_factory.mktemp("hanging") / "hangs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HANGS, str(clock.note))
        patch.setitem(defaults, "clock", clock)
        patch.setattr(plugin_calls, "HOOK_LIMIT_S", 3600.0)
        patch.setattr(plugin_calls, "RULE_LIMIT_S", 3600.0)
        patch.setattr(budget, "_GRACE_S", 3600.0)
        yield clock


@pytest.fixture(scope="module", autouse=True)
def nothing_hangs_later(hang_clock: HangClock) -> Iterator[None]:
    """What said that it hangs was waited for in the same module: otherwise time passes for the next that is well."""
    yield
    owed = hang_clock.owed
    for _ in range(owed and 4):
        hang_clock()
    assert owed == 0, f"{owed} processes hang, and no deadline of theirs has passed"
