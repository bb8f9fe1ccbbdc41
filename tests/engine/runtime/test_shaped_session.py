"""One package of plans for several shapes: joined from packages, loaded as one session, chosen by the inputs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.errors import PackageDamagedError
from collage.reference import evaluate
from collage.runtime import places
from collage.runtime.arena import allocate
from collage.runtime.load import load
from collage.runtime.package import Package, join_packages, load_package
from collage.runtime.places import Reserve
from collage.runtime.session import Session
from collage.runtime.shapes.choosing_session import ChoosingSession
from collage.runtime.shapes.ranged_session import RangedSession
from collage.runtime.shapes.shaped_session import ShapedSession
from collage_core.errors import FeedError, UsageError
from tests.engine.runtime.mocks import ExecutingMock
from tests.engine.runtime.packages import changed_manifest, of_batch, registry, rewrite, save

Parse = Callable[[str], ir.Model]

BATCHES = (1, 2, 5)


@pytest.fixture
def models(parsed: Parse) -> dict[int, ir.Model]:
    return {batch: of_batch(parsed, batch) for batch in BATCHES}


@pytest.fixture
def joined(tmp_path: Path, models: dict[int, ir.Model]) -> Path:
    packages = [
        load_package(save(tmp_path / f"{batch}.collage", model, record={"batch": batch}))
        for batch, model in models.items()
    ]
    join_packages(tmp_path / "joined.collage", packages)
    return tmp_path / "joined.collage"


def opened(path: Path) -> ShapedSession:
    session = load(path, registry=registry(ExecutingMock()), trusted=True)
    assert isinstance(session, ShapedSession)
    return session


def x_of(batch: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(batch, 32)).astype(np.float32)


def right(models: dict[int, ir.Model], x: np.ndarray[Any, Any]) -> Any:
    return evaluate(models[len(x)], {"x": x}).values["y"]


def test_each_shape_runs_its_own_plan(joined: Path, models: dict[int, ir.Model]) -> None:
    session = opened(joined)

    for batch in (*BATCHES, *reversed(BATCHES)):
        x = x_of(batch, seed=batch)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], right(models, x))
        np.testing.assert_array_equal(session.run(["y"], {"x": x.tolist()})[0], right(models, x))
    [x_argument], [y_argument] = session.get_inputs(), session.get_outputs()
    assert (x_argument.name, x_argument.shape, x_argument.type) == ("x", [None, 32], "tensor(float)")
    assert y_argument.shape == [None, 32]


def test_weights_and_equal_artifacts_are_in_it_once(joined: Path, tmp_path: Path) -> None:
    package = load_package(joined)
    alone = load_package(tmp_path / "1.collage")

    assert package.manifest.weights == alone.manifest.weights
    assert [plan.input_shapes for plan in package.plans] == [{"x": (batch, 32)} for batch in BATCHES]
    assert [plan.record for plan in package.plans] == [{"batch": batch} for batch in BATCHES]
    package.verify()
    weight_bytes = sum(each.nbytes for each in package.manifest.weights.values())
    assert joined.stat().st_size < (tmp_path / "1.collage").stat().st_size * len(BATCHES) - weight_bytes


def test_a_joined_package_can_be_joined_again(joined: Path, tmp_path: Path, parsed: Parse) -> None:
    more = save(tmp_path / "9.collage", of_batch(parsed, 9))

    join_packages(tmp_path / "more.collage", [load_package(joined), load_package(more)])

    package = load_package(tmp_path / "more.collage")
    assert [plan.input_shapes["x"][0] for plan in package.plans] == [*BATCHES, 9]
    assert load_package(joined).plans[1].artifacts == package.plans[1].artifacts


@pytest.mark.guards(
    "inputs of a shape that a package has no plan for",
    "one error that names the shapes it has plans for, and how to add one",
    area="sessions",
)
def test_another_shape_is_refused_with_those_there_are(joined: Path) -> None:
    session = opened(joined)

    said = r"no plan for x:\[3,32\], only for x:\[1,32\]; x:\[2,32\]; x:\[5,32\]; optimize .* --input-shapes"
    with pytest.raises(FeedError, match=said):
        session.run(None, {"x": x_of(3)})
    with pytest.raises(FeedError, match="no value given for this input"):
        session.run(None, {})
    with pytest.raises(FeedError, match=r"'x'.*give an array, by whose shape a plan is chosen"):
        session.run(None, {"x": [[1.0], [1.0, 2.0]]})
    with pytest.raises(FeedError, match=r"'x'.*give an array.*a name has no shape"):
        session.bind({"x": "cuda:0"})
    with pytest.raises(FeedError, match="no such input"):
        session.run(None, {"x": x_of(2), "z": x_of(2)})
    with pytest.raises(FeedError, match="give a value for each input by its name"):
        session.run(None, [x_of(2)])  # type: ignore[arg-type]


def test_what_works_on_inputs_set_before_works_on_their_plan(joined: Path, models: dict[int, ir.Model]) -> None:
    session = opened(joined)

    for batch in (5, 1):
        x = x_of(batch)
        session.set_inputs({"x": x})
        np.testing.assert_array_equal(session.run_bound()[0], right(models, x))
        session.bound_call()
        assert len(session.bound_steps) == 4
        assert [step.name for step in session.profile(runs=1).steps] == [step.name for step in session.bound_steps]
        bound = session.bind({"x": x})
        bound.call()
        np.testing.assert_array_equal(bound.outputs["y"], right(models, x))


def test_plans_run_in_threads_as_sessions_do(joined: Path, models: dict[int, ir.Model]) -> None:
    session = opened(joined)
    twin = session.clone()
    wrong: list[int] = []

    def run(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(20):
            x = x_of(int(random.choice(BATCHES)), seed=int(random.integers(100)))
            made = (session if seed % 2 else twin).run(None, {"x": x})[0]
            if not np.array_equal(made, right(models, x)):
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the arenas and of the places of inputs and outputs that are allocated, in bytes."""
    sizes: list[int] = []
    take = Reserve.take

    def noted(nbytes: int) -> Any:
        sizes.append(nbytes)
        return allocate(nbytes)

    monkeypatch.setattr(places, "allocate", noted)
    monkeypatch.setattr(Reserve, "take", lambda self, name, nbytes, make=noted: take(self, name, nbytes, make))
    return sizes


