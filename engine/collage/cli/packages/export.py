"""The command `collage export`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import existing_file, input_shapes_option, verbose_option
from collage.cli.options.parameters import GivenShapes, check_overwriting, output_file, shapes_by_name


@click.command(short_help="Write a plan as an ONNX model to look at.")
@click.argument("package", type=existing_file)
@click.option("-o", "--output", type=output_file, required=True, metavar="OUT.onnx", help="The model to write.")
@input_shapes_option
@verbose_option
def export(package: Path, output: Path, input_shapes: GivenShapes) -> None:
    """Write the plan of PACKAGE as ONNX: a function for each kernel, named by what it does, with times as metadata.

    Netron shows it, and any ONNX runtime runs it.
    """
    from collage.commands.export import export as export_model
    from collage.report.figures import counted

    check_overwriting({"--output": output}, [package])
    kernels = export_model(package, output, input_shapes=shapes_by_name(input_shapes))
    click.echo(f"saved {output}, with {counted(kernels, 'kernel')} as calls of functions")
