"""Find the frontend and cuDNN."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import sys
import threading
from typing import Any

from collage_cuda import PrimaryContexts, wheel_driver
from collage_cudnn.library import Cudnn

FRONTEND = "1.26.0"
"""Version of nvidia-cudnn-frontend this code is written against; 1.32 needs the driver even to validate."""

OLDEST_VERSION = 91100
"""Oldest supported cuDNN, encoded as by `cudnnGetVersion`.

9.11 has the attention rules that the frontend's version follows.
"""


def oldest_driver() -> int | None:
    """Return the oldest branch of NVIDIA's driver that runs the installed cuDNN wheel; None if unknown."""
    return wheel_driver("nvidia-cudnn-cu{}")  # which needs the driver of its CUDA (cuDNN's support matrix)


def frontend_version() -> str | None:
    """Return the version of the installed frontend, or None; nothing is imported."""
    if importlib.util.find_spec("cudnn") is None:
        return None
    try:
        return importlib.metadata.version("nvidia-cudnn-frontend")
    except importlib.metadata.PackageNotFoundError:
        return None


def open_library() -> Cudnn:
    """Import the frontend, which loads the library: from a wheel, else from the system loader's search path.

    Raises:
        OSError: If there is no frontend, or no library.
    """
    try:
        frontend = _imported()
        frontend.backend_version()
    except ImportError as error:
        raise OSError(f"nvidia-cudnn-frontend cannot be imported: {error}") from error
    except RuntimeError as error:  # it imports without the library, and finds that out when first asked
        raise OSError(f"libcudnn.so.9 cannot be loaded: {error}") from error
    # the loader gives the library that the frontend has loaded, which goes by this name wherever it came from
    return Cudnn(frontend, ctypes.CDLL("libcudnn.so.9"), PrimaryContexts())


def _imported() -> Any:
    """Import the frontend without PyTorch.

    Its module for users of PyTorch, `cudnn.wrapper`, imports that wherever it is installed: seconds in each worker. It
    does without, and finds PyTorch when it first needs it.
    """
    hidden = _Hidden("torch")
    sys.meta_path.insert(0, hidden)
    try:
        frontend = importlib.import_module("cudnn")
        wrapper: Any = importlib.import_module("cudnn.wrapper")
    finally:
        sys.meta_path.remove(hidden)
    if wrapper.torch is None and importlib.util.find_spec("torch") is not None:
        wrapper.torch = _Later("torch")
    return frontend


class _Hidden:
    """Hides a module from the imports of this thread; one that is imported already stays visible."""

    def __init__(self, module: str) -> None:
        self._module, self._thread = module, threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """See `importlib.abc.MetaPathFinder`."""
        if name == self._module and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not wanted here", name=name)


class _Later:
    """A module that is imported when something of it is asked for."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)
