from __future__ import annotations

import dataclasses
from collections.abc import Callable

import onnx_ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_ir.passes import Sequential

from collage.store import RecordKey, TuningRecord, timing_beside
from collage.store.memory import MemoryStore
from collage.store.tasks import ApplyHistory, ExtractTasks, extract_tasks
from collage_core.contract import Host, Target
from collage_core.fusion import SubGraph, post_dominator_groups
from collage_core.fusion.marked import marked_call
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.footprint import VALUES_BESIDE
from collage_core.passes.fuse_ops import FuseOps
from collage_core.passes.marking import Mark, mark_groups
from collage_testing.graphs import GraphBuilder

HOST = Host(system="s", cpu="c", physical_cores=2, cpu_flags=frozenset(), memory_bytes=1 << 30)
RED, BLUE = (Target(toolchain=name, fingerprint=f"{name} 1") for name in ("red", "blue"))


def fused() -> onnx_ir.Model:
    """Three equal dense layers, fused, and one of another activation."""
    g = GraphBuilder()
    value = g.input("x", 2, 80)
    for layer, activation in enumerate(["Relu", "Relu", "Relu", "Tanh"]):
        value = g.op(
            activation, g.op("Add", g.op("MatMul", value, g.weight(f"w{layer}", 80, 80)), g.weight(f"b{layer}", 80))
        )
    model = g.model(value)
    FuseOps()(model)
    return model


def record(structural_hash: str, target: Target, *samples_us: float, **other: object) -> TuningRecord:
    key = RecordKey(
        structural_hash=structural_hash,
        target=target.name,
        fingerprint=target.fingerprint,
        host=HOST.fingerprint,
        threads=2,
        launch="eager",
        timing=timing_beside(VALUES_BESIDE),
    )
    fields: dict[str, object] = {
        "key": key,
        "outcome": "measured",
        "purpose": "select",
        "created": "2026-01-01T00:00:00+00:00",
        "samples_us": samples_us,
        **other,
    }
    return TuningRecord(**fields)  # type: ignore[arg-type]


def owners(model: onnx_ir.Model) -> dict[str, str]:
    return {
        str(node.name): model.functions[node.op_identifier()].metadata_props["collage.compiler"] for node in model.graph
    }


def test_equal_kernels_are_one_task_with_their_number_as_its_weight() -> None:
    tasks = ExtractTasks()
    model = fused()

    result = tasks(model)

    assert not result.modified
    assert [(task.calls, task.weight, task.toolchain) for task in tasks.tasks] == [
        (("relu_0", "relu_1", "relu_2"), 3, ""),
        (("tanh_0",), 1, ""),
    ]
    function = tasks.tasks[0].function
    assert [node.op_type for node in function.model.graph] == ["MatMul", "Add", "Relu"]
    assert len(function.constants) == 2


@given(st.integers(0, 10_000), st.integers(3, 10))
@settings(max_examples=20, deadline=None)
def test_a_marked_kernel_is_measured_under_the_name_of_what_it_computes(
    random_model: Callable[..., onnx_ir.Model], seed: int, size: int
) -> None:
    model = random_model(seed, size)
    graph = DataflowGraph(model)
    groups = [graph.completed(nodes) for nodes in post_dominator_groups(graph)]
    plain = [SubGraph(graph, nodes, "label", attributes=(("a", "1"),)) for nodes in groups if nodes]
    expected = {each.names[-1]: each.structural_hash for each in plain}

    mark_groups(graph, [(each, Mark()) for each in plain])

    for again in (model, onnx_ir.from_proto(onnx_ir.to_proto(model))):
        index = DataflowGraph(again)
        assert {index.names[call]: marked_call(index, call).structural_hash for call in index.compilers} == expected


