"""How a failing command ends: one message on standard error, and an exit status.

0 done, 1 failed, 2 misuse, 130 interrupted. A traceback is shown under `-v` only.
"""

from __future__ import annotations

import errno
import traceback
from typing import Any, NoReturn

import click

from collage_core.cli.options import is_verbose
from collage_core.errors import CollageError, UsageError

INTERRUPTED = 130
"""What a shell reports for a command that Ctrl-C ended: 128 + SIGINT."""


class FailureReportingGroup(click.Group):
    """A command group that turns every exception into a message and an exit status."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            click.echo("\nInterrupted. What was measured so far is kept in the tuning database.", err=True)
            ctx.exit(INTERRUPTED)
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
