"""The driver's side of workers: requests with deadlines, whose outcome is a value or a `WorkerError`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from collage.errors import WireError, WorkerError
from collage.measure.driver.child import ChildProcess
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.codec import Codec, blobs_of
from collage.measure.wire.messages import (
    AskBuild,
    AskDevice,
    AskEvaluate,
    AskMeasure,
    AskProfile,
    AskQuery,
    AskSeries,
    AskTargets,
    Blobs,
    CacheGet,
    CachePut,
    CacheValue,
    Hello,
    Message,
    Need,
    Opinion,
    Progress,
    Targets,
)
from collage.measure.wire.outcomes import (
    Built,
    DeviceTimes,
    Evaluated,
    Failed,
    Measured,
    Outcome,
    Profiled,
    Refused,
    Series,
    Stage,
)
from collage.measure.wire.values import decode_value
from collage.measure.wire.wire_values import WireFunction
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import BlobCache, Host, Obstacle, Target, Unsupported
from collage_core.errors import PluginError

_START_S = 120.0
_STARTS = 2
"""Consecutive failed starts after which a worker is not started again."""
TARGETS_DEADLINE_S = 60.0
"""Seconds a toolchain has to list its targets."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PluginSource:
    """Where a worker finds its toolchain.

    Attributes:
        toolchain: Name of the toolchain, and of its entry point if it is installed.
        plugin: `module:attribute` of a plugin that is not installed; empty otherwise.
        paths: Folders to find that module in, and those of `devices`.
        devices: Kind and `module:attribute` of providers of devices that are not installed, or to take their place.
    """

    toolchain: str
    plugin: str = ""
    paths: tuple[str, ...] = ()
    devices: tuple[tuple[str, str], ...] = ()


