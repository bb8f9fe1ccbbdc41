"""ONNX's node tests: their names, which operator each is about, and running one."""

from __future__ import annotations

import dataclasses
import re
import time
import unittest
import warnings
from collections.abc import Callable
from typing import Any

from onnx.backend.base import Backend
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

_REASON_CHARACTERS = 400


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one case.

    Attributes:
        name: Name of the case.
        status: `"pass"`, `"wrong"` (other outputs than expected), `"error"`, `"crash"` or `"timeout"`.
        reason: Why it did not pass.
        toolchains: Toolchains that ran it.
        seconds: Duration.
    """

    name: str
    status: str
    reason: str = ""
    toolchains: tuple[str, ...] = ()
    seconds: float = 0.0


def operators() -> dict[str, str]:
    """Return the operator of each case, by case name; cases of expanded functions belong to the function."""
    found: dict[str, str] = {}
    for case in _loaded():
        base = re.sub(r"_expanded(_ver\d+)?$", "", case.name)
        node = case.model.graph.node[0] if case.name == base else None
        if node is None:
            found[case.name] = found[base]
        else:
            found[case.name] = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return found


def _loaded() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
        return list(load_model_tests(kind="node"))


class Cases:
    """ONNX's runner over one backend.

    Args:
        backend: The backend.
        toolchains: Returns the toolchains that ran the previous case.
    """

    def __init__(self, backend: type[Backend], toolchains: Callable[[], tuple[str, ...]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._tests = Runner(backend).test_cases["OnnxBackendNodeModelTest"]
        self._toolchains = toolchains

    def run(self, name: str) -> Outcome:
        """Run one case as `onnx.backend.test` does."""
        result = unittest.TestResult()
        began = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._tests(f"{name}_cpu").run(result)
        seconds = time.monotonic() - began
        if result.wasSuccessful() and not result.skipped:
            return Outcome(name=name, status="pass", toolchains=self._toolchains(), seconds=seconds)
        if result.skipped:
            return Outcome(name=name, status="error", reason=f"skipped: {result.skipped[0][1]}", seconds=seconds)
        status = "wrong" if result.failures else "error"
        [(_, trace), *_] = [*result.failures, *result.errors]
        return Outcome(name=name, status=status, reason=_said(trace), toolchains=self._toolchains(), seconds=seconds)


def _said(trace: str) -> str:
    """Extract the message of the last exception in a trace, on one line."""
    lines = trace.strip().splitlines()
    last = max((i for i, line in enumerate(lines) if re.match(r"[A-Za-z_][\w.]*(: |:$|$)", line)), default=0)
    text = " ".join(" ".join(lines[last:]).split())
    return text if len(text) <= _REASON_CHARACTERS else text[: _REASON_CHARACTERS - 3] + "..."
