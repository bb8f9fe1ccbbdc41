"""Tables of the smaller reports: doctor, inspect, compare."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from collage.report import figures
from collage.report.facts.batch_facts import BatchEntry, BatchReport
from collage.report.facts.bench_facts import ApparentLoss, BenchReport
from collage.report.facts.compare_facts import CompareReport, ValueComparison
from collage.report.facts.doctor_facts import DoctorReport
from collage.report.facts.inspect_facts import InspectReport
from collage.report.facts.measure_facts import MeasureReport
from collage.report.facts.record import HostFacts, ModelFacts
from collage.report.facts.resolve_facts import ResolveReport
from collage.report.facts.run_facts import RunReport
from collage.report.fitted_table import add_cells, plain_table
from collage.report.text.operator_summary import summarize_operators
from collage.report.text.tables import comparison_table, refusals_table
from collage_core.entry_points import PluginFailure

_VALUES_SHOWN = 10
_REFUSALS_SHOWN = 12


def doctor_summary(report: DoctorReport) -> RenderableType:
    """Render the machine, every toolchain with its targets, and why any toolchain is unusable."""
    table = plain_table("toolchain", "library", "brought by", "targets", drop=("brought by", "library"))
    for toolchain in report.toolchains:
        targets = ", ".join(toolchain.targets) or "unusable, see below"
        cells = (toolchain.name, toolchain.fingerprint or "-", toolchain.distribution, targets)
        add_cells(table, *cells, style="" if toolchain.targets else "dim")
    reasons = [
        Text(
            f"{toolchain.name} is {'in part ' if toolchain.targets else ''}unusable: "
            f"{toolchain.unusable or 'it offers no target on this machine'}"
        )
        for toolchain in report.toolchains
        if toolchain.unusable or not toolchain.targets
    ]
    lines = [
        f"collage {report.collage_version}, Python {report.host.python}",
        _host_line(report.host),
        f"devices: {', '.join(report.devices) or 'none'}",
        *(f"unusable device {reason}" for reason in report.unusable_devices),
        *(f"warning: {warning}" for warning in report.warnings),
    ]
    clashes = [Text(str(clash)) for clash in report.clashes]
    if report.tuning_db:
        lines.append(f"tuning database: {report.tuning_db}")
    return Group(*(Text(line) for line in lines), table, *reasons, *clashes, *_failures(report.failures))


def resolve_summary(report: ResolveReport) -> RenderableType:
    """Render a plan for a machine that may be elsewhere, and why it is this one."""
    table = plain_table("target", ">nodes", "operators", ">us", drop=("nodes",))
    for kernel in report.kernels:
        cells = (kernel.target, str(len(kernel.nodes)), summarize_operators(kernel.operators))
        add_cells(table, *cells, figures.microseconds(kernel.cost_us))
    took = "" if report.measured_ms is None else f", {figures.milliseconds(report.measured_ms)} ms in its race there"
    predicted = f"{figures.milliseconds(report.predicted_ms)} ms predicted"
    lines = [
        _model_line(report.model),
        f"on {report.host}, {figures.counted(report.threads, 'thread')}",
        f"{figures.counted(len(report.kernels), 'kernel')}, {predicted}{took}",
        report.decision,
        *(f"note: {note}" for note in report.notes),
    ]
    return Group(table, *(Text(line) for line in lines))


def measure_summary(report: MeasureReport) -> RenderableType:
    """Render what a kernel takes on each target, and why there is no time of some."""
    table = plain_table("target", ">us", ">95 %", ">of the fastest", ">95 % ", ">error", drop=("95 % ", "error"))
    for each in report.targets:
        if each.cost_us is None or each.ci95_us is None or each.ratio is None or each.ratio_ci95 is None:
            continue
        add_cells(
            table,
            each.target,
            figures.microseconds(each.cost_us),
            figures.span(each.ci95_us),
            figures.ratio(each.ratio),
            figures.span(each.ratio_ci95, 3),
            "-" if each.error is None else figures.error(each.error),
        )
    lines = [
        _model_line(report.model),
        f"{figures.counted(len(report.nodes), 'node')}: {summarize_operators(report.operators)}",
        f"{figures.counted(report.threads, 'thread')}, {figures.counted(report.rounds, 'round')}; "
        "times at the machine's usual speed; ratios are medians over rounds",
    ]
    reasons = [Text(f"{each.target}: {each.reason}") for each in report.targets if each.reason]
    return Group(*(Text(line) for line in lines), table, *reasons)


def inspect_summary(report: InspectReport, *, everything: bool = False) -> RenderableType:
    """Render a model and the nodes that each target would take of it."""
    counts = sorted(report.operators.items(), key=lambda item: (-item[1], item[0]))
    lines = [
        _model_line(report.model),
        f"nodes that need a kernel: {report.kernel_nodes}",
        *(f"input  {value}" for value in report.inputs),
        *(f"output {value}" for value in report.outputs),
        "operators: " + ", ".join(f"{operator} {count}" for operator, count in counts),
        *(f"note: {note}" for note in report.notes),
    ]
    table = plain_table(
        "target", ">takes", ">of nodes", ">share", ">candidates", ">distinct", drop=("share", "distinct")
    )
    for target in report.targets:
        if not target.unusable:
            add_cells(
                table,
                target.target,
                str(target.claimed_nodes),
                str(report.kernel_nodes),
                figures.percent(target.claimed_nodes, report.kernel_nodes),
                str(target.candidates),
                str(target.distinct_candidates),
            )
    unusable = [Text(f"{t.target} is unusable: {t.unusable}") for t in report.targets if t.unusable]
    refusals = [refusal for target in report.targets for refusal in target.refusals]
    limit = None if everything else _REFUSALS_SHOWN
    refused = [refusals_table(refusals, limit=limit)] if refusals else []
    return Group(*(Text(line) for line in lines), table, *unusable, *_failures(report.failures), *refused)


def bench_summary(report: BenchReport) -> RenderableType:
    """Render a comparison with the conditions under which it holds."""
    threads = figures.counted(report.threads, "thread")
    lines = [_model_line(report.model), f"{_host_line(report.host)}; {threads} per contender"]
    notes = [Text(f"note: {note}") for note in report.notes]
    losses = [Text(_apparent_loss(each)) for each in report.apparent_losses]
    return Group(*(Text(line) for line in lines), comparison_table(report.comparison), *losses, *notes)


def compare_summary(report: CompareReport, *, everything: bool = False) -> RenderableType:
    """Render values against the reference: always outputs and failures, boundaries as far as space permits."""
    table = plain_table("value", "is", "made by", ">error", "verdict")
    shown = report.values if everything else _worth_showing(report.values)
    for value in shown:
        maker = f"{value.region} {value.target}".strip() or "-"
        verdict = ("ok" if value.passed else "BEYOND TOLERANCE") + (f": {value.reason}" if value.reason else "")
        cells = (value.name, value.place, maker, figures.error(value.error), verdict)
        add_cells(table, *cells, style="" if value.passed else "red")
    inputs = "the inputs given" if report.seed is None else f"random inputs (seed {report.seed})"
    hidden = len(report.values) - len(shown)
    lines = [f"{report.package} against the reference of {report.model}, on {inputs}"]
    more = f"{figures.counted(hidden, 'more boundary', 'more boundaries')} within tolerance; -v lists all"
    below = [more] if hidden else []
    below += [f"not independently checked: {name}: {reason}" for name, reason in sorted(report.unchecked.items())]
    return Group(*(Text(line) for line in lines), table, *(Text(line) for line in below), Text(compare_verdict(report)))


def compare_verdict(report: CompareReport) -> str:
    """Return the outcome in one line."""
    if not report.values:
        return "nothing was compared"
    tolerance = f"rtol {report.rtol:g} of each tensor's scale, atol {report.atol:g}"
    bad = [value for value in report.values if not value.passed]
    values = figures.counted(len(report.values), "value")
    if not bad:
        return f"{values} within tolerance, none beyond ({tolerance}); largest error {figures.error(report.max_error)}"
    first = f"{bad[0].name!r}" + (f", made by {bad[0].region} ({bad[0].target})" if bad[0].region else "")
    return f"{len(bad)} of {values} beyond tolerance ({tolerance}); the first is {first}"


def run_summary(report: RunReport) -> RenderableType:
    """Render statistics of the outputs, and the profile if there is one."""
    inputs = "the inputs given" if report.seed is None else f"random inputs (seed {report.seed})"
    outputs = plain_table("output", "type", "shape", ">smallest", ">largest", ">mean")
    for output in report.outputs:
        shape = "x".join(map(str, output.shape)) or "-"
        numbers = ("-", "-") if output.range is None else tuple(f"{bound:.6g}" for bound in output.range)
        mean = "-" if output.mean is None else f"{output.mean:.6g}"
        add_cells(outputs, output.name, output.dtype, shape, *numbers, mean)
    parts: list[RenderableType] = [Text(f"{report.package} ran on {inputs}"), outputs]
    if report.steps:
        whole = sum(step.median_us for step in report.steps)
        profile = plain_table("kernel", "target", ">nodes", ">median us", ">share")
        for step in report.steps:
            time, share = figures.microseconds(step.median_us), figures.percent(step.median_us, whole)
            add_cells(profile, step.name, step.target, str(step.nodes), time, share)
        parts += [profile, Text(f"sum of the kernels: {figures.milliseconds(whole / 1000)} ms")]
    if not report.device_work.is_none:
        parts.append(Text(f"devices: {report.device_work.counts()}"))
        parts += [
            Text(f"  {figures.counted(kernels, 'kernel')} launched one by one: {reason}")
            for reason, kernels in report.device_work.eager_reasons()
        ]
    return Group(*parts, *(Text(f"note: {note}") for note in report.notes))


def batch_summary(report: BatchReport) -> RenderableType:
    """Render a line for each model on each machine, and below it why some have no package."""
    machines = sorted({entry.machine for entry in report.entries})
    names = {machine: f"m{number}" for number, machine in enumerate(machines, start=1)}
    table = plain_table(
        "model",
        "on",
        "best single",
        ">ms",
        "plan",
        ">plan ms",
        ">ratio",
        ">error",
        drop=("error", "plan", "best single"),
    )
    for entry in report.entries:
        add_cells(table, entry.model, names[entry.machine], *_batch_cells(entry), style="" if entry.package else "red")
    known = sum(bool(entry.package) and not entry.made for entry in report.entries)
    lines = [f"{names[machine]}: {machine}" for machine in machines]
    lines += [f"{entry.model} on {names[entry.machine]}: {entry.reason}" for entry in report.entries if entry.reason]
    if known:
        lines.append(f"{figures.counted(known, 'package was', 'packages were')} there already, made of the same")
    lines += [f"note: {note}" for note in report.notes]
    return Group(table, *map(Text, lines))


def _batch_cells(entry: BatchEntry) -> tuple[str, ...]:
    return (
        entry.best_single or "-",
        "-" if entry.best_single_ms is None else figures.milliseconds(entry.best_single_ms),
        ", ".join(entry.toolchains) or "-",
        "-" if entry.latency_ms is None else figures.milliseconds(entry.latency_ms),
        "-" if entry.ratio is None else f"{entry.ratio:.3f}",
        "-" if entry.max_error is None else figures.error(entry.max_error),
    )


def _apparent_loss(each: ApparentLoss) -> str:
    low, high = (100 * bound for bound in each.loss_ci95)
    return (
        f"apparent loss of {each.contender} against {each.plan}: {100 * each.loss:+.1f} % "
        f"(95 % interval {low:+.1f} to {high:+.1f} %)"
    )


def _worth_showing(values: tuple[ValueComparison, ...]) -> list[ValueComparison]:
    room = _VALUES_SHOWN
    boundaries = sorted((v for v in values if v.place != "output" and v.passed), key=lambda v: (-v.error, v.name))
    kept = {id(value) for value in boundaries[:room]}
    return [value for value in values if value.place == "output" or not value.passed or id(value) in kept]


def _host_line(host: HostFacts) -> str:
    cores = figures.counted(host.physical_cores, "core")
    return f"{host.system}, {host.cpu}, {cores}, {figures.size(host.memory_bytes)}"


def _model_line(model: ModelFacts) -> str:
    given = f" (as given: {model.nodes_as_given})" if model.nodes_as_given != model.nodes else ""
    return f"{model.name}: {figures.counted(model.nodes, 'node')}{given}, sha256 {model.sha256[:12]}"


def _failures(failures: Iterable[PluginFailure]) -> list[Text]:
    return [Text(f"{f.name} ({f.distribution}) does not load: {f.reason}") for f in failures]
