"""How a failing command ends: one message on standard error, and an exit status.

0 done, 1 failed, 2 misuse, 130 interrupted, 143 or 129 ended by SIGTERM or SIGHUP: 128 + the signal's number, as shells
report it. Misuse is what another command line mends: it names what is not there, or gives shapes or arrays that do not
fit the model; a model or package that cannot be used is a failure. A traceback is shown under `-v` only.

A signal that asks a command to end ends it as Ctrl-C does: it takes its workers and temporary files along. `timeout`,
`docker stop` and batch systems send SIGTERM, a terminal that is closed SIGHUP. Python's own answer to them is to stop
where it is, which leaves gigabytes of tensors behind, and looks as if the candidate being measured had killed the run.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import click

from collage.cli.options import is_verbose
from collage_core.errors import CollageError, UsageError

_NAMES = ("SIGTERM", "SIGHUP")  # the second is unknown to Windows
_DEAF_S = 5.0
"""Seconds during which further signals are ignored, so that they do not interrupt the clean-up.

A closing terminal sends two signals.
"""


class Ended(KeyboardInterrupt):
    """A signal requested the end of this process.

    Attributes:
        number: Signal number.
    """

    def __init__(self, number: int) -> None:
        self.number = signal.Signals(number)
        super().__init__(self.number.name)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Raise `Ended` when a termination signal arrives.

    Only in the main thread, because Python delivers signals there. A signal that is ignored (`nohup`) or already
    has a handler keeps its disposition.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_DEAF_S

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last > _DEAF_S:
            last = time.monotonic()
            raise Ended(number)

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


class FailureReportingGroup(click.Group):
    """A command group that turns every exception into a message and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and report its failures."""
        try:
            with interrupted_by_signals():
                return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt as error:
            number = error.number if isinstance(error, Ended) else signal.SIGINT
            how = f"Ended by {number.name}" if isinstance(error, Ended) else "Interrupted"
            with contextlib.suppress(OSError):  # the terminal may be gone
                click.echo(f"\n{how}. What was measured so far is kept in the tuning database.", err=True)
            ctx.exit(128 + number)
        except CollageError as error:
            _fail(ctx, str(error), error)
        except OSError as error:
            if error.errno == errno.EPIPE:  # click ends quietly when nobody reads on
                raise
            _fail(ctx, str(error), error)
        except Exception as error:
            text = " ".join(str(error).split())
            _fail(
                ctx,
                f"Collage itself failed: {type(error).__name__}{f': {text}' if text else ''}. "
                "Run the command again with -v for the traceback, and report it.",
                error,
            )


def _fail(ctx: click.Context, message: str, error: Exception) -> NoReturn:
    if is_verbose(ctx):
        traceback.print_exception(error)
    raise (_Misuse if isinstance(error, UsageError) else click.ClickException)(message) from error


class _Misuse(click.ClickException):
    exit_code = 2
