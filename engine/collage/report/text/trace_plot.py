"""Plot the trace of a two-level search: a point for each timed plan, a line for the best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from collage.report.documents.codec import dumps
from collage.report.files import write_text

PICTURE = ".svg"
"""File suffix of the plot, which lies beside its trace."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 360, 64, 48
_RIGHT, _TOP = 150, 24
_COLOURS = {"start": "#555555", "give": "#0072b2", "merge": "#d55e00", "split": "#009e73", "cross": "#cc79a7"}
"""Colours that colour-blind readers can distinguish: M. Okabe and K. Ito, "Color Universal Design" (2008)."""


def write_trace(path: Path, trace: Mapping[str, Any], title: str = "") -> None:
    """Write a trace, and its plot under the same name with the suffix `.svg`.

    Raises:
        OSError: If a file cannot be written.
    """
    write_text(path, dumps(trace))
    write_text(path.with_suffix(PICTURE), trace_svg(trace, title))


def trace_svg(trace: Mapping[str, Any], title: str = "") -> str:
    """Return the trace written by `collage_core.search.two_level.trace_document` as SVG.

    Args:
        trace: The trace document; plans that could not be run are drawn as crosses at the top.
        title: Title above the plot.
    """
    evaluations: Sequence[Mapping[str, Any]] = trace.get("evaluations", ())
    ratios: list[float] = [each["ratio"] for each in evaluations if each["ratio"] is not None]
    low, high = min([*ratios, 1.0]), max([*ratios, 1.0])
    low, high = low - 0.05 * (high - low) - 0.01, high + 0.05 * (high - low) + 0.01

    def across(number: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * number / max(1, len(evaluations) - 1)

    def up(ratio: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * (ratio - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="12" '
        'font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="16">{escape(title)}</text>',
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">plans timed</text>',
    ]
    for step in range(6):
        ratio = low + (high - low) * step / 5
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(ratio):.1f}" y2="{up(ratio):.1f}" stroke="#dddddd"/>'
            f'<text x="{_LEFT - 6}" y="{up(ratio) + 4:.1f}" text-anchor="end">{ratio:.3f}</text>'
        )
    parts.append(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(1.0):.1f}" y2="{up(1.0):.1f}" '
        'stroke="#555555" stroke-dasharray="4 3"><title>the start</title></line>'
    )
    steps = [(across(each["number"]), up(each["best"])) for each in evaluations if each["best"] is not None]
    line = "".join(f"{'H' if at else 'M'}{x:.1f}{'V' if at else ','}{y:.1f}" for at, (x, y) in enumerate(steps))
    if line:
        parts.append(f'<path d="{line}" fill="none" stroke="black" stroke-width="1.5"/>')
    for each in evaluations:
        x, colour = across(each["number"]), _COLOURS.get(each["move"], "black")
        about = f"{each['number']}: {each['move']}, {len(each['kernels'])} kernels"
        if each["ratio"] is None:
            parts.append(
                f'<text x="{x:.1f}" y="{_TOP + 8}" text-anchor="middle" fill="{colour}">x<title>{about}</title></text>'
            )
        else:
            parts.append(
                f'<circle cx="{x:.1f}" cy="{up(each["ratio"]):.1f}" r="4" fill="{colour}">'
                f"<title>{about}, {each['ratio']:.4f}</title></circle>"
            )
    for at, (move, colour) in enumerate(_COLOURS.items()):
        y = _TOP + 12 + 18 * at
        parts.append(f'<circle cx="{_WIDTH - _RIGHT + 24}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 36}" y="{y + 4}">{move}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT + 16}" y="{_TOP + 12 + 18 * len(_COLOURS) + 4}">line: best so far</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
