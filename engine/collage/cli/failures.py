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
import functools
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from collage.cli.options.common import is_verbose
from collage.errors import PluginWarning
from collage_core.errors import CollageError, UsageError

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # the last is unknown to Windows
_MOST_CHARACTERS = 1800
_DEAF_S = 5.0
"""Seconds during which further signals are ignored, so that they do not interrupt the clean-up.

A closing terminal sends two signals, and who signals a group of processes reaches this one through its watcher, too.
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
    has a handler keeps its disposition; SIGINT goes on to raise `KeyboardInterrupt`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_DEAF_S

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last > _DEAF_S:
            last = time.monotonic()
            raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    handlers = {number: signal.getsignal(number) for number in numbers}
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    taken = {number: handler for number, handler in handlers.items() if handler in defaults}
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Show warnings about plugins as one line each, without the place in the source that issued them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, PluginWarning):
                click.echo(f"Warning: {message}.", err=True)
            else:
                show(message, category, *rest)

        warnings.showwarning = show_line  # type: ignore[assignment]
        yield


class FailureReportingGroup(click.Group):
    """A command group that turns every exception into a message and an exit status.

    Attributes:
        unwatched: Names of commands that call no plugin, and of options that are no command.
    """

    unwatched: frozenset[str] = frozenset({"explain", "export", "report", "--version", "--help", "-h"})

    def main(self, args: Sequence[str] | None = None, *rest: Any, **named: Any) -> Any:
        """Run the command of this process's command line under a watcher; any other as it is."""
        run = functools.partial(super().main, args, *rest, **named)
        if args is not None or not sys.argv[1:] or sys.argv[1] in self.unwatched:
            return run()
        from collage.watcher import can_watch, watched  # it imports what `--help` does without

        if can_watch():
            watched(run)
        return run()

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and report its failures."""
        try:
            with interrupted_by_signals(), one_line_warnings():
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
    elif len(message) > _MOST_CHARACTERS:
        message = f"{message[:_MOST_CHARACTERS]}... ({len(message) - _MOST_CHARACTERS} more characters; -v shows them)"
    raise (_Misuse if isinstance(error, UsageError) else click.ClickException)(message) from error


class _Misuse(click.ClickException):
    exit_code = 2
