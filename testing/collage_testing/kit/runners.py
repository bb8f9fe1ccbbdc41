"""The contract of a runner, as tests: a runner keeps it if they pass.

Tests of a runner inherit them and say how it is opened:

    class TestMyRunner(RunnerConformance):
        @pytest.fixture
        def runner(self) -> Iterator[Runner]:
            with contextlib.closing(open_mine("mine://host")) as runner:
                yield runner

Its machines need nothing besides the engine: the toolchain `reference` measures.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir
import pytest
from onnx_ir.passes.common import ShapeInferencePass

from collage.fleet.jobs import AskDescription, AskInterference, Description, Interference, from_bytes, to_bytes
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import blobs_of
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Failed, Measured, Stage, Tolerance
from collage.measure.wire.values import encode_value
from collage.measure.worker.judge_version import JUDGE
from collage_core.contract import Job, Protocol, Runner, RunnerHost, Target
from collage_core.errors import LostJobError, RunnerError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph

_SOON_S = 300.0


def sum_request(target: Target, store: BlobStore, *, expected: float = 3.0) -> AskMeasure:
    """Return a request to measure an addition of two arrays.

    Args:
        target: Whose kernel.
        store: Receives what the request refers to.
        expected: What each element of the result is said to be; 3.0 is right.
    """
    model = onnx_ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[512] x, float[512] w) => (float[512] y) { y = Add(x, w) }"""
    )
    graph = DataflowGraph(ShapeInferencePass()(model).model)
    arrays = [np.full(512, value, np.float32) for value in (1.0, 2.0, expected)]
    x, w, y = (encode_value(array, store) for array in arrays)
    return AskMeasure(
        target=target,
        function=FunctionEncoder(store).encode(kernel_function(SubGraph(graph, graph.all_mask), "sum")),
        inputs=(x, w),
        expected=(y,),
        build=BuildSettings(threads=1),
        protocol=Protocol(warmup_s=0.0, duration_s=0.02, blocks=2),
        tolerance=Tolerance(),
        deadline_s=60.0,
    )


