"""A worker begins when it is asked, is replaced when it grew or died, and ends with its driver."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import collage
import collage_core
from collage.devices.this_host import this_host
from collage.measure.driver.client import PluginSource, Worker
from collage.measure.driver.memory import private_bytes
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Failed, Measured, Stage
from tests.integration.measure.conftest import SOURCE, add_ask
from tests.integration.measure.sourcing import faulty_target

Ask = Callable[..., AskMeasure]


def test_a_plugin_that_does_not_import_is_a_refusal_and_is_not_tried_again(store: BlobStore, tmp_path: Path) -> None:
    worker = Worker(PluginSource(toolchain="absent", plugin="no_such_module:plugin", paths=(str(tmp_path),)), store)

    refused = worker.targets(this_host())
    (tmp_path / "no_such_module.py").write_text("raise ImportError('another reason')\n", encoding="utf-8")

    assert "no_such_module" in getattr(refused, "reason", "")
    assert worker.pid is None
    assert worker.targets(this_host()) == refused


def test_a_worker_may_open_as_many_files_as_it_may_ask_for(store: BlobStore) -> None:
    """Each weight of a model is a file that stays open, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        with WorkerPool([SOURCE], store) as pool:
            pool.worker("faulty").targets(this_host())
            limits = psutil.Process(pool.worker("faulty").pid).rlimit(psutil.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert limits == (hard, hard)


def test_leaving_a_pool_kills_its_workers(store: BlobStore) -> None:
    with WorkerPool([SOURCE], store) as pool:
        pool.worker("faulty").targets(this_host())
        pid = pool.worker("faulty").pid
        assert pid is not None
        assert psutil.pid_exists(pid)

    assert not psutil.pid_exists(pid)


def test_a_worker_killed_from_outside_is_started_again(worker: Worker, ask: Ask) -> None:
    worker.targets(this_host())
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)

    outcome = worker.measure(ask(""))

    assert isinstance(outcome, Measured) or "SIGKILL" in outcome.reason
    assert isinstance(worker.measure(ask("")), Measured)


MIB = 1 << 20


@pytest.fixture(scope="module")
def spare_bytes(store: BlobStore) -> int:
    """What a worker holds after a request that leaks nothing."""
    worker = Worker(SOURCE, store)
    try:
        assert isinstance(worker.measure(add_ask(store, faulty_target())), Measured)
        assert worker.pid is not None
        return private_bytes(worker.pid)
    finally:
        worker.close()


@pytest.mark.guards(
    "a worker's memory grows from request to request", "the worker is replaced between two requests", area="toolchains"
)
def test_a_worker_that_grew_is_replaced_before_the_next_request(store: BlobStore, ask: Ask, spare_bytes: int) -> None:
    worker = Worker(SOURCE, store, memory_limit_bytes=spare_bytes + 140 * MIB)
    try:
        assert isinstance(worker.measure(ask("")), Measured)
        small = worker.measure(ask("hoards")), worker.pid  # 48 MiB more
        grown = worker.measure(ask("hoards")), worker.pid
        after = worker.measure(ask("")), worker.pid
    finally:
        worker.close()

    assert [isinstance(outcome, Measured) for outcome, _ in (small, grown, after)] == [True] * 3
    assert small[1] is not None
    assert grown[1] is None
    assert after[1] not in (None, small[1])


@pytest.mark.guards("a worker's memory grows without bound")
def test_a_worker_that_grows_without_bound_is_stopped_and_says_so(store: BlobStore, ask: Ask, spare_bytes: int) -> None:
    worker = Worker(SOURCE, store, memory_limit_bytes=spare_bytes + 300 * MIB)
    try:
        outcome = worker.measure(ask("leaks"))
        after = worker.measure(ask(""))
    finally:
        worker.close()

    assert isinstance(outcome, Failed)
    assert outcome.stage is Stage.RUN
    assert re.fullmatch(
        r"worker memory: it grew to \d+ MiB, more than the \d+ MiB it may, and was killed.*", outcome.reason
    )
    assert isinstance(after, Measured)


@pytest.mark.guards(
    "a worker keeps talking (asks for what is cached, for ever), leaking or not",
    "killed at its deadline, or its memory limit",
    area="toolchains",
)
@pytest.mark.parametrize(("mode", "kind"), [("talks-for-ever", "deadline"), ("leaks-and-talks", "memory")])
def test_a_worker_that_never_stops_talking_is_stopped(
    store: BlobStore, ask: Ask, spare_bytes: int, mode: str, kind: str
) -> None:
    worker = Worker(SOURCE, store, memory_limit_bytes=spare_bytes + 300 * MIB)
    try:
        worker.targets(this_host())
        outcome = worker.measure(ask(mode))
    finally:
        worker.close()

    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(f"worker {kind}: ")


def test_workers_that_were_begun_start_side_by_side_and_answer_when_asked(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "stillborn.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    dead = PluginSource(toolchain="stillborn", plugin="stillborn:plugin", paths=(str(tmp_path),))
    with WorkerPool([SOURCE, dead], store) as pool:
        pool.begin(pool.toolchains)
        begun = pool.worker("faulty").pid
        pool.begin(pool.toolchains)

        assert begun is not None
        pool.worker("faulty").targets(this_host())
        assert pool.worker("faulty").pid == begun
        for _ in range(2):  # the first start was one of the two it may fail
            refused = pool.worker("stillborn").targets(this_host())
            assert "exited with status 3" in getattr(refused, "reason", "")


def test_a_worker_that_does_not_start_twice_is_given_up(store: BlobStore, tmp_path: Path) -> None:
    (tmp_path / "stillborn.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    worker = Worker(PluginSource(toolchain="stillborn", plugin="stillborn:plugin", paths=(str(tmp_path),)), store)

    refused = worker.targets(this_host())
    (tmp_path / "stillborn.py").unlink()

    assert "exited with status 3" in getattr(refused, "reason", "")
    assert worker.targets(this_host()) == refused


@pytest.mark.guards(
    "the driver is killed while a worker idles, or while a library in it holds the interpreter's lock",
    "the worker ends",
    area="toolchains",
)
def test_a_worker_does_not_outlive_its_driver(store: BlobStore, tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from collage.devices.this_host import this_host
        from collage.measure.wire.blobs import BlobStore
        from collage.measure.driver.client import PluginSource, Worker
        from collage.measure.driver.worker_pool import WorkerPool
        source = PluginSource(toolchain="faulty", plugin={SOURCE.plugin!r}, paths={SOURCE.paths!r})
        worker = Worker(source, BlobStore(Path({str(store.directory)!r})))
        worker.targets(this_host())
        print(worker.pid, flush=True)
        time.sleep(600)
        """
    )
    roots = [str(Path(package.__path__[0]).parent) for package in (collage, collage_core)]
    # a killed driver leaves its temporary folders
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(roots)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment) as driver:
        assert driver.stdout is not None
        orphan = psutil.Process(int(driver.stdout.readline()))
        driver.kill()

    orphan.wait()