def test_plans_share_an_arena_and_places_of_the_size_of_the_largest(
    joined: Path, tmp_path: Path, taken: list[int]
) -> None:
    load(tmp_path / "5.collage", registry=registry(ExecutingMock()), trusted=True)
    largest = sorted(taken)
    taken.clear()

    session = opened(joined)

    assert sum(largest) > 0
    assert sorted(taken) == largest
    assert session.arena_bytes == max(each.arena_bytes for each in session.sessions) == session.sessions[2].arena_bytes
    taken.clear()
    session.clone()
    assert sorted(taken) == largest


def test_what_a_caller_holds_of_one_plan_is_not_written_by_another(
    parsed: Parse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collage.runtime.session.LENT_BYTES", 0)  # as large outputs are
    models = {batch: of_batch(parsed, batch) for batch in BATCHES}
    join_packages(
        tmp_path / "all.collage", [load_package(save(tmp_path / f"{b}.collage", m)) for b, m in models.items()]
    )
    session = opened(tmp_path / "all.collage")
    held = []
    for seed in range(30):
        x = x_of(BATCHES[seed % 3], seed)
        held.append((x, session.run(None, {"x": x})[0]))

    for x, y in held:
        np.testing.assert_array_equal(y, right(models, x))
    del held, y
    assert session.output_bytes <= 2 * sum(batch * 32 * 4 for batch in BATCHES)


def test_what_takes_one_plan_says_how_to_choose(joined: Path) -> None:
    package = load_package(joined)

    with pytest.raises(UsageError, match=r"has several plans: .*x:\[2,32\].*choose one with --input-shapes"):
        _ = package.plan
    with pytest.raises(UsageError, match=r"has no plan for x:\[3,32\]: it has plans for x:\[1,32\]"):
        package.plan_for({"x": (3, 32)})
    assert package.plan_for({"x": (2, 32)}) is package.plans[1]


def test_reports_name_the_shapes_of_each_kernel(joined: Path) -> None:
    report = opened(joined).report()

    assert [kernel.name for kernel in report.kernels][::4] == [f"k0000 for x:[{batch},32]" for batch in BATCHES]
    assert report.substitutes == ()
    assert [each.input_shapes for each in report.memory] == [f"x:[{batch},32]" for batch in reversed(BATCHES)]
    assert report.memory[0].arena_bytes > report.memory[-1].arena_bytes > 0


@pytest.mark.parametrize("kind", [ShapedSession, RangedSession])
def test_no_method_of_a_session_of_one_plan_is_inherited(kind: type[Session]) -> None:
    public = {name for name in vars(Session) if not name.startswith("_")}

    assert public <= {*vars(ChoosingSession), *vars(kind)}


def test_one_package_alone_is_a_session_as_always(tmp_path: Path, models: dict[int, ir.Model]) -> None:
    save(tmp_path / "m.collage", models[2])

    assert type(load(tmp_path / "m.collage", registry=registry(ExecutingMock()), trusted=True)) is Session


@pytest.mark.guards(
    "a package whose manifest says other input shapes than its models, or the same for two plans",
    "refused before anything of it is loaded",
    area="packages and files",
)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plans: plans[0].update(input_shapes={"x": [4, 32]}), "not of the manifest's shapes"),
        (lambda plans: plans[0].update(input_shapes=plans[1]["input_shapes"]), "two plans are for the same shapes"),
        (lambda plans: plans[0].update(input_shapes={"x": [-1, 32]}), "not of the manifest's shapes"),
        (lambda plans: plans[0].update(input_shapes={"z": [1, 32]}), "two plans are for different inputs"),
        (lambda plans: plans[0].update(input_shapes={}), "two plans are for different inputs"),
        (lambda plans: plans.clear(), "0 is no number of plans"),
        (lambda plans: plans.extend(plans * 100), "is no number of plans"),
        (lambda plans: plans[0].update(model="model-9.onnx"), "lacks the entry 'model-9.onnx'"),
    ],
)
def test_a_manifest_of_other_shapes_is_refused(change: Callable[[list[Any]], None], said: str, joined: Path) -> None:
    document = json.loads(load_package(joined).manifest.to_json())["plans"]
    change(document)
    rewrite(joined, changed_manifest({"plans": document}))

    def used() -> Package:
        package = load_package(joined)
        for plan in package.plans:
            _ = plan.model
        return package

    with pytest.raises(PackageDamagedError, match=said):
        used()
