"""Names under which the tuning database keeps what is found out of a model and its calibration samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage.store import plan_name
from collage_core.candidates.plan import Plan
from collage_core.contract import Json


def document_name(environment: Environment[Workload], targets: Sequence[str], what: Sequence[Any]) -> str:
    """Return the name under which the database keeps what targets say of the model and its calibration samples.

    Args:
        environment: The model.
        targets: Names of the targets.
        what: All that it depends on besides.
    """
    digest = hashlib.sha256(json.dumps([environment.workload.calibration_key, *what]).encode()).hexdigest()
    return plan_name(environment.workload.sha256, set(targets), digest)


def plan_facts(environment: Environment[Workload], plan: Plan) -> list[Json]:
    """Return what the outputs of a plan depend on besides the model and its inputs."""
    toolchains = environment.toolchains
    host = toolchains.host.fingerprint_for(*(kernel.target.device for kernel in plan.kernels))
    plugins: list[Json] = [toolchains.plugins[name] for name in plan.toolchains]
    return [plan.key, host, toolchains.threads, plugins]
