"""The runner that is always there keeps the contract, over real workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from collage.fleet.runners import open_runner
from collage_core.contract import Runner
from collage_core.errors import UsageError
from collage_testing.kit.runners import RunnerConformance


class TestLocalRunner(RunnerConformance):
    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        with contextlib.closing(open_runner("local")) as runner:
            yield runner


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lokal", r"no runner 'lokal' is installed; there is local.*did you mean 'local'\?"),
        ("local:4", "the runner 'local' takes nothing else"),
        ("", "no runner '' is installed"),
    ],
)
def test_what_names_no_runner_is_misuse(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_runner(text)
