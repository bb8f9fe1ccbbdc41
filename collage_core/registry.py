"""Find toolchain plugins and give each a typed façade; the only caller of pluggy.

There is one `pluggy.PluginManager` per toolchain: in a shared one, a raising plugin loses the results of all plugins,
and with `firstresult` one plugin could answer for another's target.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pluggy

from collage_core import hookspecs
from collage_core.contract import (
    Artifact,
    BoundCall,
    BuildContext,
    Host,
    Kernel,
    KernelFunction,
    KernelProfile,
    Measurement,
    Protocol,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.contract.answers import artifact_problem, profile_problem, target_problem
from collage_core.entry_points import (
    PluginFailure,
    check_not_left_out,
    discovered,
    distinct,
    distribution_of,
    referred,
)
from collage_core.error_text import one_line
from collage_core.errors import LoweringError, PluginError
from collage_core.fusion import FusionRule
from collage_core.patterns import PatternTable
from collage_core.plugin_calls import guarded_table, in_driver

MOST_TARGETS = 64
"""Targets that a plugin may offer on one machine: each is asked about the whole model and proposes candidates."""
MOST_CHARACTERS = 2000
"""Length to which reasons of a library are cut."""

_IN_DRIVER = frozenset(
    {"collage_check_host", "collage_register_patterns", "collage_register_predicates", "collage_fusion_spec"}
)
"""Hooks that run in the driver, so that a hang cannot be ended by killing a worker."""
_HOOKS = frozenset(name for name in vars(hookspecs) if name.startswith("collage_"))


class Toolchain:
    """A typed wrapper of one plugin: every result is checked, every exception becomes a `PluginError`.

    Args:
        name: The toolchain's name: that of its entry point.
        plugin: An object whose methods carry `hookspecs.hookimpl`.
        distribution: Distribution that provides it, with its version; empty for a plugin object created in place.
        module: Module it was loaded from; that of its class if empty.

    Raises:
        PluginError: If the plugin implements hooks with arguments that the contract does not have.
    """

    def __init__(self, name: str, plugin: object, distribution: str = "", module: str = "") -> None:
        self.name = name
        self.distribution = distribution
        self.module = module or type(plugin).__module__
        manager = pluggy.PluginManager("collage")
        manager.add_hookspecs(hookspecs)
        try:
            manager.register(plugin, name)
            manager.check_pending()
        except Exception as error:  # pluggy looks at every attribute, and a property may raise anything
            raise PluginError(name, "registration", one_line(error)) from error
        self._hooks = manager.hook
        self._implemented = {
            caller.name for caller in manager.get_hookcallers(plugin) or () if caller.name.startswith("collage_")
        }
        if not self._implemented:
            raise PluginError(
                name, "registration", f"{type(plugin).__name__} implements no hook; decorate its methods with @hookimpl"
            )
        owner = plugin if isinstance(plugin, types.ModuleType) else type(plugin)
        for hook in sorted(_HOOKS - self._implemented):
            if callable(getattr(owner, hook, None)):
                raise PluginError(name, "registration", f"{hook} has no @hookimpl, so it would never be called")

    def __repr__(self) -> str:
        return f"Toolchain({self.name!r})"

    def implements(self, hook: str) -> bool:
        """Return whether the plugin implements `hook`, e.g. `"collage_query"`."""
        return hook in self._implemented

    def check_host(self, host: Host) -> Supported | Unsupported:
        """Check from a machine's known properties whether the toolchain can run on it.

        Raises:
            PluginError: If the hook raises, hangs, or returns a value of another type.
        """
        if not self.implements("collage_check_host"):
            return Supported()
        checked: Supported | Unsupported = self._call("collage_check_host", (Supported, Unsupported), host=host)
        return checked

    def targets(self, host: Host) -> tuple[Target, ...] | Unsupported:
        """List the targets on this machine, or return the reason why there are none. Worker only.

        Raises:
            PluginError: If a hook raises, returns a value of another type, or more than `MOST_TARGETS`.
        """
        checked = self.check_host(host)
        if isinstance(checked, Unsupported):
            return checked
        answer = self._call("collage_targets", (Sequence, Unsupported), host=host)
        if isinstance(answer, Unsupported):
            return answer
        targets = tuple(itertools.islice(answer, MOST_TARGETS + 1))
        if len(targets) > MOST_TARGETS:
            raise PluginError(self.name, "collage_targets", f"more than the {MOST_TARGETS} targets that are possible")
        for target in targets:
            if not isinstance(target, Target) or target.toolchain != self.name:
                raise PluginError(self.name, "collage_targets", f"{target!r} is not a target of {self.name!r}")
            if problem := target_problem(target):
                raise PluginError(self.name, "collage_targets", f"of a target, {problem}")
        if not targets:
            return Unsupported("it offers no target on this machine")
        names = [target.name for target in targets]
        if len(set(names)) < len(names):
            raise PluginError(self.name, "collage_targets", f"two targets have one name: {', '.join(names)}")
        return targets

    def pattern_table(self, target: Target) -> PatternTable:
        """Return the patterns and predicates of a target; one that fails on a node refuses that node.

        Raises:
            PluginError: If a hook raises or hangs; for a predicate that hangs, when it is called.
        """
        table = PatternTable()
        self._call("collage_register_patterns", (type(None),), table=table, target=target)
        self._call("collage_register_predicates", (type(None),), table=table, target=target)
        return guarded_table(table)

    def fusion_rule(self, target: Target, default: FusionRule) -> FusionRule:
        """Return the plugin's own rule for a target, or `default`.

        Raises:
            PluginError: If the hook raises or returns a value of another type.
        """
        answer = self._call("collage_fusion_spec", (FusionRule, type(None)), target=target, default=default)
        return default if answer is None else answer

    def query(self, target: Target, model: KernelFunction) -> Mapping[str, str] | None:
        """Return the nodes the library refuses, name to reason; None for no opinion. Worker only.

        Raises:
            PluginError: If the hook raises, returns a value of another type, or refuses more nodes than there are.
        """
        answer: Mapping[str, str] | None = self._call(
            "collage_query", (Mapping, type(None)), target=target, model=model
        )
        if answer is None:
            return None
        most = sum(1 for _ in model.model.graph.all_nodes())
        try:
            refused = dict(itertools.islice(answer.items(), most + 1))
        except Exception as error:
            raise PluginError(self.name, "collage_query", one_line(error)) from error
        if not all(isinstance(k, str) and isinstance(v, str) and v for k, v in refused.items()):
            raise PluginError(self.name, "collage_query", "the answer must map node names to reasons")
        if len(refused) > most:
            raise PluginError(self.name, "collage_query", f"it refuses more nodes than the {most} of the model")
        return {name: reason[:MOST_CHARACTERS] for name, reason in refused.items()}

    def lower(self, target: Target, function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
        """Lower one candidate to variants, built lazily, or return the refusal. Worker only.

        Raises:
            LoweringError: If the toolchain failed to build what it accepted; also from the iterator.
            PluginError: If the hook raises anything else or returns a value of another type; also from the iterator.
        """
        answer = self._call(
            "collage_lower", (Iterable, Unsupported), let=LoweringError, target=target, function=function, build=build
        )
        return answer if isinstance(answer, Unsupported) else self._artifacts(answer)

    def _artifacts(self, variants: Iterable[Artifact]) -> Iterator[Artifact]:
        try:
            for variant in variants:
                if not isinstance(variant, Artifact):
                    raise PluginError(self.name, "collage_lower", f"yielded {type(variant).__name__}, not an Artifact")
                if problem := artifact_problem(variant):
                    raise PluginError(self.name, "collage_lower", f"of an artifact, {problem}")
                yield variant
        except (LoweringError, PluginError, GeneratorExit):
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(self.name, "collage_lower", one_line(error)) from error

    def check_data(self, target: Target, artifact: Artifact) -> Supported | Unsupported:
        """Check that an artifact of unknown origin is data; without the plugin's word it is code.

        Raises:
            PluginError: If the hook raises or returns a value of another type.
        """
        if not self.implements("collage_check_data"):
            return Unsupported("it is code")
        checked: Supported | Unsupported = self._call(
            "collage_check_data", (Supported, Unsupported), target=target, artifact=artifact
        )
        return checked

    def load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Load an artifact as a callable kernel, or return the reason why it cannot run here.

        Raises:
            PluginError: If the hook raises or returns an object that cannot be bound.
        """
        answer = self._call("collage_load", (object,), target=target, artifact=artifact, run=run)
        if isinstance(answer, Unsupported):
            return answer
        if not callable(getattr(answer, "bind", None)):
            raise PluginError(self.name, "collage_load", f"{type(answer).__name__} has no bind method")
        kernel: Kernel = answer
        return kernel

    def measure(
        self, target: Target, call: BoundCall, protocol: Protocol, fallback: Callable[[], Measurement]
    ) -> Measurement:
        """Run time of a bound call by the plugin's clock, or core's where it has none. Worker only.

        Raises:
            PluginError: If the hook raises or answers with anything else.
        """
        answer: Measurement | None = self._call(
            "collage_measure",
            (Measurement, type(None)),
            target=target,
            call=call,
            protocol=protocol,
            fallback=fallback,
        )
        if answer is None:
            return fallback()
        try:  # numbers of NumPy are no JSON
            samples = tuple(float(sample) for sample in answer.samples_us)
            return Measurement(
                samples_us=samples,
                warmup_runs=int(answer.warmup_runs),
                calls_per_sample=int(answer.calls_per_sample),
                blocks=tuple(answer.blocks),
            )
        except (TypeError, ValueError) as error:
            raise PluginError(self.name, "collage_measure", one_line(error)) from error

    def profile(
        self,
        target: Target,
        function: KernelFunction,
        artifact: Artifact,
        run: RunContext,
        bind: Callable[[Kernel], BoundCall],
        runs: int,
    ) -> KernelProfile | Unsupported:
        """Return where the time of a kernel goes by the library's own profiler, or why it cannot say. Worker only.

        Raises:
            PluginError: If the hook raises, answers with anything else, or names nodes the function does not have.
        """
        if not self.implements("collage_profile"):
            return Unsupported("the toolchain does not profile its kernels")
        answer: KernelProfile | Unsupported = self._call(
            "collage_profile",
            (KernelProfile, Unsupported),
            target=target,
            function=function,
            artifact=artifact,
            run=run,
            bind=bind,
            runs=runs,
        )
        if isinstance(answer, KernelProfile) and (problem := profile_problem(answer, function)):
            raise PluginError(self.name, "collage_profile", f"of a profile, {problem}")
        return answer

    def _call(self, hook: str, types: tuple[type, ...], let: type[Exception] | tuple[()] = (), **arguments: Any) -> Any:
        if hook not in self._implemented:
            if type(None) in types:
                return None
            raise PluginError(self.name, hook, "the plugin does not implement it")
        call = functools.partial(getattr(self._hooks, hook), **arguments)
        if hook in _IN_DRIVER:
            answer = in_driver(self.name, hook, call)
        else:
            try:
                answer = call()
            except let:
                raise
            except (Exception, SystemExit) as error:
                raise PluginError(self.name, hook, one_line(error)) from error
        if not isinstance(answer, types):
            expected = " or ".join(kind.__name__ for kind in types)
            raise PluginError(self.name, hook, f"answered with {type(answer).__name__}, not {expected}")
        return answer


