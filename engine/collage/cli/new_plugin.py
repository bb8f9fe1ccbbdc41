"""The `collage new-plugin` command."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import verbose_option


@click.command("new-plugin", short_help="Write a plugin to put a library in.")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["runtime", "operators"]),
    default="runtime",
    show_default=True,
    help="What the library is: a runtime that compiles whole graphs, or a library of single operators.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder to write, which must not exist; collage-NAME unless given.",
)
@verbose_option
def new_plugin(name: str, kind: str, output: Path | None) -> None:
    """Write a distribution that brings the toolchain NAME: it works, and waits for your library.

    Its toolchain keeps the plugin contract from the first moment; docs/plugin-authors/writing-a-plugin.md says how to
    go on.
    """
    from collage.commands.new_plugin import new_plugin as write_plugin

    folder = write_plugin(name, output, kind=kind)
    click.echo(
        f"wrote {folder}; next:\n"
        f"  pip install -e '{folder}[test]'\n"
        f"  pytest {folder}                 the kit does what Collage will do\n"
        f"  collage doctor                  names {name} among the toolchains\n"
        f"  collage inspect model.onnx --toolchains {name}"
    )
