"""Format figures uniformly in tables, explanations and progress."""

from __future__ import annotations

import math


def milliseconds(value: float | None) -> str:
    """Format milliseconds with four significant digits, about the precision of the clock; a dash if there is no value.

    Examples:
        >>> [milliseconds(v) for v in (0.012345, 3.7, 160.04, None)]
        ['0.01235', '3.700', '160.0', '-']
    """
    return "-" if value is None else significant(value, 4)


def microseconds(value: float | None) -> str:
    """Format microseconds, with one decimal below a thousand; a dash if there is no value.

    Examples:
        >>> [microseconds(v) for v in (3.14, 1234.5, None, math.inf)]
        ['3.1', '1,234', '-', 'invalid']
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return "invalid"
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def interval(bounds: tuple[float, float], digits: int = 4) -> str:
    """Format an interval, both ends with the same number of significant digits.

    Examples:
        >>> interval((1.05, 1.112), 3)
        '[1.05, 1.11]'
    """
    low, high = (significant(bound, digits) for bound in bounds)
    return f"[{low}, {high}]"


def span(bounds: tuple[float, float], digits: int = 4) -> str:
    """Format an interval in compact form, for narrow columns.

    Examples:
        >>> span((95.04, 96.96))
        '95.04-96.96'
    """
    return "-".join(significant(bound, digits) for bound in bounds)


def ratio(value: float) -> str:
    """Format a ratio of latencies.

    Examples:
        >>> ratio(0.6549)
        '0.655'
    """
    return f"{value:.3f}"


def error(value: float) -> str:
    """Format an error relative to a tensor's scale.

    Examples:
        >>> [error(v) for v in (0.0, 3.1234e-06, math.inf)]
        ['0', '3.1e-06', 'infinite']
    """
    if not math.isfinite(value):
        return "infinite"
    return f"{value:.1e}" if value else "0"


def percent(part: float, whole: float) -> str:
    """Format a share in per cent; a dash if the whole is zero.

    Examples:
        >>> percent(1, 8), percent(1, 0)
        ('12.5 %', '-')
    """
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def whole_percent(share: float) -> str:
    """Format a share in whole per cent, for estimates.

    Examples:
        >>> whole_percent(0.8149)
        '81 %'
    """
    return f"{100 * share:.0f} %"


def change(value: float | None, base: float | None) -> str:
    """Format the relative change from a base, with its sign; a dash if either is not known.

    Examples:
        >>> change(110, 100), change(95, 100)
        ('+10.0 %', '-5.0 %')
    """
    return f"{100 * (value / base - 1):+.1f} %" if base and value is not None else "-"


def seconds(value: float) -> str:
    """Format the duration of an operation that the user waits for.

    Examples:
        >>> [seconds(v) for v in (0.234, 7.25, 61.0, 3700.0)]
        ['0.2 s', '7.2 s', '1:01 min', '1:01 h']
    """
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d} h"


def size(count: int) -> str:
    """Format a number of bytes in binary units.

    Examples:
        >>> size(512), size(3 * 1024**3)
        ('512 B', '3.0 GiB')
    """
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def operations(gflop: float) -> str:
    """Format a number of arithmetic operations, given in billions.

    Examples:
        >>> [operations(v) for v in (4.0891, 0.0123, 2.5e-06)]
        ['4.09 GFLOP', '12.3 MFLOP', '2.50 kFLOP']
    """
    count, unit = gflop, "GFLOP"
    for smaller in ("MFLOP", "kFLOP"):
        if count >= 1:
            break
        count, unit = count * 1000, smaller
    return f"{significant(count, 3)} {unit}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun.

    Examples:
        >>> counted(1, "node"), counted(412, "node"), counted(2, "entry", "entries")
        ('1 node', '412 nodes', '2 entries')
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def significant(value: float, digits: int) -> str:
    """Format a number with some significant digits, and all digits before the point.

    Examples:
        >>> [significant(v, 3) for v in (0.012345, 3.7, 160.04)]
        ['0.0123', '3.70', '160']
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, decimals)}f}"