class RunnerConformance:
    """What each runner has to do; tests need the fixture `runner`."""

    @pytest.fixture
    def host(self, runner: Runner) -> RunnerHost:
        """Return the first machine."""
        return runner.hosts()[0]

    @pytest.fixture
    def target(self, runner: Runner, host: RunnerHost) -> Target:
        """Return the target of `reference` there."""
        [target] = described(runner, host).targets["reference"]
        return target

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        """Return a store for the byte strings of requests."""
        return BlobStore(tmp_path / "blobs")

    def test_it_is_a_runner_with_machines_of_different_names(self, runner: Runner) -> None:
        hosts = runner.hosts()

        assert isinstance(runner, Runner)
        assert hosts
        assert len({host.name for host in hosts}) == len(hosts)
        assert all(host.cores > 0 and host.devices >= 0 for host in hosts)

    def test_each_machine_says_what_it_is(self, runner: Runner) -> None:
        for host in runner.hosts():
            description = described(runner, host)

            assert description.host.physical_cores >= host.cores
            assert description.judge == JUDGE
            assert description.targets.keys() == {"reference"}
            assert description.unusable == {}

    def test_a_candidate_is_measured_and_what_it_refers_to_is_sent_once(
        self, runner: Runner, host: RunnerHost, target: Target, store: BlobStore
    ) -> None:
        ask = sum_request(target, store)
        sent: collections.Counter[str] = collections.Counter()

        def read(name: str) -> bytes:
            sent[name] += 1
            return store.read(name)

        first = outcome(runner, host, ask, read)
        second = outcome(runner, host, ask, read)

        assert isinstance(first, Measured)
        assert isinstance(second, Measured)
        assert min(first.samples_us) > 0
        assert sent == dict.fromkeys(blobs_of(ask), 1)

    def test_a_wrong_kernel_is_found_there(
        self, runner: Runner, host: RunnerHost, target: Target, store: BlobStore
    ) -> None:
        found = outcome(runner, host, sum_request(target, store, expected=4.0), store.read)

        assert isinstance(found, Failed)
        assert found.stage is Stage.CHECK

    def test_another_version_of_a_library_measures_nothing(
        self, runner: Runner, host: RunnerHost, target: Target, store: BlobStore
    ) -> None:
        other = Target(toolchain="reference", fingerprint="onnx 0.1", joins=target.joins)

        found = outcome(runner, host, sum_request(other, store), store.read)

        assert isinstance(found, Failed)
        assert found.stage is Stage.START
        assert "onnx 0.1 is not there" in found.reason

    def test_a_toolchain_that_is_not_there_measures_nothing(
        self, runner: Runner, host: RunnerHost, store: BlobStore
    ) -> None:
        found = outcome(runner, host, sum_request(Target(toolchain="nobody", fingerprint="1"), store), store.read)

        assert found == Failed(stage=Stage.START, reason="nobody is not installed there")

    @pytest.mark.parametrize("body", [b"", b"no job", b"CLG1\0\0\0\0"])
    def test_what_is_no_job_is_an_error_and_the_next_job_runs(
        self, runner: Runner, host: RunnerHost, body: bytes
    ) -> None:
        with pytest.raises(RunnerError):
            runner.submit(Job(host=host.name, cores=1, body=body), _none).result(_SOON_S)

        assert isinstance(described(runner, host), Description)

    def test_a_job_that_refers_to_what_nobody_has_is_an_error(
        self, runner: Runner, host: RunnerHost, target: Target, store: BlobStore
    ) -> None:
        ask = sum_request(target, store)

        with pytest.raises(RunnerError):
            runner.submit(Job(host=host.name, cores=1, body=to_bytes(ask)), _none).result(_SOON_S)

    def test_a_machine_that_is_not_there_loses_the_job(self, runner: Runner) -> None:
        body = to_bytes(AskDescription(toolchains=()))

        with pytest.raises(LostJobError):
            runner.submit(Job(host="nowhere", cores=1, body=body), _none).result(_SOON_S)

    def test_jobs_that_want_all_cores_of_a_machine_have_them_one_after_another(
        self, runner: Runner, host: RunnerHost
    ) -> None:
        body = to_bytes(AskInterference(threads=1, duration_s=0.3))
        jobs = [runner.submit(Job(host=host.name, cores=host.cores, body=body), _none) for _ in range(3)]

        spans = []
        for job in jobs:
            answer = from_bytes(job.result(_SOON_S).body)
            assert isinstance(answer, Interference)
            spans.append((answer.runs[0][0], sum(answer.runs[-1])))
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))

    def test_once_closed_it_runs_nothing(self, runner: Runner, host: RunnerHost) -> None:
        runner.close()
        runner.close()

        with pytest.raises((RunnerError, RuntimeError)):
            runner.submit(Job(host=host.name, cores=1, body=b""), _none).result(_SOON_S)


def described(runner: Runner, host: RunnerHost) -> Description:
    """Return what a machine says that it is, with the toolchain `reference`."""
    body = to_bytes(AskDescription(toolchains=("reference",)))
    answer = from_bytes(runner.submit(Job(host=host.name, cores=1, body=body), _none).result(_SOON_S).body)
    assert isinstance(answer, Description)
    return answer


def outcome(runner: Runner, host: RunnerHost, ask: AskMeasure, read: Callable[[str], bytes]) -> Measured | Failed:
    """Return what comes of measuring a candidate on a machine."""
    job = Job(host=host.name, cores=1, body=to_bytes(ask), blobs=tuple(dict.fromkeys(blobs_of(ask))))
    answer = from_bytes(runner.submit(job, read).result(_SOON_S).body)
    assert isinstance(answer, Measured | Failed)
    return answer


def _none(blob: str) -> bytes:
    raise KeyError(blob)
