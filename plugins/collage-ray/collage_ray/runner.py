"""The runner: leases are actors, placed on the machine that a job is for."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from collage_core.contract import Job, JobDone, RunnerHost
from collage_core.errors import LostJobError, RunnerError, UsageError
from collage_ray.lease import Lease

_MOST_JOBS = 256
_Key: TypeAlias = tuple[str, int, int]
"""Host, cores and devices of a lease."""


class RayRunner:
    """See `collage_core.contract.Runner`.

    Leases end with the runner, and give way where a job needs what idle ones have. Ray counts cores and devices of each
    node; which cores they are, and that no other cluster has them, the lease sees to on the machine.

    Args:
        name: What the user calls it: `ray://HOST:PORT` for Ray's client, `ray:ADDRESS` on a machine of the cluster.
        address: What Ray calls it.

    Raises:
        RunnerError: If Ray does not reach it.
    """

    def __init__(self, name: str, address: str) -> None:
        self._name = name
        self._connected_before = ray.is_initialized()
        if not self._connected_before:
            try:
                ray.init(
                    address, namespace="collage", log_to_driver=False, configure_logging=False, ignore_reinit_error=True
                )
            except Exception as error:  # Ray's client and its driver raise whatever gRPC, sockets and they themselves do
                raise RunnerError(name, f"Ray does not reach it: {_one_line(error)}") from error
        self._threads = ThreadPoolExecutor(_MOST_JOBS, "ray-runner")
        self._lock = threading.Lock()
        self._idle: dict[_Key, list[Any]] = {}
        self._all: list[Any] = []
        self._closed = False

    def hosts(self) -> Sequence[RunnerHost]:
        """See `Runner`; nodes without CPUs run no jobs."""
        return tuple(host for host, _ in self._nodes())

    def submit(self, job: Job, read: Callable[[str], bytes]) -> Future[JobDone]:
        """See `Runner`."""
        return self._threads.submit(self._run, job, read)

    def close(self) -> None:
        """See `Runner`."""
        with self._lock:
            self._closed = True
            leases, self._all = self._all, []
            self._idle.clear()
        for lease in leases:
            _kill(lease)
        self._threads.shutdown(wait=False, cancel_futures=True)
        if not self._connected_before:
            ray.shutdown()

    def _nodes(self) -> list[tuple[RunnerHost, str]]:
        """Return the machines, and how Ray identifies their nodes."""
        try:
            nodes = [node for node in ray.nodes() if node["Alive"]]
        except Exception as error:  # as above
            raise RunnerError(self._name, f"Ray does not say what machines it has: {_one_line(error)}") from error
        found = []
        for node in sorted(nodes, key=lambda each: each["NodeID"]):
            cores, devices = (int(node["Resources"].get(what, 0)) for what in ("CPU", "GPU"))
            if cores:
                name = f"{node['NodeManagerHostname']}-{node['NodeID'][:8]}"
                found.append((RunnerHost(name=name, cores=cores, devices=devices), node["NodeID"]))
        return found

    def _run(self, job: Job, read: Callable[[str], bytes]) -> JobDone:
        key = (job.host, job.cores, job.devices)
        lease = self._taken(key)
        try:
            for name in ray.get(lease.missing.remote(list(job.blobs))):
                ray.get(lease.put.remote(read(name)))
            answer = ray.get(lease.run.remote(job.body))
        except RayActorError as error:
            self._drop(lease)
            raise LostJobError(self._name, job.host, _one_line(error)) from error
        except RayError as error:
            self._drop(lease)
            raise RunnerError(self._name, f"a job on {job.host} failed: {_one_line(error)}") from error
        except BaseException:
            self._drop(lease)
            raise
        with self._lock:
            if not self._closed:
                self._idle.setdefault(key, []).append(lease)
        if "error" in answer:
            raise RunnerError(self._name, f"{job.host} takes no such job: {answer['error']}")
        return JobDone(body=answer["body"], blobs=answer["blobs"])

    def _taken(self, key: _Key) -> Any:
        """Return an idle lease, or a new one; Ray places it when the node has what it needs.

        Raises:
            LostJobError: If the node is not there.
        """
        host, cores, devices = key
        with self._lock:
            if self._closed:
                raise LostJobError(self._name, host, "the runner was closed")
            if self._idle.get(key):
                return self._idle[key].pop()
        nodes = {each.name: node for each, node in self._nodes()}
        if host not in nodes:
            raise LostJobError(self._name, host, "it is not in the cluster")
        with self._lock:
            others = [each for each in self._idle if each[0] == host and each != key]
            idle = [lease for each in others for lease in self._idle.pop(each)]
        for lease in idle:
            self._drop(lease)
        actor = ray.remote(Lease).options(
            num_cpus=cores,
            num_gpus=devices,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=nodes[host], soft=False),
        )
        lease = actor.remote(cores)
        with self._lock:
            self._all.append(lease)
        return lease

    def _drop(self, lease: Any) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._all.remove(lease)
        _kill(lease)


def open_ray(text: str) -> RayRunner:
    """Open the runner of a cluster; see `collage_core.contract.OpenRunner`.

    Args:
        text: `ray://HOST:PORT` for Ray's client; `ray:auto` or `ray:HOST:PORT` on a machine of the cluster.

    Raises:
        UsageError: If it is neither.
        RunnerError: If Ray does not reach it.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # jobs without a device hide none
    if text.startswith("ray://") and text != "ray://":
        return RayRunner(text, text)
    scheme, _, address = text.partition(":")
    if scheme != "ray" or not address or address.startswith("/"):
        raise UsageError(f"{text!r} names no Ray cluster: write ray://HOST:PORT, or ray:auto on one of its machines")
    return RayRunner(text, address)


def _kill(lease: Any) -> None:
    with contextlib.suppress(Exception):  # it is dead already, or the cluster is gone
        ray.kill(lease)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
