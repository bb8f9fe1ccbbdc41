"""A toolchain for functions `y = x + w`, which misbehaves as its target's option `mode` says."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from collage.measure.wire.messages import CachePut
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Host,
    Kernel,
    KernelFunction,
    KernelProfile,
    Measurement,
    ProfiledPart,
    RunContext,
    Target,
    UnattributedTime,
    Unsupported,
)
from collage_core.errors import LoweringError
from collage_core.hookspecs import hookimpl

MODES = (
    "",
    "refuses",
    "refuses-to-load",
    "raises-in-lower",
    "lowering-error",
    "raises-in-bind",
    "raises-in-run",
    "wrong-element",
    "nan",
    "skips-an-element",
    "writes-its-input",
    "accumulates",
    "wrong-from-call-100",
    "hangs",
    "segfaults",
    "exits",
    "prints",
    "forks",
    "second-variant-hangs",
    "second-variant-wrong",
    "second-variant-fast",
    "own-clock",
    "caches",
    "caches-none",
    "caches-an-array",
    "caches-under-a-number",
    "caches-under-no-text",
    "caches-too-much",
    "puts-nothing",
    "wants-constants",
    "reads-stdin",
    "hoards",
    "leaks",
    "talks-for-ever",
    "leaks-and-talks",
    "dies-once",
    "profiler-refuses",
    "profiler-raises",
    "profiler-names-another",
    "profiler-hangs",
    "profiler-segfaults",
    "profiler-segfaults-once",
)

UNCACHEABLE: Mapping[str, tuple[Any, Any]] = {
    "caches-none": ("key", None),
    "caches-an-array": ("key", np.ones(8, np.float32)),
    "caches-under-a-number": (7, b"data"),
    "caches-under-no-text": ("\ud800", b"data"),
    "caches-too-much": ("key", bytes((512 << 20) + 1)),
}
"""What is put into the cache, by mode. Zeros take no memory until they are written."""

HOARD: list[np.ndarray[Any, Any]] = []
"""What the library does not give back."""


VARIANTS_US: Mapping[str, float] = {"second-variant-fast": 2.0, "fast": 1.0}
"""What each variant takes by the toolchain's own clock, by its kernel's mode."""


def says_it_hangs() -> None:
    """Lets the time limit of this process pass; see `tests.integration.hanging`."""
    with open(os.environ["HANGS"], "ab") as hangs:
        hangs.write(b"!")


def target(mode: str) -> Target:
    return Target(toolchain="faulty", options=(("mode", mode),) if mode else (), fingerprint="faulty 1")


class FaultyPlugin:
    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return [target(mode) for mode in MODES]

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Mapping[str, str]:
        return {node.name or "": "not an Add" for node in model.model.graph if node.op_type != "Add"}

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterable[Artifact] | Unsupported:
        mode = target.option("mode")
        if mode == "refuses":
            return Unsupported("k=30 is not a multiple of 8")
        if mode == "raises-in-lower":
            raise RuntimeError("no such pass")
        if mode == "finds-the-disk-full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(build.scratch / "engine"))
        if mode == "hoards":
            HOARD.append(np.ones(12 << 20, np.float32))
        if mode == "dies-once" and build.blobs.get("died") is None:
            build.blobs.put("died", b"once")
            os.abort()
        if mode in UNCACHEABLE:
            build.blobs.put(*UNCACHEABLE[mode])
        if mode == "puts-nothing":  # past the check, as a worker of another version might
            blobs: Any = build.blobs
            blobs._worker.ask_cache(CachePut(target=target, key="key"), None)
        if mode == "talks-for-ever":
            says_it_hangs()
        if mode == "leaks-and-talks":
            HOARD.append(np.ones(350 << 18, np.float32))  # 350 MiB
        while mode in ("talks-for-ever", "leaks-and-talks") and build.blobs.get("never there") is None:
            time.sleep(0.005)
        if mode == "prints":
            print("library banner", flush=True)
            os.write(1, b"CLG1 from a C library\n")
        if mode == "reads-stdin":
            assert sys.stdin.read() == ""
        if mode == "forks" and os.fork() == 0:
            return iter(())  # the child goes on as if it were the worker
        return self._variants(mode, function, build)

    def _variants(self, mode: str, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        if mode == "lowering-error":
            raise LoweringError("out of registers")
        weight = function.constant("w")
        files = {"w.bin": weight.tobytes()}
        if mode == "wants-constants":
            yield Artifact(files={}, constants={"weight": function.constants["w"]}, variant="bound")
            return
        if mode == "caches":
            assert build.blobs.get("timings") in (None, b"\x01\x02")
            build.blobs.put("timings", b"\x01\x02")
            yield Artifact(files=files, variant="cached" if build.blobs.get("timings") == b"\x01\x02" else "lost")
            return
        yield Artifact(files=files, metadata={"mode": mode, "part": (1, 2)}, variant="first")
        if mode.startswith("second-variant"):
            yield Artifact(files=files, metadata={"mode": mode.removeprefix("second-variant-")}, variant="second")

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        mode = str(artifact.metadata.get("mode", ""))
        if mode == "refuses-to-load":
            return Unsupported("needs AVX-1024")
        if "weight" in artifact.constants:
            return AddKernel(run.constants[artifact.constants["weight"]], mode)
        return AddKernel(np.frombuffer(artifact.files["w.bin"], np.float32), mode)

    @hookimpl
    def collage_measure(self, target: Target, call: AddCall) -> Measurement | None:
        if target.option("mode") == "own-clock":
            return Measurement(samples_us=(42.0,), warmup_runs=0)
        if call.mode in VARIANTS_US:
            return Measurement(samples_us=(VARIANTS_US[call.mode],), warmup_runs=0)
        return None

    @hookimpl
    def collage_profile(
        self,
        target: Target,
        function: KernelFunction,
        artifact: Artifact,
        run: RunContext,
        bind: Callable[[Kernel], BoundCall],
        runs: int,
    ) -> KernelProfile | Unsupported:
        mode = target.option("mode").removeprefix("profiler-")
        match mode:
            case "refuses":
                return Unsupported("the library is built without its profiler")
            case "raises":
                raise RuntimeError("no trace was written")
            case "hangs":
                says_it_hangs()
                time.sleep(3600)
            case "segfaults":
                ctypes.string_at(0)
            case "segfaults-once" if not os.path.exists(os.environ["DIED"]):
                open(os.environ["DIED"], "w").close()
                ctypes.string_at(0)
        call = bind(AddKernel(np.frombuffer(artifact.files["w.bin"], np.float32), ""))
        for _ in range(runs):
            call()
        names = tuple("another" if mode == "names-another" else str(node.name) for node in function.model.graph)
        return KernelProfile(
            parts=(ProfiledPart(nodes=names, time_us=9.0, conversion_us=2.0),),
            unattributed=(UnattributedTime(name=f"{artifact.variant} in {run.threads} threads", time_us=1.0),),
        )


class AddKernel:
    def __init__(self, weight: np.ndarray[Any, Any], mode: str) -> None:
        self._weight = weight
        self._mode = mode

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        [x], [y] = inputs, outputs
        mode = self._mode
        weight = self._weight.reshape(x.array.shape)
        calls = 0
        if mode == "raises-in-bind":
            raise RuntimeError("misaligned")

        def run() -> None:
            nonlocal calls
            calls += 1
            if mode == "skips-an-element":
                np.add(x.array[:-1], weight[:-1], out=y.array[:-1])
                return
            if mode == "accumulates":
                y.array[...] = x.array + weight + np.nan_to_num(y.array)
                return
            np.add(x.array, weight, out=y.array)
            match mode:
                case "raises-in-run":
                    raise RuntimeError("device lost")
                case "wrong-element":
                    y.array.reshape(-1)[-1] += 0.5
                case "wrong-from-call-100" if calls >= 100:
                    y.array[1] += 0.5
                case "nan":
                    y.array.reshape(-1)[0] = np.nan
                case "writes-its-input":
                    x.array[0] += 1
                case "hangs":
                    says_it_hangs()
                    time.sleep(3600)
                case "leaks":
                    HOARD.append(np.ones(350 << 18, np.float32))
                    time.sleep(3600)
                case "segfaults":
                    ctypes.string_at(0)
                case "exits":
                    os._exit(7)
                case "wrong":
                    y.array.fill(1.0)

        return AddCall(run, mode)


class AddCall:
    """A bound call that knows its kernel's mode."""

    def __init__(self, run: BoundCall, mode: str) -> None:
        self.mode = mode
        self._run = run

    def __call__(self) -> None:
        self._run()


plugin = FaultyPlugin()
