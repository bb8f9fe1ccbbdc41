"""Plans that turned out wrong, or did not run, though no kernel of theirs is to blame: kept for who solves again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import ClassVar

from collage.measure.worker.judge_version import JUDGE
from collage.store import Removal, TuningStore, plan_name
from collage_core.candidates.plan import Plan
from collage_core.contract import Host


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WrongPlan:
    """A plan that was not kept.

    Attributes:
        reason: Why.
        bound: Largest error that was allowed, if only that is too large: under a larger one it may be kept.
    """

    KIND: ClassVar[str] = "wrong plan"
    VERSION: ClassVar[int] = 2

    reason: str
    bound: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class WrongPlans:
    """Those of one model on one machine.

    Attributes:
        database: Keeps them.
        model: SHA-256 of the model as given.
        model_key: Hash of the model with its weights, input shapes and inputs.
        host: The machine.
        threads: CPU threads.
    """

    database: TuningStore
    model: str
    model_key: str
    host: Host
    threads: int

    def reason(self, plan: Plan, plugins: Sequence[str], bound: float) -> str:
        """Return why a plan would not be kept; empty if nothing is known against it.

        Args:
            plan: The plan.
            plugins: Version of the plugin of each of its toolchains, in their order: another may have mended it.
            bound: Largest error that its outputs may have, if its kernels are of lower precision.
        """
        known = self.database.get_document(WrongPlan, self._name(plan, plugins))
        if known is None or (known.bound is not None and bound > known.bound):
            return ""
        return known.reason

    def note(self, plan: Plan, plugins: Sequence[str], reason: str, bound: float | None = None) -> None:
        """Keep that a plan is wrong, or, without a reason, that it is right.

        Args:
            plan: The plan.
            plugins: As for `reason`.
            reason: Why it is wrong.
            bound: See `WrongPlan`.
        """
        name = self._name(plan, plugins)
        if reason:
            self.database.put_document(name, WrongPlan(reason=reason, bound=bound))
        elif self.database.get_document(WrongPlan, name) is not None:
            self.database.remove(Removal(documents=frozenset({(WrongPlan.KIND, name)})))

    def _name(self, plan: Plan, plugins: Sequence[str]) -> str:
        host = self.host.fingerprint_for(*(kernel.target.device for kernel in plan.kernels))
        what = [plan.key, self.model_key, host, self.threads, list(plugins), JUDGE]
        return plan_name(self.model, plan.targets, hashlib.sha256(json.dumps(what).encode()).hexdigest())
