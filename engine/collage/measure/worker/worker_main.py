"""The worker process of one toolchain.

Runs as `python -m collage.measure.worker.worker_main TOOLCHAIN --blobs DIR --scratch DIR`.

All use of a toolchain's library happens here. The protocol owns the real standard input and output; the library's own
output goes to standard error, whose last lines become part of the reason if this process dies.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

from collage.devices.providers import Providers
from collage.errors import WireError
from collage.measure.profiling.profile_trial import profiled
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.channel import Channel, prepare_process
from collage.measure.wire.codec import blobs_of
from collage.measure.wire.function_codec import decode_function
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
    Targets,
)
from collage.measure.wire.outcomes import Failed, Refused, Stage
from collage.measure.worker.series_trial import answered
from collage.measure.worker.trials import Trials
from collage_core.contract import Target, Unsupported
from collage_core.errors import CollageError, PluginError
from collage_core.registry import Toolchain, load_plugin, load_toolchain

_MAX_CACHED_BYTES = 512 << 20
"""Largest cached value, see `BlobCache.put`; SQLite takes rows of up to a billion bytes
(https://www.sqlite.org/limits.html).
"""


class WorkerMain:
    """Answers requests one at a time.

    Args:
        channel: To the driver.
        toolchain: The toolchain it answers for.
        store: Blobs; the driver's own directory, or one that starts empty.
        scratch: A directory of its own.
        providers: Who provides the machine's devices.
    """

    def __init__(
        self, channel: Channel, toolchain: Toolchain, store: BlobStore, scratch: Path, providers: Providers
    ) -> None:
        self._channel = channel
        self._toolchain = toolchain
        self._store = store
        self._request = 0
        self._asking = threading.Lock()
        self._libraries = providers.libraries
        self._trials = Trials.on_this_machine(toolchain, store, scratch, self._cache, self._say, providers)

    def serve(self) -> None:
        """Answer requests until the driver disconnects.

        Raises:
            WireError: If the driver sends an invalid message.
        """
        while (frame := self._channel.receive()) is not None:
            self._request = frame.id
            message = self._channel.codec.decode(frame)
            if isinstance(message, Need):
                self._send_blobs(message)
                continue
            self._fetch(message)
            answer = self._answer(message)
            if self._trials.lost:
                # every later call on it fails in this process: like a crash, it ends it, and is tried again in another
                _end(self._trials.lost)
            self._say(answer)
            gc.collect()  # models are full of cycles that hold sessions and weights; the driver is busy meanwhile
            if isinstance(message, AskTargets):
                gc.freeze()  # the library is loaded now, and stays: collecting need not look at it again

    def _answer(self, message: Message) -> Message:
        match message:
            case AskTargets():
                try:
                    targets = self._toolchain.targets(message.host)
                except CollageError as error:
                    return Failed(stage=Stage.TARGETS, reason=str(error))
                if isinstance(targets, Unsupported):
                    return Refused(reason=targets.reason, obstacle=targets.obstacle)
                return Targets(targets=targets, libraries=self._libraries.loaded())
            case AskQuery():
                try:
                    opinion = self._toolchain.query(message.target, decode_function(message.function, self._store))
                except CollageError as error:  # the driver names plugin and hook itself
                    reason = error.reason if isinstance(error, PluginError) else str(error)
                    return Failed(stage=Stage.QUERY, reason=reason)
                return Opinion(refusals=None if opinion is None else dict(opinion))
            case AskMeasure():
                return self._trials.measure(message)
            case AskBuild():
                return self._trials.build(message)
            case AskProfile():  # before what it is a kind of
                return profiled(self._trials, self._toolchain, message)
            case AskSeries():  # likewise
                return answered(self._trials, message)
            case AskEvaluate():
                return self._trials.evaluate(message)
            case AskDevice():
                return self._trials.time_device(message)
        raise WireError(f"{type(message).__name__} is no request")

    def _say(self, message: Message) -> None:
        self._channel.send(self._channel.codec.encode(message, self._request))

    def _fetch(self, message: Message) -> None:
        missing = tuple(dict.fromkeys(name for name in blobs_of(message) if name not in self._store))
        if not missing:
            return
        self._say(Need(blobs=missing))
        frame = self._channel.receive()
        if frame is None or not isinstance(self._channel.codec.decode(frame), Blobs):
            raise WireError("asked the driver for blobs and got something else")
        for name, data in frame.attachments.items():
            if self._store.put(data) != name:
                raise WireError(f"blob {name} arrived with other bytes")

    def _send_blobs(self, need: Need) -> None:
        blobs = {name: self._store.read(name) for name in need.blobs}
        self._channel.send(self._channel.codec.encode(Blobs(), self._request, blobs))

    def _cache(self, target: Target) -> _DriverCache:
        return _DriverCache(self, target)

    def ask_cache(self, message: CacheGet | CachePut, value: bytes | None) -> bytes | None:
        """Read a cached blob from the driver, or store one there; callable from any thread of the plugin."""
        attachments = {} if value is None else {"value": value}
        with self._asking:
            self._channel.send(self._channel.codec.encode(message, self._request, attachments))
            frame = self._channel.receive()
            if frame is None or not isinstance(self._channel.codec.decode(frame), CacheValue):
                raise WireError("asked the driver for a cached blob and got something else")
        return frame.attachments.get("value")


class _DriverCache:
    """A target's blob cache, kept by the driver."""

    def __init__(self, worker: WorkerMain, target: Target) -> None:
        self._worker = worker
        self._target = target

    def get(self, key: str) -> bytes | None:
        _check_key(key)
        return self._worker.ask_cache(CacheGet(target=self._target, key=key), None)

    def put(self, key: str, data: bytes) -> None:
        _check_cached(key, data)
        self._worker.ask_cache(CachePut(target=self._target, key=key), data)


def _check_cached(key: object, data: object) -> None:
    """Check a plugin's cache entry, so that an invalid one fails at the call site instead of in the driver."""
    _check_key(key)
    if not isinstance(data, bytes):
        raise TypeError(f"what is cached is bytes, not {type(data).__name__}")
    if len(data) > _MAX_CACHED_BYTES:
        raise ValueError(f"what is cached is at most {_MAX_CACHED_BYTES} bytes, not {len(data)}")


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise TypeError(f"a key is text, not {type(key).__name__}")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a key is text, which {key[:80]!r} is not") from None


def _end(reason: str) -> NoReturn:
    """Print a reason to stderr and end this process immediately.

    Normal shutdown would run the clean-up of objects that depend on the lost device, which would raise errors
    or hang.
    """
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)


