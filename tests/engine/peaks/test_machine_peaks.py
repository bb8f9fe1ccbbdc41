"""Peaks of the machine: measured once, kept, and missing with a reason where measuring fails."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

from collage.devices.this_host import this_host
from collage.peaks import machine_peaks
from collage.peaks.caches import caches
from collage.peaks.machine_peaks import (
    ARITHMETIC,
    MEMORY,
    LevelSpeed,
    MachinePeaks,
    ProductSpeed,
    document_name,
    known_peaks,
    run_numpy,
    side_of,
)
from collage.peaks.numpy_main import NumpyAnswer, NumpyRequest
from collage.store.memory import MemoryStore
from collage_core.contract import Unsupported

HOST = this_host()
THREADS = 2


class Runs:
    """Answers in place of a process: every level and product at the same speed."""

    def __init__(self, speed: float = 100.0, refusal: str = "") -> None:
        self.speed, self.refusal = speed, refusal
        self.requests: list[NumpyRequest] = []

    def __call__(self, request: NumpyRequest) -> NumpyAnswer | Unsupported:
        self.requests.append(request)
        if self.refusal:
            return Unsupported(self.refusal)
        return NumpyAnswer(
            bytes_per_us=(self.speed,) * len(request.levels),
            products_us=tuple(2.0 * side**3 / self.speed for _, side in request.products),
        )


def test_peaks_are_measured_once_and_then_known() -> None:
    database, run = MemoryStore(), Runs()

    first = known_peaks(database, HOST, THREADS, {"float32"}, run)
    again = known_peaks(database, HOST, THREADS, {"float32"}, run)

    peaks, missing = first
    assert first == again
    assert len(run.requests) == 1
    assert missing == ""
    assert peaks.products == (ProductSpeed(arithmetic="float32", flops_per_us=100.0, by="numpy"),)
    assert [level.name for level in peaks.levels] == [f"L{cache.level}" for cache in caches(THREADS)] + [MEMORY]


def test_another_arithmetic_is_measured_without_the_memory_again() -> None:
    database, run = MemoryStore(), Runs()
    known_peaks(database, HOST, THREADS, {"float32"}, run)

    peaks, _ = known_peaks(database, HOST, THREADS, {"float32", "float64", "int8"}, run)

    assert run.requests[1] == NumpyRequest(threads=THREADS, products=(("float64", side_of(THREADS)),))
    assert [each.arithmetic for each in peaks.products] == ["float32", "float64"]


def test_another_number_of_threads_is_another_machine() -> None:
    database, run = MemoryStore(), Runs()

    for threads in (1, 2):
        known_peaks(database, HOST, threads, {"float32"}, run)

    assert [request.threads for request in run.requests] == [1, 2]


def test_measuring_again_keeps_the_faster_of_everything() -> None:
    database = MemoryStore()
    known_peaks(database, HOST, THREADS, {"float32"}, Runs(100.0))

    slower, _ = known_peaks(database, HOST, THREADS, {"float32"}, Runs(50.0), again=(ARITHMETIC, MEMORY))
    faster, _ = known_peaks(database, HOST, THREADS, {"float32"}, Runs(200.0), again=(ARITHMETIC, MEMORY))

    assert {slower.products[0].flops_per_us, *(level.bytes_per_us for level in slower.levels)} == {100.0}
    assert {faster.products[0].flops_per_us, *(level.bytes_per_us for level in faster.levels)} == {200.0}


@pytest.mark.parametrize("doubted", [ARITHMETIC, MEMORY])
def test_only_what_is_in_doubt_is_measured_again(doubted: str) -> None:
    database, run = MemoryStore(), Runs()
    known_peaks(database, HOST, THREADS, {"float32"}, run)

    known_peaks(database, HOST, THREADS, {"float32"}, run, again=(doubted,))

    assert bool(run.requests[1].products) == (doubted == ARITHMETIC)
    assert bool(run.requests[1].levels) == (doubted == MEMORY)


def test_a_failure_is_a_reason_and_is_tried_again_the_next_time() -> None:
    database, failing = MemoryStore(), Runs(refusal="it took too long")

    assert known_peaks(database, HOST, THREADS, {"float32"}, failing) == (MachinePeaks(), "it took too long")
    assert database.document_keys() == ()
    known_peaks(database, HOST, THREADS, {"float32"}, failing)
    assert len(failing.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"levels": "fast"},
        {"products": [{"arithmetic": "float32", "flops_per_us": -1.0, "by": "numpy"}]},
        {"levels": [{"name": "L1", "holds_bytes": 1, "bytes_per_us": 0.0}]},
        {"unheard": 1},
    ],
)
def test_what_the_database_has_of_another_make_is_measured_anew(body: dict[str, Any]) -> None:
    database, run = MemoryStore(), Runs()
    known_peaks(database, HOST, THREADS, {"float32"}, run)
    stored = database.get_stored("peaks", document_name(HOST, THREADS))
    assert stored is not None
    database.put_stored(dataclasses.replace(stored, body={**stored.body, **body}))

    known_peaks(database, HOST, THREADS, {"float32"}, run)

    assert len(run.requests) == 2


def test_bytes_belong_to_the_nearest_level_that_holds_them_all() -> None:
    levels = tuple(
        LevelSpeed(name=name, holds_bytes=holds, bytes_per_us=1.0)
        for name, holds in (("L1", 100), ("L2", 1000), (MEMORY, 0))
    )
    peaks = MachinePeaks(levels=levels)

    found = [level.name for size in (0, 100, 101, 1000, 1001, 10**12) if (level := peaks.level_of(size)) is not None]

    assert found == ["L1", "L1", "L2", "L2", MEMORY, MEMORY]
    assert MachinePeaks().level_of(1) is None


def test_working_sets_are_half_of_what_a_level_holds_and_memory_s_is_larger_than_every_cache() -> None:
    run = Runs()
    known_peaks(MemoryStore(), HOST, THREADS, set(), run)

    [request] = run.requests
    *cached, (memory, own) = request.levels
    for cache, (working, own_cache) in zip(caches(THREADS), cached, strict=True):
        assert working == (cache.size_bytes if own_cache else cache.holds_bytes) // 2
    assert not own
    assert memory > max(cache.holds_bytes for cache in caches(THREADS)) or memory >= HOST.memory_bytes // 8


def test_numpy_measures_in_a_process_of_its_own() -> None:
    answer = run_numpy(
        NumpyRequest(threads=2, levels=((16 << 10, True), (1 << 20, False)), products=(("float32", 64),))
    )

    assert isinstance(answer, NumpyAnswer)
    assert len(answer.bytes_per_us) == 2
    assert len(answer.products_us) == 1
    assert all(each > 0 for each in (*answer.bytes_per_us, *answer.products_us))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("-c", "import sys; sys.exit('no NumPy here')"), "ended with 1 and said no NumPy here"),
        (("-c", "print('fast')"), "did not answer"),
        (("-c", 'print(\'{"products_us": [1.0], "x": 1}\')'), "did not answer"),
        (("-c", "import os; os.abort()"), "ended with -6"),
    ],
)
def test_a_process_that_fails_is_a_reason(command: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_peaks, "own_command", lambda *_: [sys.executable, *command])

    answer = run_numpy(NumpyRequest(threads=1))

    assert isinstance(answer, Unsupported)
    assert said in answer.reason
