"""Find nvcc and CUTLASS's headers, and compile with them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from collage_cuda import OLDEST_DRIVERS

HEADERS = "nvidia-cutlass"
"""Distribution that provides the headers; it is never imported."""

HEADERS_VERSION = "4.2.0.0"
"""Version of the headers the templates are written against."""

OLDEST_NVCC = (12, 0)
"""Oldest nvcc that supports `sm_90a`."""

FLAGS = (
    "-std=c++17", "-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-shared",
)  # fmt: skip
"""Flags that nvcc always gets.

Without `NDEBUG` CUTLASS asserts in device code. Symbols are hidden because GCC gives visible static members of
templates the binding `STB_GNU_UNIQUE`: one copy per process. CUTLASS 2.x keeps in them that it has raised a kernel's
limit of shared memory, so a second library of the same template would not raise it, and its kernel would not launch.
"""


class CompileError(Exception):
    """nvcc failed to make a library; the message quotes it."""


class Compiler(Protocol):
    """Compiles a source to a shared library."""

    @property
    def identity(self) -> str:
        """Versions of everything that affects the compiled code."""

    @property
    def major(self) -> int:
        """Major version of CUDA for which libraries are compiled."""

    def compiled(self, source: str, flags: tuple[str, ...], limit_s: float) -> bytes:
        """Compile a shared library.

        Args:
            source: CUDA C++ source.
            flags: Flags in addition to `FLAGS`.
            limit_s: Time limit in seconds.

        Raises:
            CompileError: If the compilation fails.
        """


class MissingToolError(Exception):
    """A tool is missing; the message names it and what to install.

    Args:
        reason: The message.
        version: Whether the tool is present in an unsuitable version.
    """

    def __init__(self, reason: str, *, version: bool = False) -> None:
        super().__init__(reason)
        self.version = version


class Nvcc:
    """The compiler of a toolkit or a wheel.

    Args:
        path: The executable.
        includes: Folders of headers.
        version: Version of nvcc.
        headers: Version of CUTLASS.
    """

    def __init__(self, path: Path, includes: tuple[Path, ...], version: str, headers: str) -> None:
        self._path = path
        self._includes = includes
        self._version = version
        self._headers = headers

    @property
    def identity(self) -> str:
        """See `Compiler.identity`."""
        return f"nvcc {self._version}, cutlass {self._headers}"

    @property
    def major(self) -> int:
        """See `Compiler.major`."""
        return int(self._version.partition(".")[0])

    def compiled(self, source: str, flags: tuple[str, ...], limit_s: float) -> bytes:
        """See `Compiler.compiled`. Source and library are in a folder that is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="collage-cutlass-") as folder:
            given, made = Path(folder, "kernel.cu"), Path(folder, "kernel.so")
            given.write_text(source, encoding="utf-8")
            includes = [f"-I{each}" for each in self._includes]
            command = [str(self._path), *FLAGS, *flags, *includes, "-o", str(made), str(given)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, cwd=folder)
            except subprocess.TimeoutExpired as error:
                raise CompileError(f"nvcc took longer than {limit_s:.0f} s") from error
            except OSError as error:
                raise CompileError(f"nvcc does not start: {error}") from error
            if done.returncode or not made.exists():
                lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
                raise CompileError(f"nvcc exits with {done.returncode}: {' '.join(lines[:3]) or 'no word'}")
            return made.read_bytes()


def find_compiler() -> Nvcc:
    """Find the compiler and the headers.

    Raises:
        MissingToolError: If one of them is missing.
    """
    try:
        headers = importlib.metadata.version(HEADERS)
    except importlib.metadata.PackageNotFoundError:
        headers = ""
    if headers != HEADERS_VERSION:
        have = (
            f"{HEADERS} is {headers}, which is not the one this knows" if headers else "CUTLASS's headers are missing"
        )
        raise MissingToolError(f"{have}; pip install --no-deps {HEADERS}=={HEADERS_VERSION}", version=bool(headers))
    folder = next(header_folders(), None)
    if folder is None:
        raise MissingToolError(
            f"{HEADERS} is installed without headers; pip install --no-deps {HEADERS}=={HEADERS_VERSION}"
        )
    path = next(_compilers(), None)
    if path is None:
        raise MissingToolError(
            "there is no nvcc: neither $CUDACXX, nor on the PATH, nor in $CUDA_HOME or /usr/local/cuda, nor from "
            "pip install nvidia-cuda-nvcc; install a CUDA toolkit of version 12.0 or newer"
        )
    version = _version_of(path)
    if tuple(map(int, version.split(".")[:2])) < OLDEST_NVCC:
        raise MissingToolError(f"nvcc {version} ({path}) is too old, it has to be 12.0 or newer", version=True)
    return Nvcc(path, (folder,), version, headers)


def header_folders() -> Iterator[Path]:
    """Yield the folders of the wheel's headers; nothing is imported."""
    found = importlib.util.find_spec("cutlass_library")
    for each in (found.submodule_search_locations or ()) if found else ():
        path = Path(each) / "source" / "include"
        if (path / "cutlass" / "cutlass.h").exists():
            yield path


def oldest_driver(major: int) -> int:
    """Return the oldest driver branch that runs the output of an nvcc of a major version.

    An unknown, newer major version needs at least the branch of the newest known one.
    """
    return OLDEST_DRIVERS.get(major, max(OLDEST_DRIVERS.values()))


def _compilers() -> Iterator[Path]:
    named = os.environ.get("CUDACXX")
    on_path = shutil.which(named or "nvcc")
    if on_path is not None:
        yield Path(on_path)
    homes = [Path(home) for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    found = importlib.util.find_spec("nvidia")
    homes += [Path(each) / "cu13" for each in ((found.submodule_search_locations or ()) if found else ())]
    for home in homes:
        path = home / "bin" / "nvcc"
        if path.exists():
            yield path


def _version_of(path: Path) -> str:
    try:
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingToolError(f"{path} does not start: {error}") from error
    version = re.search(r"V(\d+\.\d+\.\d+)", said)
    if version is None:
        raise MissingToolError(f"{path} --version says no version")
    return version[1]


def library_key(compiler: Compiler, source: str, flags: tuple[str, ...]) -> str:
    """Return the key under which a library is cached, derived from everything that determines its bytes.

    Args:
        compiler: Compiler of the library.
        source: Source of the library.
        flags: Flags in addition to `FLAGS`.
    """
    told = "\n".join([compiler.identity, *FLAGS, *flags, source])
    return f"library/{hashlib.sha256(told.encode()).hexdigest()}"
