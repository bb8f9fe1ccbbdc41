"""The check passes what keeps the contract, and names each way of breaking it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Joins,
    Kernel,
    KernelFunction,
    KernelProfile,
    ProfiledPart,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.errors import LoweringError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain
from collage_testing import dense, operator_models, single_matmul
from collage_testing.kit import Conformance, ExecutingMock, check_plugin

MODELS = {name: model for name, model in operator_models().items() if name in ("Add of two inputs", "Relu", "Split")}


def check(plugin: object, models: Mapping[str, onnx_ir.Model] = MODELS) -> Conformance:
    return check_plugin(Toolchain("plain", plugin), models)


class Plain:
    """A plugin that is right: Add and Relu in NumPy. What tests break is overridden."""

    @hookimpl
    def collage_targets(self) -> list[Target] | Unsupported:
        return [Target(toolchain="plain", fingerprint="plain 1")]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        for operator in ("Add", "Relu"):
            table.predicate(operator, lambda node: Supported())

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact] | Unsupported:
        [node] = function.model.graph
        return iter([Artifact(files={"op": node.op_type.encode()})])

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        return PlainKernel(artifact.files["op"].decode(), self.compute)

    @staticmethod
    def compute(op: str, inputs: Sequence[Any], out: Any) -> None:
        if op == "Add":
            np.add(inputs[0], inputs[-1], out=out)
        else:
            np.maximum(inputs[0], 0, out=out)


class PlainKernel:
    def __init__(self, op: str, compute: Callable[[str, Sequence[Any], Any], None]) -> None:
        self.op = op
        self.compute = compute

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        arrays, out = [buffer.array for buffer in inputs], outputs[0].array
        return lambda: self.compute(self.op, arrays, out)


def test_an_operator_that_onnx_does_not_have_is_named_with_the_one_that_is_meant() -> None:
    class Misspelt(Plain):
        @hookimpl
        def collage_register_predicates(self, table: PatternTable) -> None:
            for operator in ("Add", "Rleu", "com.mine::Rleu", "*"):
                table.predicate(operator, lambda node: Unsupported("none of these"))

    with pytest.raises(AssertionError, match="ONNX has no operator 'Rleu'; did you mean 'Relu'") as caught:
        check(Misspelt())
    assert str(caught.value).count("ONNX has no operator") == 1


def test_a_plugin_that_keeps_the_contract_passes_and_its_refusals_are_told() -> None:
    conformance = check(Plain())

    assert conformance.ran == {"Add of two inputs": 1, "Relu": 1}
    assert conformance.refused == {"Split": "no predicate takes Split"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (KernelProfile(parts=(ProfiledPart(nodes=("conv_7",), time_us=1.0),)), "the function has no node 'conv_7'"),
        ({"add_0": 1.0}, "answered with dict, not KernelProfile or Unsupported"),
        (Unsupported("built without a profiler"), ""),
    ],
)
def test_a_profile_is_of_the_nodes_of_the_kernel(answer: Any, problem: str) -> None:
    class Profiling(Plain):
        @hookimpl
        def collage_profile(self, artifact: Artifact, run: RunContext, bind: Callable[[Kernel], BoundCall]) -> Any:
            bind(self.collage_load(artifact, run))()  # type: ignore[arg-type]  # it loads what it made
            return answer

    if problem:
        with pytest.raises(AssertionError, match=problem):
            check(Profiling())
    else:
        assert check(Profiling()).ran == {"Add of two inputs": 1, "Relu": 1}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (True, "collage_check_data.* answered with bool, not Supported or Unsupported"),
        (Supported(), ""),
        (Unsupported("it holds a library"), ""),
    ],
)
def test_a_plugin_says_of_its_own_artifacts_whether_they_are_data(answer: Any, problem: str) -> None:
    class Saying(Plain):
        @hookimpl
        def collage_check_data(self, artifact: Artifact) -> Any:
            return answer

    if problem:
        with pytest.raises(AssertionError, match=problem):
            check(Saying())
    else:
        assert check(Saying()).ran == {"Add of two inputs": 1, "Relu": 1}


def test_a_mock_profiles_its_kernels_by_its_costs() -> None:
    mock = ExecutingMock("mock", costs_us={"Add": 2.0, "MatMul": 5.0, "Relu": 1.0}, joins=Joins.ANY, operators=["*"])
    graph = DataflowGraph(dense(activation="Relu"))
    function = kernel_function(SubGraph(graph, graph.all_mask), "kernel")

    found = mock.collage_profile(mock.collage_targets()[0], function)  # type: ignore[index]  # it has one

    assert isinstance(found, KernelProfile)
    by_operator = {graph.nodes[graph.index_of(part.nodes[0])].op_type: part.time_us for part in found.parts}
    assert by_operator == {"Add": 2.0, "MatMul": 5.0, "Relu": 1.0}


def test_regions_and_composites_are_checked_too() -> None:
    mock = ExecutingMock("mock", costs_us={}, joins=Joins.ANY, predicates={"*": lambda node: Supported()})

    conformance = check_plugin(Toolchain("mock", mock), {"dense": dense(activation="Relu")})

    assert conformance.ran["dense"] > 3


class Wrong(Plain):
    @staticmethod
    def compute(op: str, inputs: Sequence[Any], out: Any) -> None:
        np.add(inputs[0], 1, out=out)


class HalfWritten(Plain):
    @staticmethod
    def compute(op: str, inputs: Sequence[Any], out: Any) -> None:
        Plain.compute(op, [each[:-1] for each in inputs], out[:-1])


class Accumulates(Plain):
    @staticmethod
    def compute(op: str, inputs: Sequence[Any], out: Any) -> None:
        out += inputs[0] + inputs[-1]


class WritesInputs(Plain):
    @staticmethod
    def compute(op: str, inputs: Sequence[Any], out: Any) -> None:
        Plain.compute(op, inputs, out)
        inputs[0][...] = 0


class BindsOnce(Plain):
    """Every binding writes where the last one does."""

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        kernel = PlainKernel(artifact.files["op"].decode(), self.compute)
        last: list[Any] = []

        class Forgetful:
            def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: object) -> BoundCall:
                last[:] = [[buffer.array for buffer in inputs], outputs[0].array]
                return lambda: kernel.compute(kernel.op, last[0], last[1])

        return Forgetful()


class SaysDeterministic(Plain):
    noise = itertools.count(1)

    @staticmethod
    def compute(op: str, inputs: Sequence[Any], out: Any) -> None:
        Plain.compute(op, inputs, out)
        if out.dtype == np.float32 and next(SaysDeterministic.noise) % 2:
            np.nextafter(out, np.float32(np.inf), out=out)


class NotBytes(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        return iter([Artifact(files={"op": "Add"})])  # type: ignore[dict-item]


class NotJson(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        return iter([Artifact(files={}, metadata={"model": function})])  # type: ignore[dict-item]


class TupleKept(Plain):
    """Relies on a tuple that JSON makes a list."""

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        [node] = function.model.graph
        return iter([Artifact(files={"op": node.op_type.encode()}, metadata={"shape": (1, 2)})])

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        assert artifact.metadata["shape"] == (1, 2), "the shape is lost"
        raise AssertionError


class ForeignConstant(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        return iter([Artifact(files={}, constants={"weight": "0" * 64})])


class NothingMade(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        return iter([])


class SameNames(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        [node] = function.model.graph
        return iter([Artifact(files={"op": node.op_type.encode()}, variant="best")] * 2)


class CannotLoad(Plain):
    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Unsupported:
        return Unsupported("forgot how")


class FailsToLower(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        raise LoweringError("out of registers")


class ChangesTheFunction(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        [node] = function.model.graph
        made = Artifact(files={"op": node.op_type.encode()})
        node.op_type = "Mine"
        return iter([made])


class Unstable(Plain):
    number = itertools.count()

    @hookimpl
    def collage_targets(self) -> list[Target]:
        return [Target(toolchain="plain", fingerprint=f"started {next(self.number)}")]


class Absent(Plain):
    @hookimpl
    def collage_targets(self) -> Unsupported:
        return Unsupported("no such device")


class WavesInQuery(Plain):
    @hookimpl
    def collage_query(self) -> dict[str, str]:
        return {"no_such_node": "odd"}


class RaisesInPredicate(Plain):
    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        table.predicate("Relu", lambda node: 1 // 0)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        (Wrong, r"plain, Relu, relu_0: wrong numbers: output"),
        (HalfWritten, "wrong numbers: .* NaN"),
        (Accumulates, "wrong numbers"),
        (WritesInputs, "it writes its input 'x'"),
        (BindsOnce, "wrong numbers: .*"),
        (SaysDeterministic, "says it is deterministic"),
        (NotBytes, r"of an artifact, files\['op'\] is str, not bytes"),
        (NotJson, "of an artifact, metadata is not JSON"),
        (TupleKept, "the shape is lost"),
        (ForeignConstant, "asks for constants that are not the function's: weight"),
        (NothingMade, "yields no variant and gives no reason"),
        (SameNames, "variants have the same name"),
        (CannotLoad, "refuses what collage_lower has just made: forgot how"),
        (FailsToLower, "out of registers"),
        (ChangesTheFunction, "changes the function it is given"),
        (Unstable, "answers differently when asked again"),
        (Absent, "no target here, so nothing can be checked: no such device"),
        (RaisesInPredicate, "relu_0 is refused: its predicate of 'Relu' failed: ZeroDivisionError"),
        (WavesInQuery, "names nodes the model does not have: no_such_node"),
    ],
)
def test_what_breaks_the_contract_is_named(plugin: type[Plain], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint) as caught:
        check(plugin())
    assert str(caught.value).startswith("plain does not keep the plugin contract:")


def test_weights_that_are_asked_for_are_given_and_cannot_be_written() -> None:
    class Multiplies(Plain):
        seen: list[bool] = []  # noqa: RUF012  of this test alone

        @hookimpl
        def collage_register_predicates(self, table: PatternTable) -> None:
            table.predicate("MatMul", lambda node: Supported())

        @hookimpl
        def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
            yield Artifact(files={}, constants=dict(function.constants), workspace_bytes=64)

        @hookimpl
        def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
            [weight] = (run.constants[content] for content in artifact.constants.values())
            self.seen.append(weight.flags.writeable)

            class Product:
                def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Any) -> BoundCall:
                    assert workspace.array.nbytes == 64
                    return lambda: np.matmul(inputs[0].array, weight, out=outputs[0].array)

            return Product()

    conformance = check(Multiplies(), {"matmul": single_matmul(2, 3, 4)})

    assert conformance.ran == {"matmul": 1}
    assert set(Multiplies.seen) == {False}
