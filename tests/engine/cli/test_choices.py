"""The command line declares by hand what options may be; it has to be what the functions take."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from collage.cli import main
from collage.options import PRESETS, RANGES, SEARCHES

ALL = {"search": tuple(SEARCHES), "preset": tuple(PRESETS), "ranges": tuple(RANGES)}
WITHOUT = {("resolve", "search"): ("two-level",)}
"""What a command refuses: a store cannot know what whole plans take that never ran."""


def choices() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each option of a command that is one of `ALL`, with its choices."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        for parameter in command.params:
            if parameter.name in ALL and isinstance(parameter.type, click.Choice):
                yield name, parameter.name, tuple(parameter.type.choices)


CHOICES = tuple(choices())


def test_they_are_found() -> None:
    assert {option for _, option, _ in CHOICES} == set(ALL)
    assert {"optimize", "optimize-all", "resolve"} <= {command for command, option, _ in CHOICES if option == "search"}


@pytest.mark.parametrize(("command", "option", "offered"), CHOICES, ids=[f"{c} --{o}" for c, o, _ in CHOICES])
def test_a_command_offers_what_the_functions_take(command: str, option: str, offered: tuple[str, ...]) -> None:
    refused = WITHOUT.get((command, option), ())

    assert sorted(offered) == sorted(set(ALL[option]) - set(refused))
