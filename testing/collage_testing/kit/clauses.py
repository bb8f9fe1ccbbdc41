"""What the contract says, where it says so, and what to do: each problem that the kit names ends with it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Clause:
    """One thing that the contract asks of a plugin.

    Attributes:
        where: Where it is said: a name of `collage_core.contract` or of a hook, or a page of `docs/plugin-authors`.
        advice: What to do, as a sentence without its full stop.
    """

    where: str
    advice: str

    def broken(self, what: str) -> str:
        """Return a problem as it is shown.

        Examples:
            >>> Clause("Kernel.bind", "Write outputs only").broken("it writes its input 'x'")
            "it writes its input 'x'. Write outputs only (Kernel.bind)."
        """
        return f"{what}. {self.advice} ({self.where})."


ALIASING = Clause("Kernel.bind", "Put a copy into an output whose size is not known beforehand, or memory of its own")
ALONE = Clause(
    "BuildContext.variant", "Name a variant after how it is made, as `v8x2`, and make the one asked for by it"
)
ANSWERS = Clause(
    "workers.md", "Raise LoweringError for what you had accepted, answer Unsupported for what can never be"
)
ARTIFACT = Clause(
    "Artifact", "Its files are bytes by plain names, its metadata is JSON, its constants are the function's"
)
BINDING = Clause("Kernel.bind", "Keep nothing of one binding for another: each has buffers of its own")
CANDIDATES = Clause("fusion-rules.md", "Propose the same for the same graph, and only what can be one kernel")
CAPTURING = Clause("Artifact.capturable", "Enqueue everything on the stream, or leave `capturable` out")
FINGERPRINT = Clause(
    "Target.fingerprint", "Put the library's name and version there, and nothing that differs by the run"
)
FUNCTION = Clause("KernelFunction", "Clone the model before you change it: others lower the same function")
HANDING = Clause("Kernel.bind", "Put new memory each time: what was put before belongs to who has read it")
LOADING = Clause("collage_load", "Compile in collage_lower, and put what was made into the artifact")
MEMORY = Clause("Kernel.bind", "Allocate when loading or binding: a call keeps nothing that it allocates")
NUMBERS = Clause("workers.md", "Refuse in a predicate what your library computes otherwise than ONNX says")
OUTPUTS = Clause("KernelFunction.outputs", "Give each output the type and shape that it says there")
PREDICATE = Clause("collage_register_predicates", "Answer Supported() or Unsupported(reason), and raise nothing")
PROCESS = Clause(
    "writing-a-plugin.md", "Keep all that loading needs in the artifact: it is another process on another day"
)
PROFILE = Clause("profiles.md", "Name nodes of the function, each once, with finite times")
RAISING = Clause("workers.md", "Refuse in a predicate or in collage_lower what your library cannot run")
REPEATING = Clause("Artifact.deterministic", "Yield it with `deterministic=False`, or one that repeats its bits")
SPELLING = Clause("collage_register_predicates", "Spell operators as ONNX does: no node is ever asked about another")
TARGETS = Clause("collage_targets", "Answer the same for the same machine, each target under a name of its own")
THREADS = Clause("RunContext.threads", "Give that number to your library, and start no thread of your own beyond it")
WRITING = Clause("Kernel.bind", "Write outputs and workspace only")
