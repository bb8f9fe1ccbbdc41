"""Complete toolchains and targets in a shell: `collage optimize model.onnx --toolchains onnxr<Tab>`.

Names of toolchains are read from the installed distributions, without loading one. Targets with options are the
toolchain's own answer, so completing `openvino(` takes as long as loading its library.
"""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def complete_targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the last of a comma-separated list of targets."""
    before, last = _split(incomplete)
    return [CompletionItem(f"{before}{name}") for name in _beginning_with(last)]


def complete_toolchains(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of one toolchain."""
    return [CompletionItem(name) for name in toolchain_names() if name.startswith(incomplete)]


def complete_pins(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the target of `GLOB=TARGET`; which names of nodes there are is the model's affair."""
    glob, equals, target = incomplete.partition("=")
    return [CompletionItem(f"{glob}={name}") for name in _beginning_with(target)] if equals else []


def toolchain_names() -> list[str]:
    """Return the names of the installed toolchains, sorted; none is loaded."""
    import importlib.metadata

    from collage_core.hookspecs import ENTRY_POINT_GROUP

    return sorted({entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)})


def _beginning_with(text: str) -> list[str]:
    """Return the toolchains whose names begin so; of one that is named up to its options, the targets."""
    name, parenthesis, _ = text.partition("(")
    if not parenthesis:
        return [each for each in toolchain_names() if each.startswith(text)]
    from collage.commands.doctor import targets_of
    from collage_core.errors import CollageError

    try:
        return [each for each in targets_of(name) if each.startswith(text)]
    except CollageError:  # a shell that completes has no place for a message
        return []


def _split(text: str) -> tuple[str, str]:
    """Split a list before its last target; commas between a target's options do not count.

    Examples:
        >>> _split("onnxruntime,open"), _split("a(x=1,y=2),b(x=1,")
        (('onnxruntime,', 'open'), ('a(x=1,y=2),', 'b(x=1,'))
    """
    depth = start = 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            start = at + 1
    return text[:start], text[start:]
