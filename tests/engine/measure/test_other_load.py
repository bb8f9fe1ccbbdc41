"""How many processors others had while a process wanted them."""

from __future__ import annotations

import dataclasses
import time
from typing import NamedTuple

import pytest

from collage.measure.clocks.other_load import OtherLoad
from collage.measure.clocks.processor_time import ProcessorTime, machine_ran_ns, others_ran_ns

SECOND = 10**9


@dataclasses.dataclass
class Machine:
    """What a system says, in seconds; None where it does not."""

    now: float = 0.0
    ran: float | None = 0.0
    waited: float = 0.0
    machine: float | None = 0.0

    def load(self, count: int = 2) -> OtherLoad:
        return OtherLoad(
            processor=self.processor,
            machine_ns=lambda: None if self.machine is None else round(self.machine * SECOND),
            count=count,
            clock_ns=lambda: round(self.now * SECOND),
        )

    def processor(self) -> ProcessorTime | None:
        if self.ran is None:
            return None
        return ProcessorTime(running_ns=round(self.ran * SECOND), waiting_ns=round(self.waited * SECOND))


@pytest.mark.parametrize(
    ("count", "ran", "waited", "machine", "others_had"),
    [
        (2, 2.0, 0.0, 2.0, 0.0),  # it had both
        (2, 1.0, 1.0, 2.0, 1.0),  # another had one of two
        (1, 0.5, 0.5, 1.0, 0.5),  # both wanted the only one
        (2, 1.0, 0.4, 1.0, 0.0),  # its threads met on one while the other was idle
        (64, 32.0, 0.64, 32.1, 0.1),  # threads that wait for each other to wake them
        (64, 2.0, 30.0, 2.0, 0.0),  # a container may have two of them
        (2, 1.0, 0.0, 2.0, 0.0),  # another had what it did not want
        (2, 2.0, 1.0, 1.9, 0.0),  # clocks that do not tick together
    ],
)
def test_others_had_what_it_waited_for_if_they_ran_as_long(
    count: int, ran: float, waited: float, machine: float, others_had: float
) -> None:
    seen = Machine(now=5.0, ran=7.0, waited=3.0, machine=100.0)
    load = seen.load(count)
    seen.now, seen.ran, seen.waited, seen.machine = 6.0, 7.0 + ran, 3.0 + waited, 100.0 + machine

    assert load.end() == pytest.approx(others_had)


@pytest.mark.parametrize(("ran", "machine"), [(None, 2.0), (1.0, None)])
def test_nothing_is_known_where_the_system_does_not_say(ran: float | None, machine: float | None) -> None:
    seen = Machine(ran=ran, machine=machine)
    load = seen.load()
    seen.now, seen.waited = 1.0, 1.0

    assert load.end() == 0.0


def test_a_stretch_begins_when_it_is_told_to() -> None:
    seen = Machine()
    load = seen.load()
    seen.now, seen.ran, seen.waited, seen.machine = 1.0, 1.0, 1.0, 2.0
    load.begin()
    seen.now, seen.ran, seen.machine = 2.0, 3.0, 4.0

    assert load.end() == 0.0


@pytest.mark.skipif(machine_ran_ns() is None, reason="the system does not say what it runs")
def test_this_machine_runs_what_this_process_does() -> None:
    before = machine_ran_ns()
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass
    after = machine_ran_ns()

    assert before is not None
    assert after is not None
    assert after - before >= 0.4e9  # known to 10 ms of each processor


@pytest.mark.parametrize(
    ("machine_ns", "own", "others_ns"),
    [
        (5 * SECOND, ProcessorTime(running_ns=2 * SECOND, waiting_ns=0), 3 * SECOND),
        (None, ProcessorTime(running_ns=SECOND, waiting_ns=0), None),
        (SECOND, None, None),
    ],
)
def test_what_this_process_runs_is_not_what_others_run(
    machine_ns: int | None, own: ProcessorTime | None, others_ns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.measure.clocks.processor_time.machine_ran_ns", lambda: machine_ns)
    monkeypatch.setattr("collage.measure.clocks.processor_time.processor_time", lambda: own)

    assert others_ran_ns() == others_ns


class Times(NamedTuple):
    user: float
    system: float
    idle: float
    guest: float
    steal: float


@pytest.mark.parametrize(("allowed", "ran_s"), [([0, 2], 104.0), ([1], 11.5), ([3], None)])
def test_only_processors_that_this_process_may_run_on_count(
    allowed: list[int], ran_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container's own view there may be fewer, with other numbers."""
    times = [Times(user=float(10**number), system=1.0, idle=7.0, guest=3.0, steal=0.5) for number in range(3)]
    monkeypatch.setattr("psutil.cpu_times", lambda *, percpu: times if percpu else [])
    monkeypatch.setattr("collage.measure.clocks.processor_time._ALLOWED", allowed)

    ran_ns = machine_ran_ns()

    assert ran_ns == (None if ran_s is None else round(ran_s * SECOND))
