"""How a failing command ends: one message on standard error, and an exit status.

0 done, 1 failed, 2 misuse, 130 interrupted, 143 or 129 ended by SIGTERM or SIGHUP: 128 + the signal's number, as shells
report it. Misuse is what another command line mends: it names what is not there, or gives shapes or arrays that do not
fit the model; a model or package that cannot be used is a failure. A traceback is shown under `-v` only.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import traceback
from typing import Any, NoReturn

import click

from collage.cli.options import is_verbose
from collage.cli.signals import Ended, interrupted_by_signals
from collage_core.errors import CollageError, UsageError


class FailureReportingGroup(click.Group):
    """A command group that turns every exception into a message and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
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
