"""Find the frontend and cuDNN."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util

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
        frontend = importlib.import_module("cudnn")
        frontend.backend_version()
    except ImportError as error:
        raise OSError(f"nvidia-cudnn-frontend cannot be imported: {error}") from error
    except RuntimeError as error:  # it imports without the library, and finds that out when first asked
        raise OSError(f"libcudnn.so.9 cannot be loaded: {error}") from error
    # the loader gives the library that the frontend has loaded, which goes by this name wherever it came from
    return Cudnn(frontend, ctypes.CDLL("libcudnn.so.9"), PrimaryContexts())