class Worker:
    """One toolchain's worker process, started at the first request and restarted after it died.

    Args:
        source: The toolchain.
        store: Blobs that requests refer to.
        cache: Gives a target's blob cache, kept in the tuning database; by default nothing is kept.
        shared: Whether the process opens `store`'s directory itself. If not, blobs travel with the messages, as to
            another machine.
        memory_limit_bytes: Most memory its process may hold; `memory.limit_bytes` if None. A process that exceeds it
            is killed while it works; one that has grown half the way there since its first answer is replaced.
    """

    def __init__(
        self,
        source: PluginSource,
        store: BlobStore,
        *,
        cache: Callable[[Target], BlobCache] | None = None,
        shared: bool = True,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self.source = source
        self._memory_limit_bytes = memory_limit_bytes
        self._first_bytes: int | None = None
        self._failed_starts = 0
        self._store = store
        self._cache = cache or (lambda target: _NoCache())
        self._shared = shared
        self._codec = Codec()
        self._child: ChildProcess | None = None
        self._greeted = False
        self._scratch: TemporaryFolder | None = None
        self._requests = 0
        self._unusable: WorkerError | None = None
        self._progress = Progress(stage=Stage.START)
        self._libraries: tuple[str, ...] = ()

    @property
    def libraries(self) -> tuple[str, ...]:
        """Libraries of which a process has room for one, as its process had them when it said what its targets are."""
        return self._libraries

    @property
    def pid(self) -> int | None:
        """Process identifier while the worker runs."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def begin(self) -> None:
        """Start the worker's process if there is none, without waiting for it; the first request waits.

        Most of the start-up time is spent importing a library, which several workers can do in parallel.
        """
        if self._unusable is None and self._child is None:
            with contextlib.suppress(WorkerError):  # the first request tries again, and says why
                self._spawn()

    def targets(self, host: Host, deadline_s: float | None = None) -> tuple[Target, ...] | Unsupported:
        """Query the toolchain's targets on `host`; a failure to answer is returned as a refusal.

        A process that ends is started once more, as for a candidate's measurement: it costs the whole toolchain.
        """
        limit_s = TARGETS_DEADLINE_S if deadline_s is None else deadline_s
        for attempt in range(1, _STARTS + 1):
            try:
                answer = self._ask(AskTargets(host=host), limit_s, Targets, Refused, Failed)
                break
            except WorkerError as error:
                if attempt == _STARTS or error.kind == "deadline" or self._unusable is not None:
                    return Unsupported(error.reason if error.kind == "start" else _describe(error))
        if isinstance(answer, Targets):
            self._libraries = answer.libraries
            return answer.targets
        return Unsupported(answer.reason, answer.obstacle if isinstance(answer, Refused) else Obstacle.OTHER)

    def query(self, target: Target, function: WireFunction, deadline_s: float = 120.0) -> Mapping[str, str] | None:
        """Query the library's support for a whole model; return None if the library has no such query.

        Raises:
            PluginError: If the plugin fails to answer.
            WorkerError: If the process fails.
        """
        answer = self._ask(AskQuery(target=target, function=function), deadline_s, Opinion, Failed)
        if isinstance(answer, Failed):
            raise PluginError(self.source.toolchain, "collage_query", answer.reason)
        opinion: Opinion = answer
        return opinion.refusals

    def measure(self, ask: AskMeasure) -> Outcome:
        """Build, check and time a candidate.

        If the process hangs or dies after some variant was timed, that variant's result is returned.
        """
        try:
            outcome: Outcome = self._ask(ask, ask.deadline_s, Measured, Refused, Failed)
        except WorkerError as error:
            best = self._progress.best
            if best is not None:
                return dataclasses.replace(best, discarded=(*best.discarded, _describe(error)))
            return Failed(stage=self._progress.stage, reason=_describe(error))
        return outcome

    def build(self, ask: AskBuild) -> Built | Refused | Failed:
        """Build an artifact in the worker; `artifact_codec.artifact_of` decodes the answer."""
        try:
            outcome: Built | Refused | Failed = self._ask(ask, ask.deadline_s, Built, Refused, Failed)
        except WorkerError as error:
            return Failed(stage=self._progress.stage, reason=_describe(error))
        return outcome

    def evaluate(self, ask: AskEvaluate) -> list[Any] | Refused | Failed:
        """Run a function once and return its outputs."""
        try:
            answer: Evaluated | Refused | Failed = self._ask(ask, ask.deadline_s, Evaluated, Refused, Failed)
        except WorkerError as error:
            return Failed(stage=self._progress.stage, reason=_describe(error))
        if isinstance(answer, Evaluated):
            return [decode_value(value, self._store) for value in answer.outputs]
        return answer

    def series(self, ask: AskSeries) -> list[list[Any]] | Refused | Failed:
        """Run a function several times and return the outputs of each run."""
        try:
            answer: Series | Refused | Failed = self._ask(ask, ask.deadline_s, Series, Refused, Failed)
        except WorkerError as error:
            return Failed(stage=self._progress.stage, reason=_describe(error))
        if isinstance(answer, Series):
            return [[decode_value(value, self._store) for value in run] for run in answer.runs]
        return answer

    def profile(self, ask: AskProfile) -> Profiled | Refused | Failed:
        """Have the toolchain say where the time of a kernel goes."""
        try:
            answer: Profiled | Refused | Failed = self._ask(ask, ask.deadline_s, Profiled, Refused, Failed)
        except WorkerError as error:
            return Failed(stage=self._progress.stage, reason=_describe(error))
        return answer

    def device_times(self, device: str, deadline_s: float = 60.0) -> DeviceTimes | Failed:
        """Time copies, launches and waits on a device, in the process that times kernels there."""
        try:
            answer: DeviceTimes | Failed = self._ask(AskDevice(device=device), deadline_s, DeviceTimes, Failed)
        except WorkerError as error:
            return Failed(stage=Stage.MEASURE, reason=_describe(error))
        return answer

    def close(self) -> None:
        """Kill the process; the next request starts another."""
        if self._child is not None:
            self._child.kill()
            self._child = None
            self._greeted = False
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _ask(self, message: Message, deadline_s: float, *expected: type) -> Any:
        if self._unusable is not None:
            raise self._unusable
        try:
            child = self._started()
            self._requests += 1
            self._progress = Progress(stage=Stage.START)
            deadline = child.deadline(deadline_s)
            child.send(self._codec.encode(message, self._requests), deadline)
            answer = self._listen(child, deadline)
            if not isinstance(answer, expected):
                raise WireError(f"it answered with {type(answer).__name__}")
        except WireError as error:
            self.close()
            raise WorkerError(self.source.toolchain, "protocol", str(error)) from error
        except BaseException:  # an interrupted conversation cannot be taken up again
            self.close()
            raise
        if self._is_bloated(child):
            self.close()
        return answer

    def _is_bloated(self, child: ChildProcess) -> bool:
        """Return whether memory use is halfway to its limit: a leak is likely, and a new process starts small."""
        held = child.held_bytes
        if self._first_bytes is None:
            self._first_bytes = held
        return held > (self._first_bytes + child.limit_bytes) // 2

    def _started(self) -> ChildProcess:
        if self._greeted and self._child is not None and self._child.alive:
            return self._child
        try:
            child = self._start()
        except WorkerError as error:
            self._failed_starts += 1
            if self._failed_starts == _STARTS:
                self._unusable = error
            raise
        self._failed_starts = 0
        return child

    def _start(self) -> ChildProcess:
        child = self._child if self._child is not None and not self._greeted else self._spawn()
        hello = self._codec.decode(child.receive(child.deadline(_START_S)))
        if not isinstance(hello, Hello):
            raise WireError(f"its first words were {type(hello).__name__}")
        if hello.failure:  # trying again would fail again
            self._unusable = WorkerError(self.source.toolchain, "start", hello.failure)
            raise self._unusable
        self._greeted = True
        return child

    def _spawn(self) -> ChildProcess:
        self.close()
        self._first_bytes = None
        self._progress = Progress(stage=Stage.START)
        self._scratch = TemporaryFolder("worker")
        folder = self._scratch.path
        arguments = [self.source.toolchain, "--scratch", str(folder)]
        arguments += ["--blobs", str(self._store.directory if self._shared else folder / "blobs")]
        if self.source.plugin:
            arguments += ["--plugin", self.source.plugin]
        for path in self.source.paths:
            arguments += ["--path", path]
        for kind, reference in self.source.devices:
            arguments += ["--devices", f"{kind}={reference}"]
        self._child = ChildProcess(
            self.source.toolchain,
            "collage.measure.worker.worker_main",
            arguments,
            memory_limit_bytes=self._memory_limit_bytes,
        )
        return self._child

    def _listen(self, child: ChildProcess, deadline: float) -> Message:
        """Wait for the answer and serve the worker's blob and cache requests meanwhile."""
        while True:
            frame = child.receive(deadline)
            if frame.id != self._requests:
                raise WireError(f"it answered request {frame.id} instead of {self._requests}")
            message = self._codec.decode(frame)
            match message:
                case Progress():
                    # the stage is the latest, the best so far stays
                    self._progress = dataclasses.replace(message, best=message.best or self._progress.best)
                case Need():
                    self._say(child, Blobs(), deadline, {name: self._store.read(name) for name in message.blobs})
                case CacheGet():
                    value = self._cache(message.target).get(message.key)
                    self._say(child, CacheValue(), deadline, {} if value is None else {"value": value})
                case CachePut():
                    if "value" not in frame.attachments:
                        raise WireError("it put a blob without bytes")
                    self._cache(message.target).put(message.key, frame.attachments["value"])
                    self._say(child, CacheValue(), deadline)
                case _:
                    self._fetch(child, message, deadline)
                    return message

    def _fetch(self, child: ChildProcess, message: Message, deadline: float) -> None:
        missing = tuple(dict.fromkeys(name for name in blobs_of(message) if name not in self._store))
        if not missing:
            return
        self._say(child, Need(blobs=missing), deadline)
        frame = child.receive(deadline)
        if not isinstance(self._codec.decode(frame), Blobs) or set(frame.attachments) != set(missing):
            raise WireError("it was asked for blobs and said something else")
        for name, data in frame.attachments.items():
            if self._store.put(data) != name:
                raise WireError(f"blob {name} arrived with other bytes")

    def _say(
        self, child: ChildProcess, message: Message, deadline: float, attachments: Mapping[str, bytes] | None = None
    ) -> None:
        child.send(self._codec.encode(message, self._requests, attachments), deadline)


class _NoCache:
    """A blob cache that keeps nothing."""

    def get(self, key: str) -> bytes | None:
        return None

    def put(self, key: str, data: bytes) -> None:
        return None


def _describe(error: WorkerError) -> str:
    return f"worker {error.kind}: {error.reason}"