def main() -> None:
    """Run the worker until the driver disconnects."""
    parser = argparse.ArgumentParser(prog="python -m collage.measure.worker.worker_main", description=__doc__)
    parser.add_argument("toolchain")
    parser.add_argument("--plugin", help="module:attribute of a plugin that is not installed")
    parser.add_argument("--path", action="append", default=[], help="folder to find that module in")
    parser.add_argument(
        "--devices", action="append", default=[], help="KIND=MODULE:ATTRIBUTE of a provider that is not installed"
    )
    parser.add_argument("--blobs", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--kernel-kills", action="store_true")
    options = parser.parse_args()
    prepare_process(kernel_kills=options.kernel_kills)
    channel = Channel.take_standard_streams()
    channel.die_with_driver()
    sys.path[:0] = options.path
    tempfile.tempdir = str(options.scratch)  # what a killed library leaves behind goes with the directory
    try:
        toolchain = (
            load_plugin(options.plugin, options.toolchain) if options.plugin else load_toolchain(options.toolchain)
        )
        references = [tuple(each.split("=", 1)) for each in options.devices]
        providers = Providers.discover().replaced((kind, reference) for kind, reference in references)
    except PluginError as error:
        channel.send(channel.codec.encode(Hello(toolchain=options.toolchain, failure=str(error)), 0))
        return
    channel.send(channel.codec.encode(Hello(toolchain=options.toolchain), 0))
    WorkerMain(channel, toolchain, BlobStore(options.blobs), options.scratch, providers).serve()


if __name__ == "__main__":
    main()