@dataclasses.dataclass(frozen=True, slots=True)
class Registry:
    """The toolchains installed for this interpreter.

    Attributes:
        toolchains: Toolchains by name, sorted.
        failures: Entry points that provided no toolchain, with the reason.
    """

    toolchains: Mapping[str, Toolchain]
    failures: tuple[PluginFailure, ...] = ()

    @classmethod
    def discover(cls) -> Registry:
        """Load every entry point of the group `collage.backends`, each independently.

        A plugin that fails to load does not affect others. If two distributions claim one name, neither is loaded.
        """
        return cls(*discovered(hookspecs.ENTRY_POINT_GROUP, _load, "a toolchain of this name"))

    @classmethod
    def of(cls, *toolchains: Toolchain) -> Registry:
        """Build a registry of toolchains created in place, for tests and notebooks."""
        return cls({toolchain.name: toolchain for toolchain in sorted(toolchains, key=lambda t: t.name)})


def load_toolchain(name: str) -> Toolchain:
    """Load one installed toolchain.

    Raises:
        PluginError: If no entry point has this name, several distributions do, it is left out, or it fails to load.
    """
    check_not_left_out(name)
    found = distinct(importlib.metadata.entry_points(group=hookspecs.ENTRY_POINT_GROUP, name=name))
    if len(found) != 1:
        reason = "no installed distribution brings it" if not found else "several distributions bring it"
        raise PluginError(name, "import", reason)
    return _load(found[0])


def load_plugin(reference: str, name: str) -> Toolchain:
    """Load a toolchain from `module:attribute`, without an entry point: for plugins under development.

    Raises:
        PluginError: If the module cannot be imported or has no such attribute.
    """
    return Toolchain(name, referred(reference, name), reference, reference.partition(":")[0])


def _load(entry: importlib.metadata.EntryPoint) -> Toolchain:
    plugin = in_driver(entry.name, "import", entry.load)
    # pluggy looks at every attribute, and a property is the plugin's code
    register = functools.partial(Toolchain, entry.name, plugin, distribution_of(entry), entry.module)
    return in_driver(entry.name, "registration", register)
