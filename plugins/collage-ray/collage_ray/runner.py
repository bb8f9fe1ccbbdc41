"""The runner: leases are actors, placed on the machine that a job is for."""

from __future__ import annotations

import contextlib
import socket
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from collage_core.contract import Job, JobDone, RunnerHost
from collage_core.errors import LostJobError, RunnerError
from collage_ray.lease import Lease
from collage_ray.leases import Leases

_MOST_JOBS = 256
_AUTO = "auto"
_REACH_S = 10.0


class RayRunner:
    """See `collage_core.contract.Runner`.

    Ray counts cores and devices of each node; which cores they are, and that no other cluster has them, the lease sees
    to on the machine.

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
            _check_reached(name, address)
            try:
                ray.init(address, namespace="collage", log_to_driver=False, configure_logging=False)
            except Exception as error:  # Ray's client and driver raise whatever gRPC, sockets and they themselves do
                raise RunnerError(name, f"Ray does not reach it: {_one_line(error)}") from error
        elif address != _AUTO and ray.get_runtime_context().gcs_address != address:
            raise RunnerError(name, "this process is connected to another Ray cluster: call ray.shutdown() first")
        self._threads = ThreadPoolExecutor(_MOST_JOBS, "ray-runner")
        self._leases: Leases[Any] = Leases(_kill)
        self._closed = False

    def hosts(self) -> Sequence[RunnerHost]:
        """See `Runner`; nodes without CPUs run no jobs."""
        return tuple(host for host, _ in self._nodes())

    def submit(self, job: Job, read: Callable[[str], bytes]) -> Future[JobDone]:
        """See `Runner`."""
        if self._closed:
            raise LostJobError(self._name, job.host, "the runner was closed")
        return self._threads.submit(self._run, job, read)

    def close(self) -> None:
        """See `Runner`."""
        if self._closed:
            return
        self._closed = True
        self._leases.close()  # what waits for their answers is told that they are dead
        self._threads.shutdown(cancel_futures=True)
        if not self._connected_before:
            ray.shutdown()

    def _nodes(self) -> list[tuple[RunnerHost, str]]:
        """Return the machines, and how Ray identifies their nodes.

        Raises:
            RunnerError: If Ray does not say.
        """
        try:
            nodes = [node for node in ray.nodes() if node["Alive"]]
        except Exception as error:  # as above
            raise RunnerError(self._name, f"Ray does not say what machines it has: {_one_line(error)}") from error
        found = []
        for node in sorted(nodes, key=lambda each: str(each["NodeID"])):
            cores, devices = (int(node["Resources"].get(what, 0)) for what in ("CPU", "GPU"))
            if cores:
                name = f"{node['NodeManagerHostname']}-{node['NodeID'][:8]}"
                host = RunnerHost(name=name, cores=cores, devices=devices, at_once=cores)
                found.append((host, str(node["NodeID"])))
        return found

    def _run(self, job: Job, read: Callable[[str], bytes]) -> JobDone:
        """Run a job, on a thread of its own.

        Raises:
            LostJobError: If the machine was lost, or what ran it there failed.
            RunnerError: If it is no job.
        """
        found = [(host, node) for host, node in self._nodes() if host.name == job.host]
        if not found:
            raise LostJobError(self._name, job.host, "it is not in the cluster")
        [(host, node)] = found
        leased = self._leases.take(host, job.cores, job.devices, lambda: _placed(node, job))
        if leased is None:
            why = "the runner was closed" if self._closed else f"it has not {job.cores} cores, {job.devices} devices"
            raise LostJobError(self._name, job.host, why)
        try:
            for blob in ray.get(leased.lease.missing.remote(list(job.blobs))):
                ray.get(leased.lease.put.remote(ray.put(read(blob))))  # not within the call: Ray warns of large ones
            answer = ray.get(leased.lease.run.remote(job.body))
        except RayTaskError as error:  # the lease itself is well: it has no room for a byte string, say
            self._leases.give_back(leased)
            raise LostJobError(self._name, job.host, _one_line(error)) from error
        except (RayError, ConnectionError) as error:
            self._leases.drop(leased)
            raise LostJobError(self._name, job.host, _one_line(error)) from error
        except BaseException:
            self._leases.drop(leased)
            raise
        self._leases.give_back(leased)
        if "refused" in answer:
            raise RunnerError(self._name, f"{job.host} takes no such job: {answer['refused']}")
        return JobDone(body=answer["body"], blobs=answer["blobs"])


def _check_reached(name: str, address: str) -> None:
    """See that something answers at an address: Ray itself tries for minutes.

    Raises:
        RunnerError: If nothing does, or it is no address.
    """
    if address == _AUTO:
        return
    place = urllib.parse.urlsplit(address if "://" in address else f"ray://{address}")
    try:
        if place.hostname is None or place.port is None:
            raise ValueError("write HOST:PORT")
        socket.create_connection((place.hostname, place.port), _REACH_S).close()
    except (OSError, ValueError) as error:
        raise RunnerError(name, f"Ray does not reach it: {error}") from error


def _placed(node: str, job: Job) -> Any:
    """Return a new lease on a node."""
    actor = ray.remote(Lease).options(
        num_cpus=job.cores,
        num_gpus=job.devices,
        max_restarts=0,
        max_task_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
    )
    return actor.remote(job.cores)


def _kill(lease: Any) -> None:
    with contextlib.suppress(Exception):  # it is dead already, or the cluster is gone
        ray.kill(lease)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
