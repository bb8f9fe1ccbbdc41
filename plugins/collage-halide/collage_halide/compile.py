"""A scheduled group as a shared library."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collage_core.contract import BuildContext, Host
from collage_core.errors import LoweringError
from collage_halide import hl
from collage_halide.machine import halide_target, linker
from collage_halide.pipeline import Group

ENTRY = "collage_kernel"
"""Name of the compiled function."""
_FAILS = "guaranteed to fail an assertion at runtime"
"""What Halide prints of a schedule that reads outside its inputs, and compiles all the same."""


def compiled(group: Group, build: BuildContext) -> bytes:
    """Compile a scheduled group to an object without Halide's runtime.

    Raises:
        halide.HalideError: If Halide does not compile it, or says that it cannot run.
    """
    for place in group.places:
        stride = 1
        for dimension, extent in enumerate(reversed(place.shape)):
            known = place.parameter.dim(dimension).set_stride(stride)
            if not place.extents_of_another:
                known.set_bounds(0, extent)
            stride *= extent
    pipeline = hl.Pipeline([stage.func for stage in group.outputs])
    arguments = [place.parameter for place in group.places if place.where != "out"]
    # StrictFloat: floats are computed as they are written; else sums are rearranged, and infinities taken for numbers.
    strict = ("StrictFloat",) if group.strict else ()
    target = halide_target(build.host, "NoRuntime", "NoBoundsQuery", *strict)
    path = build.scratch / "kernel.o"
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):  # where its warnings go
            pipeline.compile_to({hl.OutputFileType.object: str(path)}, arguments, ENTRY, target)
        if _FAILS in said.getvalue():
            raise hl.HalideError("it reads outside its inputs")
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


def standalone_runtime(host: Host) -> bytes:
    """Return Halide's runtime for a machine as a shared library: its thread pool and memory. Made once in a process."""
    return _standalone_runtime(str(halide_target(host)))


@functools.cache  # a second each
def _standalone_runtime(target: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runtime.o"
        hl.compile_standalone_runtime(str(path), hl.Target(target))
        content = path.read_bytes()
        return linked(content, Path(folder), soname=runtime_name(content))


def runtime_name(content: bytes) -> str:
    """Return the name under which kernels ask for a runtime: equal ones are loaded once in a process."""
    return f"collage-halide-{hashlib.sha256(content).hexdigest()[:16]}.so"


def linked(content: bytes, scratch: Path, *, soname: str = "", needs: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Link an object to a shared library.

    Args:
        content: The object.
        scratch: A folder to write in.
        soname: Name of the library.
        needs: Libraries that it needs, by name.

    Raises:
        LoweringError: If the linker fails.
    """
    command = linker()
    if command is None:
        raise LoweringError("there is no linker")
    source, target = scratch / "linked.o", scratch / "linked.so"
    source.write_bytes(content)
    others = []
    for name, library in needs:
        path = scratch / name
        path.write_bytes(library)
        others.append(str(path))
    naming = ["-soname", soname] if soname else []
    arguments: list[Any] = [*command, "-shared", "-s", "-z", "noexecstack", "-o", target, *naming, source, *others]
    try:
        done = subprocess.run([str(each) for each in arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoweringError(f"the linker fails: {done.stderr.strip()}")
        return target.read_bytes()
    finally:
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
