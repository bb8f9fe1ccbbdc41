"""Run many jobs on machines of several kinds: each machine takes the next that is for its kind."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from collage.fleet.jobs import from_bytes, to_bytes
from collage_core.contract import Job, Runner, RunnerHost
from collage_core.error_text import one_line
from collage_core.errors import LostJobError, RunnerError

_LOSSES = 2
"""Machines that a job may take with it before it is given up."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job for any machine of a kind.

    Attributes:
        name: What it is about, for messages.
        kind: The kind of machine.
        ask: An instance of a class in `JOBS`.
        blobs: Byte strings that it refers to, by SHA-256: what reads them.
    """

    name: str
    kind: str
    ask: Any
    blobs: Mapping[str, Callable[[], bytes]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of a task.

    Attributes:
        task: The task.
        answer: The answer of the machine; None if there is none.
        blobs: Byte strings that it refers to.
        reason: Why there is none.
    """

    task: Task
    answer: Any = None
    blobs: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    reason: str = ""


def run_all(
    runner: Runner, tasks: Sequence[Task], hosts: Mapping[str, Sequence[RunnerHost]], tell: Callable[[str], None]
) -> Iterator[Done]:
    """Yield what comes of tasks, as they are done; leaving the iteration leaves those that run to the runner's end.

    Args:
        runner: Has the machines.
        tasks: The tasks.
        hosts: Machines of each kind, each for one job at a time, with all cores and devices that the runner has there.
        tell: Told where each begins, and what is lost; called on the threads of machines.
    """
    waiting: dict[str, queue.SimpleQueue[tuple[Task, int]]] = {kind: queue.SimpleQueue() for kind in hosts}
    left = {kind: sum(task.kind == kind for task in tasks) for kind in hosts}
    for task in tasks:
        waiting[task.kind].put((task, 0))
    found: queue.SimpleQueue[Done | str] = queue.SimpleQueue()
    ended = threading.Event()

    def serve(kind: str, host: RunnerHost) -> None:
        while not ended.is_set():
            try:
                task, losses = waiting[kind].get(timeout=0.2)
            except queue.Empty:
                continue
            tell(f"{task.name}: begins on {host.name}")
            try:
                found.put(_run(runner, task, host))
            except LostJobError as error:
                tell(f"{task.name}: {error}")
                if losses + 1 < _LOSSES:
                    waiting[kind].put((task, losses + 1))
                else:
                    found.put(Done(task=task, reason=str(error)))
                if not _is_there(runner, host):
                    found.put(kind)
                    return
            except Exception as error:  # whatever it is, it costs this job and not the thread
                found.put(Done(task=task, reason=one_line(error)))

    working = {kind: len(each) for kind, each in hosts.items()}
    for kind, each in hosts.items():
        for host in each:
            threading.Thread(target=serve, args=(kind, host), name=f"batch-{host.name}", daemon=True).start()
    try:
        while sum(left.values()):
            news = found.get()
            if isinstance(news, str):  # a kind of which a machine is gone
                working[news] -= 1
                while not working[news] and left[news]:
                    task, _ = waiting[news].get()
                    left[news] -= 1
                    yield Done(task=task, reason="no machine of this kind is left")
                continue
            left[news.task.kind] -= 1
            yield news
    finally:
        ended.set()


def _run(runner: Runner, task: Task, host: RunnerHost) -> Done:
    job = Job(host=host.name, cores=host.cores, devices=host.devices, body=to_bytes(task.ask), blobs=tuple(task.blobs))
    done = runner.submit(job, lambda name: task.blobs[name]()).result()
    return Done(task=task, answer=from_bytes(done.body), blobs=done.blobs)


def _is_there(runner: Runner, host: RunnerHost) -> bool:
    try:
        return host.name in {each.name for each in runner.hosts()}
    except RunnerError:
        return False