def test_the_fastest_target_of_the_database_gets_a_kernel_and_others_stay_open() -> None:
    model = fused()
    dense, other = extract_tasks(model)
    database = MemoryStore()
    database.append(record(dense.structural_hash, RED, 30.0, 31.0, 29.0))
    database.append(record(dense.structural_hash, BLUE, 20.0, 90.0, 21.0, variant="tiled"))
    history = ApplyHistory(database, [RED, BLUE], HOST, threads=2)

    result = history(model)

    assert result.modified
    assert owners(model) == {"relu_0": "blue", "relu_1": "blue", "relu_2": "blue", "tanh_0": ""}
    facts = model.functions[model.graph[0].op_identifier()].metadata_props
    assert (facts["collage.target"], facts["collage.cost_us"], facts["collage.variant"]) == ("blue", "21.000", "tiled")
    assert not history(model).modified
    assert [task.toolchain for task in extract_tasks(model)] == ["blue", ""]
    assert other.calls == ("tanh_0",)


def test_fresh_samples_count_before_those_a_kernel_was_selected_by() -> None:
    model = fused()
    [dense, _] = extract_tasks(model)
    database = MemoryStore()
    database.append(record(dense.structural_hash, RED, 10.0))
    database.append(record(dense.structural_hash, RED, 40.0, purpose="confirm"))
    database.append(record(dense.structural_hash, BLUE, 20.0))

    ApplyHistory(database, [RED, BLUE], HOST, threads=2)(model)

    assert owners(model)["relu_0"] == "blue"


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "red 2"},
        {"host": "another machine"},
        {"threads": 1},
        {"launch": "graph"},
        {"timing": "another"},
    ],
    ids=str,
)
def test_records_of_other_circumstances_say_nothing(change: dict[str, object]) -> None:
    model = fused()
    [dense, _] = extract_tasks(model)
    database = MemoryStore()
    good = record(dense.structural_hash, RED, 10.0)
    database.append(dataclasses.replace(good, key=dataclasses.replace(good.key, **change)))  # type: ignore[arg-type]

    assert not ApplyHistory(database, [RED, BLUE], HOST, threads=2)(model).modified


@pytest.mark.parametrize(
    ("plugins", "owner"), [(None, "blue"), ({"red": "p 1"}, "blue"), ({"red": "p 2", "blue": "q 2"}, "red")], ids=str
)
def test_a_failure_belongs_to_its_version_of_the_plugin_if_versions_are_given(
    plugins: dict[str, str] | None, owner: str
) -> None:
    model = fused()
    [dense, _] = extract_tasks(model)
    database = MemoryStore()
    failed = {"outcome": "failed", "reason": "crash"}
    for plugin, made in (
        ("p 0", record(dense.structural_hash, RED, 10.0)),
        ("p 1", record(dense.structural_hash, RED, **failed)),
        ("q 1", record(dense.structural_hash, BLUE, 20.0)),
    ):
        database.append(dataclasses.replace(made, key=dataclasses.replace(made.key, plugin=plugin)))

    ApplyHistory(database, [RED, BLUE], HOST, threads=2, plugins=plugins)(model)

    assert owners(model)["relu_0"] == owner


@pytest.mark.parametrize(
    "later",
    [
        {"outcome": "refused", "reason": "no"},
        {"outcome": "failed", "reason": "crash", "stage": "run"},
        {"samples_us": (1.0,), "error": 0.5},
    ],
    ids=["refused", "failed", "inexact"],
)
def test_a_target_that_cannot_run_a_kernel_does_not_get_it(later: dict[str, object]) -> None:
    model = fused()
    [dense, _] = extract_tasks(model)
    database = MemoryStore()
    database.append(record(dense.structural_hash, RED, **later))
    database.append(record(dense.structural_hash, BLUE, 99.0))

    ApplyHistory(database, [RED, BLUE], HOST, threads=2)(model)

    assert owners(model)["relu_0"] == "blue"


def test_ties_fall_to_the_target_named_first_and_owned_kernels_are_left_alone() -> None:
    database = MemoryStore()
    [dense, tanh] = extract_tasks(fused())
    for target in (RED, BLUE):
        for task in (dense, tanh):
            database.append(record(task.structural_hash, target, 10.0))
    model = fused()
    model.functions[model.graph[-1].op_identifier()].metadata_props["collage.compiler"] = "green"

    Sequential(ApplyHistory(database, [BLUE, RED], HOST, threads=2), ApplyHistory(database, [RED], HOST, threads=2))(
        model
    )

    assert owners(model) == {"relu_0": "blue", "relu_1": "blue", "relu_2": "blue", "tanh_0": "green"}
