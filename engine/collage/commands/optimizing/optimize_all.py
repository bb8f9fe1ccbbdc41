"""`optimize-all`: optimize many models on machines of several kinds, and collect the packages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from collage.errors import RecordError
from collage.fleet.batch import Done, Task, run_all
from collage.fleet.describing import described
from collage.fleet.jobs import AskOptimize, Description, OptimizeDone, is_inside, to_bytes
from collage.fleet.runners import open_runner
from collage.measure.wire.outcomes import Failed
from collage.options import OptimizeOptions
from collage.report.documents.codec import record_from_document
from collage.report.facts.batch_facts import BatchEntry, BatchReport
from collage.report.facts.record import Record
from collage.report.files import write_text
from collage.report.progress import Progress, SilentProgress
from collage.runtime.package import load_package
from collage.setup.facts import external_files, file_sha256
from collage.setup.settings import SetupChoices
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Runner, RunnerHost
from collage_core.errors import CollageError, ModelFileError, UsageError
from collage_core.ir.io.model_io import load_model
from collage_core.ir.io.replacement import Replacement

PASSED_ON: Final = frozenset(
    {"toolchains", "exclude", "input_shapes", "preset", "search", "budget_s", "max_error", "threads", "seed"}
)
"""Options of `optimize` that a machine is told."""
_DAY_S: Final = 86_400.0


def optimize_all(
    folder: Path,
    output: Path,
    options: OptimizeOptions | None = None,
    *,
    runner: str = "local",
    machines: Sequence[str] = (),
    progress: Progress | None = None,
) -> BatchReport:
    """Optimize every model of a folder on every kind of machine that a runner has; resumed where it was ended.

    A package is written as soon as it is made, to `OUTPUT/MACHINE/MODEL.collage`. Those that are there already, made of
    the same model with the same options and libraries, are kept.

    Args:
        folder: Its ONNX files are the models, those of folders in it too.
        output: Folder of the packages.
        options: As for `optimize`, as far as machines are told of them (`PASSED_ON`). Each model takes the shapes of
            the inputs that it has.
        runner: Who has the machines, as for `OptimizeOptions.runner`.
        machines: Parts of fingerprints: only machines whose fingerprint has one of them. All if there are none.
        progress: Receives progress updates.

    Raises:
        UsageError: If there is no model or no machine, or an option cannot be passed on.
        RunnerError: If the machines cannot be used.
        OSError: If a package cannot be written.
    """
    options, progress = options or OptimizeOptions(), progress or SilentProgress()
    for field in dataclasses.fields(options):
        if field.name not in PASSED_ON and getattr(options, field.name) != getattr(OptimizeOptions(), field.name):
            raise UsageError(f"machines of a runner are not told of {field.name}: leave it out")
    models = models_in(folder)
    if not models:
        raise UsageError(f"there is no ONNX file in {str(folder)!r}")
    _check_shapes(models, options)
    progress.phase("asking machines")
    opened = open_runner(runner)
    try:
        kinds, notes = _kinds(opened, runner, machines, options)
        jobs, entries = [], list[BatchEntry]()
        for model, kind in itertools.product(models, kinds.values()):
            try:
                job = _Job.of(model, folder, output, options, kind)
            except (CollageError, OSError) as error:
                name = str(model.relative_to(folder))
                entries.append(BatchEntry(model=name, machine=kind.fingerprint, reason=str(error)))
                progress.message(f"{name}: {error}")
                continue
            known = job.known()
            if known is None:
                jobs.append(job)
            else:
                entries.append(job.entry(known, made=False))
        progress.phase("optimizing", len(jobs))
        entries += _made(opened, jobs, kinds, progress)
    finally:
        opened.close()
        progress.done()
    entries.sort(key=lambda each: (each.model, each.machine))
    return BatchReport(runner=runner, entries=tuple(entries), notes=tuple(notes))


def models_in(folder: Path) -> list[Path]:
    """Return the ONNX files of a folder and of those in it, in order."""
    return sorted(folder.rglob("*.onnx"))


def _check_shapes(models: Sequence[Path], options: OptimizeOptions) -> None:
    """Refuse a shape of an input that no model has.

    Raises:
        UsageError: If there is one.
    """
    strange = set(options.input_shapes)
    for model in models if strange else ():
        with contextlib.suppress(CollageError):  # said of the model itself
            strange -= {value.name for value in load_model(model).graph.inputs}
    if strange:
        raise UsageError(f"no model has an input {', '.join(sorted(strange))}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kind:
    """Machines of one kind, with one set of libraries."""

    fingerprint: str
    folder: str
    libraries: Mapping[str, Any]
    hosts: tuple[RunnerHost, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Job:
    """A model for a kind of machine."""

    model: str
    kind: _Kind
    ask: AskOptimize
    files: Mapping[str, Path]
    package: Path
    output: Path
    digest: str

    @classmethod
    def of(cls, path: Path, folder: Path, output: Path, options: OptimizeOptions, kind: _Kind) -> _Job:
        """Return the job; reads the model's files.

        Raises:
            CollageError: If the model cannot be used.
            OSError: If a file cannot be read.
        """
        given = load_model(path)
        beside = {os.path.relpath(each, path.parent): each for each in external_files(given)}
        for name in (path.name, *beside):
            if not is_inside(name):
                raise ModelFileError(str(path), f"its file {name!r} is not in its folder")
        files = {name: file_sha256(each) for name, each in {path.name: path, **beside}.items()}
        told = {name: getattr(options, name) for name in PASSED_ON}
        inputs = {value.name for value in given.graph.inputs}
        told["input_shapes"] = {name: shape for name, shape in options.input_shapes.items() if name in inputs}
        ask = AskOptimize(
            name=path.name,
            model=files[path.name],
            files={name: files[name] for name in beside},
            deadline_s=_DAY_S,
            **told,
        )
        model = path.relative_to(folder)
        what = json.dumps(kind.libraries, sort_keys=True).encode() + to_bytes(ask)
        return cls(
            model=str(model),
            kind=kind,
            ask=ask,
            files={files[name]: each for name, each in {path.name: path, **beside}.items()},
            package=output / kind.folder / model.with_suffix(".collage"),
            output=output,
            digest=hashlib.sha256(what).hexdigest(),
        )

    @property
    def _note(self) -> Path:
        return self.package.with_suffix(".job")

    def known(self) -> Record | None:
        """Return the record of the package if it was made of the same."""
        try:
            if self._note.read_text(encoding="ascii").split() == [self.digest, file_sha256(self.package)]:
                return _record(self.package)
        except (OSError, ValueError, CollageError):
            pass  # made anew
        return None

    def task(self) -> Task:
        """Return what a machine is to do."""
        blobs = {blob: functools.partial(Path.read_bytes, path) for blob, path in self.files.items()}
        return Task(name=f"{self.model} for {self.kind.folder}", kind=self.kind.fingerprint, ask=self.ask, blobs=blobs)

    def keep(self, package: bytes) -> Record:
        """Write a package, and then of what it was made.

        Raises:
            OSError: If it cannot be written.
            CollageError: If it is none; what was there before stays.
        """
        with TemporaryFolder("package") as folder:
            (folder / self.package.name).write_bytes(package)
            record = _record(folder / self.package.name)
        self.package.parent.mkdir(parents=True, exist_ok=True)
        self._note.unlink(missing_ok=True)
        with Replacement(self.package) as file:
            file.stream.write(package)
        write_text(self._note, f"{self.digest} {hashlib.sha256(package).hexdigest()}\n")
        return record

    def entry(self, record: Record, *, made: bool) -> BatchEntry:
        """Return what is said of a package."""
        comparison = record.comparison
        single = next((each for each in comparison.contenders if each.name == comparison.best_single), None)
        single_ms = None if single is None or single.latency_ms is None else single.latency_ms.p50
        return BatchEntry(
            model=self.model,
            machine=self.kind.fingerprint,
            package=str(self.package.relative_to(self.output)),
            made=made,
            best_single=comparison.best_single or "",
            best_single_ms=single_ms,
            latency_ms=record.measured_ms,
            ratio=None if single_ms is None or record.measured_ms is None else record.measured_ms / single_ms,
            toolchains=tuple(dict.fromkeys(region.toolchain for region in record.regions)),
            max_error=record.max_error,
        )

    def failed(self, reason: str) -> BatchEntry:
        """Return why there is no package."""
        return BatchEntry(model=self.model, machine=self.kind.fingerprint, reason=reason)


def _kinds(
    runner: Runner, name: str, machines: Sequence[str], options: OptimizeOptions
) -> tuple[dict[str, _Kind], list[str]]:
    """Return the kinds of machines by fingerprint, and a sentence for each machine that takes no part."""
    wanted = SetupChoices.of(options).selection.wanted
    named = None if wanted is None else sorted({spelling.toolchain for spelling in wanted})
    found, notes = described(runner, name, named, cores=None, devices=None)
    kinds: dict[str, _Kind] = {}
    for host, description in found:
        fingerprint = description.leased.fingerprint
        if machines and not any(part in fingerprint for part in machines):
            continue
        libraries = _libraries(description)
        known = kinds.get(fingerprint)
        if known is not None and known.libraries != libraries:
            notes.append(f"{host.name} of {name} takes no part: it has other libraries than {known.hosts[0].name}")
            continue
        hosts = (*(known.hosts if known else ()), host)
        kinds[fingerprint] = _Kind(
            fingerprint=fingerprint, folder=_folder(fingerprint), libraries=libraries, hosts=hosts
        )
    if not kinds:
        seen = "; ".join(sorted({each.leased.fingerprint for _, each in found}))
        raise UsageError(f"{name} has no machine {' or '.join(machines)}; it has {seen}" if seen else "; ".join(notes))
    return kinds, notes


def _libraries(description: Description) -> dict[str, Any]:
    targets = {name: [target.fingerprint for target in each] for name, each in description.targets.items()}
    return {"targets": targets, "plugins": dict(description.plugins), "judge": description.judge}


def _folder(fingerprint: str) -> str:
    """Return the name of a folder for a kind of machine, which no other kind has."""
    digest = hashlib.sha256(fingerprint.encode()).hexdigest()[:6]
    return re.sub(r"[^A-Za-z0-9.]+", "-", fingerprint).strip("-")[:60] + f"-{digest}"


def _made(runner: Runner, jobs: Sequence[_Job], kinds: Mapping[str, _Kind], progress: Progress) -> list[BatchEntry]:
    """Run jobs, and keep each package as it comes."""
    tasks = {id(task): (task, job) for job in jobs for task in [job.task()]}
    hosts = {fingerprint: kind.hosts for fingerprint, kind in kinds.items()}
    entries = []
    for done in run_all(runner, [task for task, _ in tasks.values()], hosts, progress.message):
        _, job = tasks[id(done.task)]
        entries.append(_entry(job, done, progress.message))
        progress.advance()
    return entries


def _entry(job: _Job, done: Done, tell: Callable[[str], None]) -> BatchEntry:
    reason = done.reason
    if isinstance(done.answer, Failed):
        reason = done.answer.reason
    elif isinstance(done.answer, OptimizeDone) and done.answer.package in done.blobs:
        try:
            return job.entry(job.keep(done.blobs[done.answer.package]), made=True)
        except CollageError as error:
            reason = str(error)
    elif not reason:
        reason = f"the machine answered with {type(done.answer).__name__}"
    tell(f"{job.model}: {reason}")
    return job.failed(reason)


def _record(package: Path) -> Record:
    """Return the record of a package.

    Raises:
        CollageError: If it cannot be read.
    """
    plans = load_package(package).plans
    if len(plans) != 1 or plans[0].record is None:
        raise RecordError(str(package), f"it is none of one plan, but of {len(plans)}")
    return record_from_document(plans[0].record, str(package))
