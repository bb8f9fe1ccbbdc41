"""Options shared by several commands, with the same spelling and meaning everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from collage.cli.options.completion import complete_pins, complete_targets, complete_toolchains
from collage.cli.options.parameters import duration, input_shape, output_file_or_dash, targets
from collage_core.error_text import FRAMES

C = TypeVar("C", bound=Callable[..., Any])

_VERBOSE = "collage.cli.verbose"

existing_file = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


def is_verbose(ctx: click.Context) -> bool:
    """Return whether `-v` was given, before or after the command's name."""
    return bool(ctx.meta.get(_VERBOSE, False))


def _remember_verbose(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_VERBOSE] = True
        if FRAMES not in os.environ:  # processes that the command starts inherit it
            os.environ[FRAMES] = "1"
            ctx.call_on_close(lambda: os.environ.pop(FRAMES))


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_remember_verbose,
    help="List everything, name the lines of a plugin that failed, and show a traceback when a command fails.",
)

json_option = click.option(
    "--json",
    "json_to",
    type=output_file_or_dash,
    metavar="FILE",
    help="Write the result as JSON; '-' for standard output (tables then go to standard error).",
)

threads_option = click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads; one per physical core unless given."
)

seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="For random inputs."
)

inputs_option = click.option(
    "--inputs",
    type=existing_file,
    metavar="FILE.npz",
    help="An array per model input (docs/user/models.md); random ones unless given.",
)

preset_option = click.option(
    "--preset",
    type=click.Choice(["quick", "default", "extensive"]),
    default="default",
    show_default=True,
    help="How much to try.",
)

calibration_option = click.option(
    "--calibration",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE.npz|FOLDER",
    help="Samples of the inputs, for lower precision (docs/user/user-control.md); random ones unless given.",
)

ranges_option = click.option(
    "--ranges",
    type=click.Choice(["minmax", "percentile", "entropy"]),
    default="minmax",
    show_default=True,
    help="Ranges of 8-bit integers: of all numbers in the samples, of 99.99 % of them, or those that lose least "
    "information.",
)

tuning_db_option = click.option(
    "--tuning-db", metavar="URL", help="Where measurements are kept; the user's own database unless given."
)

runner_option = click.option(
    "--runner",
    metavar="NAME",
    help="Whose machines measure, such as ray://HOST:10001: those of this one's kind (docs/user/fleet.md).",
)

split_hosts_option = click.option(
    "--split-hosts/--no-split-hosts",
    default=None,
    help="Whether a machine of the runner measures several candidates at once, each on cores of its own. It is found "
    "out whether they slow each other unless given.",
)

reference_option = click.option(
    "--reference",
    metavar="TOOLCHAIN",
    shell_complete=complete_toolchains,
    help="Computes what ONNX's own evaluator cannot; the first exact one by default.",
)


input_shapes_option = click.option(
    "--input-shapes",
    type=input_shape,
    multiple=True,
    metavar="NAME:[D,...]",
    help="Shape of an input, e.g. x:[1,3,224,224]; repeat for several inputs. For optimize also several shapes, "
    "x:[1|4,3,224,224], with a plan for each, or a range, x:[1..16@4,3,224,224], measured at 4.",
)


def selection_options(command: C) -> C:
    """Add the options that select toolchains and input shapes."""
    for option in (
        input_shapes_option,
        click.option(
            "--exclude",
            multiple=True,
            metavar="TARGETS",
            shell_complete=complete_targets,
            help="Toolchains or targets to leave out, comma-separated.",
        ),
        click.option(
            "--toolchains",
            type=targets,
            metavar="TARGETS",
            shell_complete=complete_targets,
            help="Toolchains to use, comma-separated, with options where wanted: "
            "onnxruntime,openvino(precision=bf16). All that are installed unless given.",
        ),
    ):
        command = option(command)
    return command


def preferring_options(command: C) -> C:
    """Add the options by which a user decides who runs what."""
    for option in (
        click.option(
            "--prefer",
            type=targets,
            metavar="TARGETS",
            shell_complete=complete_targets,
            help="Who gets what measurements cannot decide, best first, comma-separated; explain says where it did.",
        ),
        click.option(
            "--pin",
            "pins",
            multiple=True,
            metavar="GLOB=TARGET",
            shell_complete=complete_pins,
            help="Give the nodes whose names match to this toolchain, whatever is fastest; repeat for several.",
        ),
    ):
        command = option(command)
    return command


def measuring_options(command: C) -> C:
    """Add the options for the duration and number of timed runs."""
    for option in (
        click.option(
            "--duration", type=duration, metavar="S", help="Seconds to time each candidate for; 90s and 2m work, too."
        ),
        click.option("--iterations", type=click.IntRange(min=1), metavar="N", help="Timed runs of each, at most."),
        click.option("--warmup", type=click.IntRange(min=0), metavar="N", help="Untimed runs before."),
    ):
        command = option(command)
    return command
