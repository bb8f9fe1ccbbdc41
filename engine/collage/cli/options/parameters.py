"""Parse command-line parameters and report what is wrong with them."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click

from collage_core.ir.values.size_range import Extent, Shape, SizeRange

_LONGEST_NAME = 240
"""Longest file name in bytes: file systems allow 255, and a file is first written under a longer temporary name."""

MOST_SHAPES = 64
"""Most sets of input shapes of one command."""

MOST_BUCKETS = 16
"""Most typical sizes of a range."""

GivenShapes: TypeAlias = tuple[tuple[str, tuple[Shape, ...]], ...]
"""What `--input-shapes` was given: an input's name and shapes, each time."""

_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class FiniteRange(click.FloatRange):
    """A range parameter that rejects `nan` and infinities; `click.FloatRange` lets `nan` pass every bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.ParamType.convert`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number


def duration(text: str) -> float:
    """Parse a duration written as `90s`, `10m` or `1h30m` into seconds; a bare number is in seconds.

    Raises:
        click.BadParameter: If the text is not a duration, or the duration is zero.

    Examples:
        >>> duration("1h30m"), duration("2.5"), duration("2d")
        (5400.0, 2.5, 172800.0)
    """
    written = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", written):
        total = float(written)
    elif re.fullmatch(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", written):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", written)
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    else:
        total = 0.0
    if not 0 < total < math.inf:
        raise click.BadParameter(f"{text!r} is not a time; write for example 90s, 10m or 1h30m")
    return total


def input_shape(text: str) -> tuple[str, tuple[Shape, ...]]:
    """Parse an input's name and shapes from `x:[1|4,3,224,224]`, `x:[1,1..512]` or the trtexec form `x:1x3x224x224`.

    Raises:
        click.BadParameter: If the text has neither form, or gives too many shapes.

    Examples:
        >>> input_shape("images:0:[1,3]")
        ('images:0', ((1, 3),))
        >>> input_shape("x:[1|4,3]")
        ('x', ((1, 3), (4, 3)))
        >>> input_shape("x:[1,1..512@90]")
        ('x', ((1, SizeRange(least=1, most=512, typical=90)),))
    """
    # input names may hold colons (`images:0`), extents do not
    name, _, extents = text.strip().rpartition(":")
    size = r"\s*\d+(?:\.\.\d+(?:@\d+)?)?\s*"
    extent = rf"{size}(?:\|{size})*"
    bracketed = re.fullmatch(rf"\[\s*((?:{extent}(?:,{extent})*)?)\]", extents)
    if not name or not (bracketed or re.fullmatch(r"\d+(?:x\d+)*", extents)):
        raise click.BadParameter(
            f"{text!r} is not an input shape; write for example x:[1,3,224,224], x:[1|4,3,224,224] for several, or "
            "x:[1..16,3,224,224] for a range"
        )
    inside = bracketed[1] if bracketed else extents
    axes = [tuple(map(_extent, axis.split("|"))) for axis in re.split(r"[x,]", inside) if axis.strip()]
    if math.prod(map(len, axes)) > MOST_SHAPES:
        raise click.BadParameter(f"{text!r} gives more than {MOST_SHAPES} shapes; name fewer")
    return name, tuple(dict.fromkeys(itertools.product(*axes)))


def _extent(text: str) -> Extent:
    if ".." not in text:
        return int(text)
    try:
        return SizeRange.parse(text.strip())
    except ValueError as error:
        raise click.BadParameter(f"{error}: sizes are in order") from None


def targets(text: str) -> str:
    """Validate a comma-separated list of targets and return it unchanged.

    Raises:
        click.BadParameter: If the list is malformed or empty.
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
    """Parse the path of an output file and reject it early if it cannot be written.

    Raises:
        click.BadParameter: If it is a directory, its name is too long, or its directory is missing or
            not writable.
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
    """Parse an output path as `output_file` does; `-` means standard output and yields `Path("-")`."""
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
    """Return a key that is equal for two paths of the same file."""
    resolved = path.resolve()
    try:
        known = resolved.stat()
    except OSError:  # not there yet
        return resolved
    return (known.st_dev, known.st_ino)


def shapes_by_name(shapes: GivenShapes) -> Mapping[str, Shape]:
    """Collect input shapes given one by one into a mapping.

    Raises:
        click.BadParameter: If an input is given two shapes.
    """
    sets = shape_sets(shapes)
    for name in sets[0]:
        if len({each[name] for each in sets}) > 1:
            raise click.BadParameter(
                f"input {name!r} is given two shapes; only `optimize` takes several", param_hint="--input-shapes"
            )
    return sets[0]


def shape_sets(
    shapes: GivenShapes,
) -> tuple[Mapping[str, Shape], ...]:
    """Collect input shapes into every set that takes one shape of each input, in the order given.

    Raises:
        click.BadParameter: If these are too many.

    Examples:
        >>> shape_sets((("x", ((1, 3), (4, 3))), ("n", ((),))))
        ({'x': (1, 3), 'n': ()}, {'x': (4, 3), 'n': ()})
        >>> shape_sets(())
        ({},)
    """
    by_name: dict[str, dict[Shape, None]] = {}
    for name, choices in shapes:
        by_name.setdefault(name, {}).update(dict.fromkeys(choices))
    if math.prod(map(len, by_name.values())) > MOST_SHAPES:
        raise click.BadParameter(f"they make more than {MOST_SHAPES} sets; name fewer", param_hint="--input-shapes")
    return tuple(dict(zip(by_name, each, strict=True)) for each in itertools.product(*by_name.values()))


def split_names(lists: tuple[str, ...]) -> tuple[str, ...]:
    """Split names given by repeated options, commas, or both; commas inside parentheses belong to a name.

    Examples:
        >>> split_names(("a,b(x=1,y=2)", "c"))
        ('a', 'b(x=1,y=2)', 'c')
    """
    return tuple(name.strip() for text in lists for name in re.split(r",(?![^(]*\))", text) if name.strip())
