"""Whatever a toolchain does, the driver gets an outcome."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage.measure.clocks.load_wait import Load, LoadWait
from collage.measure.clocks.processor_time import others_ran_ns, processors
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.wire.artifact_codec import artifact_of
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild, AskEvaluate, AskMeasure
from collage.measure.wire.outcomes import Built, Failed, Measured, Refused, Stage
from collage.measure.wire.wire_values import WireValue
from collage_core.contract import Protocol, Target, Unsupported
from tests.integration.measure.conftest import SIZE, SOURCE, add_function

Ask = Callable[..., AskMeasure]
BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


def test_a_candidate_that_is_right_is_timed(worker: Worker, ask: Ask) -> None:
    outcome = worker.measure(ask(""))

    assert isinstance(outcome, Measured)
    assert len(outcome.samples_us) >= 3
    assert outcome.variant == "first"
    assert outcome.error == 0.0
    assert outcome.repeatable


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("refuses", "k=30 is not a multiple of 8"), ("refuses-to-load", "needs AVX-1024")],
)
def test_a_refusal_is_an_outcome(worker: Worker, ask: Ask, mode: str, reason: str) -> None:
    outcome = worker.measure(ask(mode))

    assert isinstance(outcome, Refused)
    assert reason in outcome.reason


@pytest.mark.guards(
    "one wrong element, NaN, a shape off by one, an element never written, an input written, an output "
    "added to, the caller's memory replaced or aliased",
    cases=("accumulates-*",),
)
@pytest.mark.parametrize(
    ("mode", "stage", "reason"),
    [
        ("raises-in-lower", Stage.LOWER, "RuntimeError: no such pass"),
        ("lowering-error", Stage.LOWER, "out of registers"),
        ("raises-in-bind", Stage.BIND, "RuntimeError: misaligned"),
        ("raises-in-run", Stage.RUN, "RuntimeError: device lost"),
        ("wrong-element", Stage.CHECK, "wrong numbers: output 'y'"),
        ("nan", Stage.CHECK, "wrong numbers: output 'y'"),
        ("skips-an-element", Stage.CHECK, "wrong numbers: output 'y'"),
        ("writes-its-input", Stage.CHECK, "writes its input 'x'"),
        ("accumulates", Stage.CHECK, "wrong numbers when run again"),
    ],
)
def test_a_failure_says_where_and_why(worker: Worker, ask: Ask, mode: str, stage: Stage, reason: str) -> None:
    outcome = worker.measure(ask(mode))

    assert isinstance(outcome, Failed)
    assert outcome.stage is stage
    assert reason in outcome.reason


def test_a_short_kernel_is_called_often_before_it_is_judged_again(worker: Worker, ask: Ask) -> None:
    few = Protocol(warmup_runs=1, warmup_s=0, min_samples=1, max_samples=1, duration_s=0, min_sample_us=1e-3)
    outcome = worker.measure(dataclasses.replace(ask("wrong-from-call-100"), protocol=few))

    assert isinstance(outcome, Failed)
    assert "wrong numbers after many calls" in outcome.reason


@pytest.mark.parametrize("mode", ["wrong-from-call-100", "accumulates"])
def test_what_is_only_looked_at_is_not_judged_again(worker: Worker, ask: Ask, mode: str) -> None:
    few = Protocol(warmup_runs=1, warmup_s=0, min_samples=1, max_samples=1, duration_s=0, min_sample_us=1e-3)
    outcome = worker.measure(dataclasses.replace(ask(mode), protocol=few, as_used=False))

    assert isinstance(outcome, Measured)


def test_what_is_only_looked_at_runs_twice_if_all_runs_have_to_give_the_same(worker: Worker, ask: Ask) -> None:
    asked = ask("accumulates")
    build = dataclasses.replace(asked.build, deterministic=True)
    outcome = worker.measure(dataclasses.replace(asked, build=build, as_used=False))

    assert isinstance(outcome, Refused | Failed)
    assert outcome.reason.endswith("--deterministic asks for the same") or "when run again" in outcome.reason


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("segfaults", "crash: killed by SIGSEGV.*faulty_plugin.py"),
        ("exits", "crash: exited with status 7"),
        ("hangs", "deadline: it did not answer in time and was killed"),
    ],
)
def test_a_worker_that_dies_costs_its_candidate_only(worker: Worker, ask: Ask, mode: str, reason: str) -> None:
    outcome = worker.measure(ask(mode))

    assert isinstance(outcome, Failed)
    assert outcome.stage is Stage.RUN
    assert re.search(reason, outcome.reason)
    assert isinstance(worker.measure(ask("")), Measured)


@pytest.mark.parametrize("mode", ["prints", "reads-stdin", "forks"])
def test_a_library_cannot_disturb_the_conversation(worker: Worker, ask: Ask, mode: str) -> None:
    assert isinstance(worker.measure(ask(mode)), Measured)
    assert isinstance(worker.measure(ask("")), Measured)


@pytest.mark.skipif(others_ran_ns() is None, reason="the system does not say what others run")
def test_a_kernel_waits_for_other_load_if_it_is_told_to(worker: Worker, ask: Ask) -> None:
    """For less than a second in vain: there is more of it than there are processors."""
    timed = dataclasses.replace(ask("").protocol, duration_s=0.5, max_samples=1_000_000)
    # Linux may share processors out by session (`autogroup` in sched(7))
    burning = [subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True) for _ in range(3 * processors())]
    try:
        while LoadWait(1, 0.5)() is not Load.STAYING:  # until they have started
            pass
        outcomes = [
            worker.measure(dataclasses.replace(ask(""), protocol=timed, load_wait_s=load_wait_s))
            for load_wait_s in (0.0, 0.9)
        ]
    finally:
        for process in burning:
            process.kill()
            process.wait()

    assert [isinstance(outcome, Measured) and outcome.waited_s > 0 for outcome in outcomes] == [False, True]


def test_the_fastest_right_variant_is_kept(worker: Worker, ask: Ask) -> None:
    fast = worker.measure(ask("second-variant-fast"))
    wrong = worker.measure(ask("second-variant-wrong"))

    assert isinstance(fast, Measured)
    assert fast.variant == "second"
    assert isinstance(wrong, Measured)
    assert wrong.variant == "first"
    assert [reason.partition(":")[0] for reason in wrong.discarded] == ["second"]


def test_only_as_many_variants_are_tried_as_asked(worker: Worker, ask: Ask) -> None:
    outcome = worker.measure(ask("second-variant-fast", variants=1))

    assert isinstance(outcome, Measured)
    assert outcome.variant == "first"


def test_a_variant_that_hangs_does_not_cost_the_one_before(worker: Worker, ask: Ask) -> None:
    outcome = worker.measure(ask("second-variant-hangs"))

    assert isinstance(outcome, Measured)
    assert outcome.variant == "first"
    assert "deadline" in outcome.discarded[0]


def test_a_plugins_own_clock_is_used(worker: Worker, ask: Ask) -> None:
    outcome = worker.measure(ask("own-clock"))

    assert isinstance(outcome, Measured)
    assert outcome.samples_us == (42.0,)


def test_constants_an_artifact_asks_for_are_supplied(worker: Worker, ask: Ask) -> None:
    assert isinstance(worker.measure(ask("wants-constants")), Measured)


@pytest.mark.guards(
    "a plugin caches what is no bytes, too much, or under what is no text",
    "its `put` raises; the candidate is out, the worker goes on",
    area="toolchains",
)
@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("caches-none", "TypeError: what is cached is bytes, not NoneType"),
        ("caches-an-array", "TypeError: what is cached is bytes, not ndarray"),
        ("caches-under-a-number", "TypeError: a key is text, not int"),
        ("caches-under-no-text", "ValueError: a key is text, which '\\ud800' is not"),
        ("caches-too-much", "ValueError: what is cached is at most 536870912 bytes, not 536870913"),
    ],
)
def test_what_cannot_be_cached_is_the_plugins_failure(worker: Worker, ask: Ask, mode: str, reason: str) -> None:
    worker.targets(this_host())
    pid = worker.pid

    outcome = worker.measure(ask(mode))

    assert isinstance(outcome, Failed)
    assert outcome.stage is Stage.LOWER
    assert outcome.reason.endswith(reason)
    assert worker.pid == pid


@pytest.mark.guards("a plugin caches what is no bytes, too much, or under what is no text")
def test_a_blob_put_without_bytes_breaks_the_protocol(worker: Worker, ask: Ask) -> None:
    outcome = worker.measure(ask("puts-nothing"))

    assert isinstance(outcome, Failed)
    assert outcome.reason == "worker protocol: it put a blob without bytes"
    assert worker.pid is None


class Memory:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    def put(self, key: str, data: bytes) -> None:
        self.kept[key] = data


def test_the_blob_cache_is_the_drivers(store: BlobStore, ask: Ask) -> None:
    memory = Memory()
    worker = Worker(SOURCE, store, cache=lambda target: memory)
    try:
        first, second = worker.measure(ask("caches")), worker.measure(ask("caches"))
    finally:
        worker.close()

    assert isinstance(first, Measured)
    assert isinstance(second, Measured)
    assert first.variant == "cached"
    assert memory.kept == {"timings": b"\x01\x02"}


def test_a_worker_without_the_drivers_directory_is_sent_what_it_lacks(store: BlobStore, ask: Ask) -> None:
    worker = Worker(SOURCE, store, shared=False)
    request = ask("")
    try:
        measured = worker.measure(request)
        built = worker.build(_build(request))
    finally:
        worker.close()

    assert isinstance(measured, Measured)
    assert isinstance(built, Built)
    assert set(artifact_of(built.artifact, store).files) == {"w.bin"}


def _build(ask: AskMeasure, variant: str | None = None) -> AskBuild:
    return AskBuild(
        target=ask.target,
        function=ask.function,
        variant=variant,
        inputs=ask.inputs,
        expected=ask.expected,
        build=ask.build,
        tolerance=ask.tolerance,
        deadline_s=ask.deadline_s,
    )


def test_a_build_gives_the_variant_asked_for(worker: Worker, store: BlobStore, ask: Ask) -> None:
    any_variant = worker.build(_build(ask("second-variant-fast")))
    second = worker.build(_build(ask("second-variant-fast"), "second"))
    lost = worker.build(_build(ask("second-variant-fast"), "third"))

    assert isinstance(any_variant, Built)
    assert any_variant.artifact.variant == "first"
    assert isinstance(second, Built)
    assert artifact_of(second.artifact, store).metadata["mode"] == "fast"
    assert lost == Failed(stage=Stage.LOWER, reason="it no longer yields variant 'third'")


def test_a_built_artifact_is_checked(worker: Worker, ask: Ask) -> None:
    outcome = worker.build(_build(ask("nan")))

    assert isinstance(outcome, Failed)
    assert outcome.stage is Stage.CHECK


def test_an_output_without_expectation_is_not_compared(worker: Worker, ask: Ask) -> None:
    request = ask("wrong-element")
    unchecked = AskMeasure(**{name: getattr(request, name) for name in request.__slots__} | {"expected": (None,)})

    assert isinstance(worker.measure(unchecked), Measured)


def test_a_worker_evaluates_for_the_reference(worker: Worker, ask: Ask) -> None:
    request = ask("")
    values = worker.evaluate(
        AskEvaluate(
            target=request.target,
            function=request.function,
            inputs=request.inputs,
            build=request.build,
            deadline_s=3600.0,
        )
    )

    assert isinstance(values, list)
    np.testing.assert_array_equal(
        values[0], np.linspace(-1, 1, SIZE, dtype=np.float32) + np.arange(SIZE, dtype=np.float32)
    )


def test_targets_and_the_librarys_opinion(worker: Worker, store: BlobStore) -> None:
    targets = worker.targets(this_host())

    assert not isinstance(targets, Unsupported)
    assert targets[0].name == "faulty"
    assert worker.query(targets[0], FunctionEncoder(store).encode(add_function())) == {}


def test_a_target_of_another_toolchain_is_a_broken_contract(store: BlobStore) -> None:
    worker = Worker(
        PluginSource(toolchain="other", plugin=SOURCE.plugin, paths=SOURCE.paths),
        store,
    )
    try:
        answer = worker.targets(this_host())
    finally:
        worker.close()

    assert isinstance(answer, Unsupported)
    assert "not a target of 'other'" in answer.reason


def test_a_request_that_is_no_message_is_refused(store: BlobStore, ask: Ask) -> None:
    missing = WireValue(kind="tensor", dtype="FLOAT", shape=(SIZE,), blob="0" * 64)
    request = ask("")
    broken = AskMeasure(**{name: getattr(request, name) for name in request.__slots__} | {"inputs": (missing,)})
    worker = Worker(SOURCE, store)
    try:
        outcome = worker.measure(broken)
    finally:
        worker.close()

    assert isinstance(outcome, Failed)
    assert "0" * 64 in outcome.reason


def test_a_target_survives_the_wire(worker: Worker) -> None:
    assert Target(toolchain="faulty", fingerprint="faulty 1") in worker.targets(this_host())  # type: ignore[operator]
