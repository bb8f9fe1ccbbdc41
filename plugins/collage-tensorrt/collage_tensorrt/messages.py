"""Condense the library's messages to one line that a user can act on."""

from __future__ import annotations

import re
from typing import Any

from collage_core.errors import DeviceError, DeviceLostError, DeviceMemoryError
from collage_cuda import cuda_error

_LONGEST = 300

# Each check that fails also asks the device for its last error; where there is none, that is one more line of noise.
_NOISE = ("[checkMacros.cpp::catchCudaError", "Invalid Node - ")


_CODE = re.compile(r"cudaError (\d+)")
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation in driver_types.h


def log_of(library: Any) -> Any:
    """Create a logger for the library; its attribute `errors` holds the error messages, one line each."""

    def start(self: Any) -> None:
        library.ILogger.__init__(self)
        self.errors = []

    def log(self: Any, severity: Any, message: str) -> None:
        if severity in (library.ILogger.Severity.ERROR, library.ILogger.Severity.INTERNAL_ERROR):
            self.errors.append(one_line(message))

    return type("CollageLog", (library.ILogger,), {"__init__": start, "log": log})()


def why(log: Any, otherwise: str) -> str:
    """Return a logger's first specific error message; `otherwise` if there is none."""
    return next(iter(log.errors), otherwise)


def trouble(device: str, log: Any) -> DeviceError | None:
    """Return the error to raise if a logged message is about the device: too little memory, or device lost.

    TensorRT for RTX logs CUDA's code, TensorRT 10 only its text.
    """
    for text in log.errors:
        found = _CODE.search(text)
        code = int(found[1]) if found else _OUT_OF_MEMORY if "out of memory" in text.lower() else 0
        error = cuda_error(device, code, text)
        if isinstance(error, DeviceMemoryError | DeviceLostError):
            return error
    return None


def parser_reason(error: Any) -> str:
    """Format the importer's error for one node: its operator, the kind of refusal, and the text if there is any.

    Args:
        error: A `ParserError`.
    """
    sort = error.code().name.lower().replace("_", " ")
    text = one_line(error.desc())
    # a check that failed is shown as the expression it compared, which is no words
    words = "" if text in ("", "false") else f": {text}"
    operator = error.node_operator()
    return f"{operator}: {sort}{words}" if operator else f"{sort}{words}"


def one_line(text: str) -> str:
    r"""Return a message without line breaks and boilerplate, truncated if too long.

    Examples:
        >>> one_line("Invalid Node - add_0\nSUM requires other types")
        'SUM requires other types'
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    told = " ".join(line for line in lines if line and not line.startswith(_NOISE)) or " ".join(filter(None, lines))
    return told if len(told) <= _LONGEST else told[: _LONGEST - 3] + "..."
