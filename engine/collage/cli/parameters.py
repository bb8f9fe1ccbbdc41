"""What users write on the command line, read by functions that say what is wrong with it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

_LONGEST_NAME = 240
"""Bytes; file systems have 255, and a file is written under a longer name first."""

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class FiniteRange(click.FloatRange):
    """A number within bounds that is one: `nan` is within all that are given as limits, as no comparison holds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


def duration(text: str) -> float:
    """Seconds of a time written as `90s`, `10m`, `1h30m`; a bare number is seconds.

    Raises:
        click.BadParameter: If it is nothing of the kind, or zero.

    Examples:
        >>> duration("1h30m"), duration("2.5")
        (5400.0, 2.5)
    """
    written = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", written):
        total = float(written)
    elif re.fullmatch(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+", written):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", written)
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    else:
        total = 0.0
    if not 0 < total < math.inf:
        raise click.BadParameter(f"{text!r} is not a time; write for example 90s, 10m or 1h30m")
    return total


def input_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and shape of an input written as `x:[1,3,224,224]`, or as trtexec writes it, `x:1x3x224x224`.

    Raises:
        click.BadParameter: If it is neither.

    Examples:
        >>> input_shape("images:0:[1,3]")
        ('images:0', (1, 3))
    """
    # input names may hold colons (`images:0`), extents do not
    name, _, extents = text.strip().rpartition(":")
    bracketed = re.fullmatch(r"\[\s*((?:\d+\s*(?:,\s*\d+\s*)*)?)\]", extents)
    if not name or not (bracketed or re.fullmatch(r"\d+(?:x\d+)*", extents)):
        raise click.BadParameter(f"{text!r} is not an input shape; write for example x:[1,3,224,224]")
    inside = bracketed[1] if bracketed else extents
    return name, tuple(int(extent) for extent in re.split(r"[x,]", inside) if extent.strip())


def targets(text: str) -> str:
    """A comma-separated list of targets, as written, once it is known to be one.

    Raises:
        click.BadParameter: If it is not.
    """
    from collage_core.contract import split_targets

    try:
        spellings = split_targets(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not spellings:
        raise click.BadParameter("name at least one toolchain")
    return text


def output_file(text: str) -> Path:
    """A file to be written, refused before the work if it cannot be.

    Raises:
        click.BadParameter: If it is a directory, or in one that is not there or not writable.
    """
    path = Path(text)
    folder = path.absolute().parent
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise click.BadParameter(f"{text!r} is too long a name")
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a directory")
    if not folder.is_dir():
        raise click.BadParameter(f"cannot write {text!r}: there is no directory {str(folder)!r}")
    if not os.access(folder, os.W_OK):
        raise click.BadParameter(f"cannot write {text!r}: the directory {str(folder)!r} is not writable")
    return path


def output_file_or_dash(text: str) -> Path:
    """Like `output_file`, but `-` stands for standard output and comes as `Path("-")`."""
    return Path(text) if text == "-" else output_file(text)


def check_overwriting(written: Mapping[str, Path | None], read: Iterable[Path | None]) -> None:
    """See that no result is written over what the command reads, or over another result.

    Args:
        written: Where results go, by the option that says so; None and `-` are no files.
        read: Files that are read.

    Raises:
        click.UsageError: If one is; nothing is written then.
    """
    taken = {_identity(path): "a file the command reads" for path in read if path is not None}
    for option, path in written.items():
        if path is None or path == Path("-"):
            continue
        if (other := taken.get(_identity(path))) is not None:
            raise click.UsageError(f"{option} would overwrite {str(path)!r}, {other}; name another file")
        taken[_identity(path)] = f"what {option} is written to"


def _identity(path: Path) -> object:
    """Equal for two names of one file."""
    resolved = path.resolve()
    try:
        known = resolved.stat()
    except OSError:  # not there yet
        return resolved
    return (known.st_dev, known.st_ino)


def shapes_by_name(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Mapping[str, tuple[int, ...]]:
    """Input shapes given one by one, as a mapping.

    Raises:
        click.BadParameter: If an input is given two.
    """
    by_name: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes:
        if by_name.setdefault(name, shape) != shape:
            raise click.BadParameter(f"input {name!r} is given two shapes", param_hint="--input-shapes")
    return by_name


def split_names(lists: tuple[str, ...]) -> tuple[str, ...]:
    """Names given by repeating an option, by commas, or both; commas inside parentheses belong to a name.

    Examples:
        >>> split_names(("a,b(x=1,y=2)", "c"))
        ('a', 'b(x=1,y=2)', 'c')
    """
    return tuple(name.strip() for text in lists for name in re.split(r",(?![^(]*\))", text) if name.strip())
