"""End a trial at a failed step, with its stage and the exception's message."""

from __future__ import annotations

from collections.abc import Callable

from collage.devices.opening import is_lost
from collage.measure.wire.outcomes import Failed, Refused, Stage
from collage_core.error_text import asked_frames
from collage_core.errors import CollageError, DeviceError


class Stopped(Exception):  # noqa: N818  not an error: it carries an outcome
    """Ends a trial of one variant with its outcome."""

    def __init__(self, outcome: Refused | Failed) -> None:
        self.outcome = outcome
        super().__init__(outcome.reason)


class failing_as:  # noqa: N801  reads as a statement
    """Turns an exception in its block into the failure of a stage.

    Args:
        stage: Current stage.
        lost: Receives the reason if the exception means that a device was lost; None to skip that.
    """

    def __init__(self, stage: Stage, lost: Callable[[str], None] | None = None) -> None:
        self._stage = stage
        self._lost = lost

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Stopped):
            if self._lost is not None and is_lost(error):
                self._lost(text_of(error))
            raise Stopped(Failed(stage=self._stage, reason=text_of(error))) from error


def text_of(error: Exception) -> str:
    """Format an error as a reason; a device error begins with its kind."""
    complete = isinstance(error, CollageError) and not isinstance(error, DeviceError)
    return str(error) if complete else f"{type(error).__name__}: {error}{asked_frames(error)}"
