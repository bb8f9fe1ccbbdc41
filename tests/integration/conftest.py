"""No time limit passes in these tests but for what says that it hangs, however slow the machine is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collage.measure.driver.child import ChildProcess
from collage.prepare import in_subprocess
from collage_core import plugin_calls
from tests.integration.hanging import HANGS, HangClock


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
        patch.setattr(in_subprocess, "_DEADLINE_S", 3600.0)
        yield clock
