"""Check that an artifact does in another process what it does here."""

from __future__ import annotations

from pathlib import Path

from collage.measure.worker.verdicts import judged
from collage_core.contract import Artifact, Buffer, KernelFunction, RunContext, Target
from collage_core.registry import Toolchain
from collage_testing.kit.clauses import PROCESS
from collage_testing.kit.elsewhere import can_run_elsewhere, run_elsewhere
from collage_testing.kit.operands import Operands
from collage_testing.kit.origins import reference_to


def can_be_sent(toolchain: Toolchain, function: KernelFunction, run: RunContext) -> bool:
    """Return whether another process finds the plugin, and files hold the values of a function."""
    return bool(reference_to(toolchain)) and can_run_elsewhere((*function.inputs, *function.outputs), run.constants)


def checked_elsewhere(
    toolchain: Toolchain,
    target: Target,
    function: KernelFunction,
    artifact: Artifact,
    what: Operands,
    run: RunContext,
    folder: Path,
) -> list[str]:
    """Run an artifact in a process that has only its bytes, and return what is wrong.

    Args:
        toolchain: Whose artifact it is.
        target: The target it was built for.
        function: What it was made from.
        artifact: The artifact.
        what: What it reads, and should write.
        run: The constants it asks for.
        folder: Parent of a directory for files.
    """
    plugin = reference_to(toolchain)
    try:
        found = run_elsewhere(
            artifact,
            function.inputs,
            function.outputs,
            {spec.name: value for spec, value in zip(function.inputs, what.given, strict=True)},
            run.constants,
            plugin=plugin,
            target=target,
            folder=folder,
        )
    except AssertionError as error:
        last = str(error).strip().splitlines()[-1:] or ["it ended without a word"]
        return [PROCESS.broken(f"its artifact does not run in another process: {last[0]}")]
    outputs = [Buffer(spec, found[spec.name]) for spec in function.outputs]
    verdict = judged(what.judge, outputs, what.expected, what.conditioning)
    return [PROCESS.broken(f"wrong numbers in another process: {verdict}")] if isinstance(verdict, str) else []
