"""`collage partition`."""

from __future__ import annotations

from pathlib import Path

import click

from collage.cli.options.common import existing_file, input_shapes_option, is_verbose, verbose_option
from collage.cli.options.completion import complete_targets
from collage.cli.options.parameters import GivenShapes, check_overwriting, output_file, shapes_by_name, targets
from collage.cli.output import results_console

_REFUSALS_SHOWN = 12


@click.command(short_help="Mark what one toolchain takes of a model; no search.")
@click.argument("model", type=existing_file)
@click.option(
    "--for",
    "target",
    type=targets,
    required=True,
    metavar="TARGET",
    shell_complete=complete_targets,
    help="Who gets all it takes.",
)
@click.option("-o", "--output", type=output_file, required=True, metavar="OUT.onnx", help="The model to write.")
@input_shapes_option
@verbose_option
@click.pass_context
def partition(
    ctx: click.Context,
    model: Path,
    target: str,
    output: Path,
    input_shapes: GivenShapes,
) -> None:
    """Mark all that one toolchain takes of MODEL, as functions, and write it as a model; measures nothing.

    What is left stays plain ONNX. `collage optimize` respects what is marked.
    """
    from collage.commands.partition import partition as partition_model
    from collage.report.figures import counted
    from collage_core.ir.io.model_io import save_model

    check_overwriting({"--output": output}, [model])
    found = partition_model(model, target, input_shapes=shapes_by_name(input_shapes))
    save_model(found.model, output)
    console = results_console()
    kernels = counted(len(found.kernels), "kernel")
    console.print(f"{found.target} takes {found.taken} of {found.kernel_nodes} nodes, in {kernels}; saved {output}")
    shown = list(found.refusals.items())[: None if is_verbose(ctx) else _REFUSALS_SHOWN]
    for node, reason in shown:
        console.print(f"not {node}: {reason}")
    if len(shown) < len(found.refusals):
        console.print(f"{len(found.refusals) - len(shown)} more refusals; -v lists all")
