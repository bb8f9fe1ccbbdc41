"""Find out what lower precision of each group of products does to the outputs of a model."""

from __future__ import annotations

from collections.abc import Sequence

from collage.errors import PrecisionError
from collage.precision.sensitivity.groups import bound_by_weights, product_groups, rounded_together, shared_out
from collage.precision.sensitivity.prober import Choice, Prober
from collage.precision.sensitivity.samples import Samples
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.report.progress import Progress
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.contract import Target


def find_sensitivities(
    environment: Environment[Workload],
    samples: Samples,
    runner: Target,
    targets: Sequence[Target],
    progress: Progress,
) -> Sensitivities:
    """Find what rounding each group of products does.

    Args:
        environment: The model and the toolchains.
        samples: Says which ranges products read.
        runner: Runs the model; it computes in the model's own types.
        targets: Those of lower precision: only types that one of them has are looked at.
        progress: Receives progress updates.

    Raises:
        PrecisionError: If that does not succeed.
    """
    progress.phase("running the model on calibration samples", 1)
    groups = product_groups(environment.graph, samples.ranges())
    progress.advance()
    if not groups:
        raise PrecisionError("the model has no products of constant weights in float32, or is quantised already")
    prober = Prober(environment, groups, runner)
    each = [1 << number for number in range(len(groups))]
    computes_int8 = any(target.quantises and not target.quantises_only_weights for target in targets)
    eight = [Choice(int8=mask) for mask in each if computes_int8]
    together = rounded_together(groups) if any(target.rounded_precision for target in targets) else []
    sixteen = [Choice(bf16=mask) for mask in together]
    narrow = bound_by_weights(environment.graph, groups) if any(each.quantises_only_weights for each in targets) else []
    weights = [Choice(weights=1 << number) for number in narrow]
    progress.phase("running the model with rounded operands", len(eight) + len(weights) + len(sixteen))
    found = prober.errors([*eight, *sixteen, *weights])
    of_weights = dict(zip(narrow, found[len(eight) + len(sixteen) :], strict=True))
    int8 = found[: len(eight)] or [0.0] * len(groups)  # no target computes so
    bf16 = shared_out(groups, together, found[len(eight) : len(eight) + len(sixteen)], int8)
    return Sensitivities(groups=groups, int8=int8, bf16=bf16, weights=of_weights)
