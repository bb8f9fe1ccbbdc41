"""Report which toolchains got little of the model, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable

from collage.report.facts.record import Record, ToolchainFacts
from collage.report.figures import counted
from collage.report.text.refusal_groups import RefusalGroup, group_refusals

LITTLE = 0.1
"""Share of the nodes below which a toolchain is named by default."""

_REASONS = 2
_CLAUSE = re.compile(r"[^:;(]*? [^:;(]*(?=: |; | \()")
"""The first clause of a reason, of two words at least: what comes behind is detail or advice."""


def coverage_lines(record: Record, *, everything: bool = False, reasons: bool = False) -> tuple[str, ...]:
    """Return one sentence per toolchain that was given little or nothing of the model, and one for the unusable ones.

    Args:
        record: Record of the optimization.
        everything: Whether to include toolchains that were given a larger share.
        reasons: Whether to give the whole reason of each unusable toolchain, in a line of its own.
    """
    total = kernel_nodes(record)
    unusable = [toolchain for toolchain in record.toolchains if toolchain.unusable]
    lines = [
        _line(toolchain, total, record)
        for toolchain in record.toolchains
        if total and not toolchain.unusable and (everything or toolchain.chosen_nodes < LITTLE * total)
    ]
    if reasons:
        lines += [f"{toolchain.name} is unusable: {toolchain.unusable}" for toolchain in unusable]
    elif unusable:
        lines.append(f"not usable here: {_by_reason(unusable)}; `collage doctor` says more")
    return tuple(lines)


def kernel_nodes(record: Record) -> int:
    """Return the number of nodes that needed a kernel; each was assigned to exactly one toolchain."""
    if not record.regions:
        return 0  # a model of views and constants needs none
    return sum(toolchain.chosen_nodes for toolchain in record.toolchains) or record.model.nodes


def _line(toolchain: ToolchainFacts, total: int, record: Record) -> str:
    if toolchain.not_asked:
        return f"{toolchain.name} was not asked: {toolchain.not_asked}"
    took = f"{toolchain.name} took {toolchain.chosen_nodes} of {counted(total, 'node')}"
    refused = total - toolchain.claimed_nodes
    groups = [
        group
        for group in group_refusals(record.refusals)
        if group.target == toolchain.name or group.target.startswith((f"{toolchain.name}(", f"{toolchain.name}@"))
    ]
    causes: list[str] = []
    if refused > 0:
        causes.append(f"it refuses {refused}{_because(groups)}")
    lost = toolchain.claimed_nodes - toolchain.chosen_nodes
    if lost > 0:
        winners = [other.name for other in record.toolchains if other.chosen_nodes and other.name != toolchain.name]
        to = f" went to {' and '.join(winners)}" if winners else " went elsewhere"
        rest = f"the other {lost}" if toolchain.chosen_nodes else f"the {lost}"
        causes.append(f"{rest} it accepts{to}")
    return f"{took}: {'; '.join(causes)}" if causes else took


def _by_reason(unusable: Iterable[ToolchainFacts]) -> str:
    """Name unusable toolchains, those with the same reason together."""
    names: dict[str, list[str]] = {}
    for toolchain in unusable:
        clause = _CLAUSE.match(toolchain.unusable)
        names.setdefault(clause[0] if clause else toolchain.unusable, []).append(toolchain.name)
    return ", ".join(f"{', '.join(each)} ({reason})" for reason, each in names.items())


def _because(groups: list[RefusalGroup]) -> str:
    about_nodes = [group for group in groups if group.stage in ("query", "predicate", "pattern")] or groups
    reasons = [group.text for group in sorted(about_nodes, key=lambda g: (-len(g.nodes), g.reason))[:_REASONS]]
    more = len(about_nodes) - len(reasons)
    if not reasons:
        return ""
    return f" ({'; '.join(reasons)}{f'; and {more} more reasons' if more > 1 else '; and one more' if more else ''})"
