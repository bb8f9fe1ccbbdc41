"""What devices take: measured once per machine and device, kept, and assumed with a reason where that fails."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage.measure.wire.outcomes import DeviceTimes, Failed, Stage
from collage.setup.device_figures import (
    ASSUMED,
    DeviceFigures,
    MeasuredDevice,
    WorkerMeter,
    device_figures,
    warm_devices,
)
from collage.store.memory import MemoryStore
from collage_core.contract import Target, Unsupported

NAME = this_host().fingerprint_for("cuda:0")
TIMES = DeviceTimes(
    to_device=((1000, 3.0), (2000, 4.0), (8000, 10.0)),
    from_device=((1000, 5.0), (3000, 7.0)),
    within=((1000, 1.5), (2000, 2.0)),
    graphs=((1, 12.0), (4, 15.0), (16, 27.0)),
    wait_us=6.0,
    cache_bytes=1 << 20,
)


class Meter:
    def __init__(self, answer: DeviceTimes | Unsupported = TIMES) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def times(self, device: str) -> DeviceTimes | Unsupported:
        self.asked.append(device)
        return self.answer


def test_on_the_cpu_alone_nothing_is_asked() -> None:
    meter = Meter()

    assert device_figures(MemoryStore(), this_host(), ["cpu"], meter) == ()
    assert meter.asked == []


def test_a_device_is_measured_once_and_then_known() -> None:
    database, host, meter = MemoryStore(), this_host(), Meter()

    first = device_figures(database, host, ["cpu", "cuda:0"], meter)
    again = device_figures(database, host, ["cuda:0"], meter)

    assert meter.asked == ["cuda:0"]
    assert first == again == (DeviceFigures.of("cuda:0", TIMES),)


def test_figures_are_the_lines_through_what_was_measured() -> None:
    figures = DeviceFigures.of("cuda:0", TIMES)

    lines = figures.to_device, figures.from_device, figures.within
    assert [(line.latency_us, line.bytes_per_us) for line in lines] == [
        pytest.approx(pair) for pair in ((2.0, 1000.0), (4.0, 1000.0), (1.0, 2000.0))
    ]
    # a graph of no operations would take 11 us with the copy before it, and that by itself takes 3
    assert figures.start_us == pytest.approx(8.0, abs=1e-4)
    assert (figures.wait_us, figures.cache_bytes, figures.assumed, figures.said) == (6.0, 1 << 20, "", "")


@pytest.mark.parametrize(
    "known",
    [
        {"body": {}},
        {"version": MeasuredDevice.VERSION - 1},
        {"version": MeasuredDevice.VERSION + 1},
        {"body": {"times": {"to_device": "fast"}}},
        {"body": {"to": [1.0, 3.0]}},
    ],
)
def test_what_the_database_has_of_another_make_is_measured_anew(known: dict[str, Any]) -> None:
    database, host, meter = MemoryStore(), this_host(), Meter()
    device_figures(database, host, ["cuda:0"], Meter())
    stored = database.get_stored("device", NAME)
    assert stored is not None
    database.put_stored(dataclasses.replace(stored, **known))

    device_figures(database, host, ["cuda:0"], meter)

    assert meter.asked == ["cuda:0"]


@pytest.mark.parametrize("change", [{"wait_us": -1.0}, {"to_device": [[1000, 3.0]]}, {"graphs": [[1, 2.0]]}, {"x": 1}])
def test_what_makes_no_sense_is_measured_anew(change: dict[str, Any]) -> None:
    database, host, meter = MemoryStore(), this_host(), Meter()
    device_figures(database, host, ["cuda:0"], meter)
    stored = database.get_stored("device", NAME)
    assert stored is not None
    database.put_stored(dataclasses.replace(stored, body={"times": {**stored.body["times"], **change}}))

    device_figures(database, host, ["cuda:0"], meter)

    assert meter.asked == ["cuda:0", "cuda:0"]


def test_where_measuring_fails_figures_are_assumed_said_to_be_and_not_kept() -> None:
    database, host, meter = MemoryStore(), this_host(), Meter(Unsupported("it is in use"))

    [figures] = device_figures(database, host, ["cuda:0"], meter)

    assert (figures.to_device, figures.from_device) == (ASSUMED, ASSUMED)
    assert figures.said == ("copies to and from cuda:0 are not measured (it is in use): 10 us and 12 GB/s are assumed")
    assert database.document_keys() == ()
    device_figures(database, host, ["cuda:0"], meter)
    assert meter.asked == ["cuda:0"] * 2


class Workers:
    """A pool whose workers answer as told."""

    def __init__(self, answers: dict[str, DeviceTimes | Failed]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []

    def worker(self, toolchain: str) -> Any:
        workers = self

        class Worker:
            def device_times(self, device: str) -> DeviceTimes | Failed:
                workers.asked.append((toolchain, device))
                return workers.answers[toolchain]

        return Worker()


def test_another_toolchain_s_worker_is_asked_where_one_fails() -> None:
    def on(toolchain: str, device: str, **options: str) -> Target:
        return Target(toolchain=toolchain, device=device, fingerprint="1", options=tuple(options.items()))

    targets = [on("a", "cuda:0"), on("a", "cuda:0", x="1"), on("b", "cuda:0"), on("c", "cpu"), on("d", "cuda:1")]
    lost, late = Failed(stage=Stage.MEASURE, reason="it is lost"), Failed(stage=Stage.MEASURE, reason="it hangs")
    pool = Workers({"a": lost, "b": TIMES, "d": late})
    meter = WorkerMeter(pool, targets)  # type: ignore[arg-type]

    assert meter.times("cuda:0") == TIMES
    assert pool.asked == [("a", "cuda:0"), ("b", "cuda:0")]
    assert meter.times("cuda:1") == Unsupported("it hangs")
    assert meter.times("cuda:2") == Unsupported("no toolchain has a target there")


def test_weights_are_warm_where_the_whole_model_s_fit_into_the_cache() -> None:
    figures = [DeviceFigures.of("cuda:0", TIMES), DeviceFigures.unmeasured("cuda:1", "why")]

    assert warm_devices(figures, 1 << 20) == {"cuda:0"}
    assert warm_devices(figures, (1 << 20) + 1) == frozenset()
