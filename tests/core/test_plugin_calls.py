"""What a plugin's code does in the driver costs the plugin only."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collage_core import plugin_calls
from collage_core.contract import Supported, Unsupported
from collage_core.errors import DeadlineExceededError, PluginError, ProcessDamagedError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import PatternTable, is_op, match, wildcard
from collage_core.plugin_calls import guarded_table, in_driver, in_time, time_limit
from collage_core.plugin_guards import CallGuard, guarded_by
from collage_testing import single_matmul

GRAPH = DataflowGraph(single_matmul(2, 2, 2))


def soon() -> None:
    """Has a time limit of this process pass now, and the interruption repeated as it would be."""
    _, again_s = signal.getitimer(signal.ITIMER_REAL)
    signal.setitimer(signal.ITIMER_REAL, 0.01, again_s)


def sleeping() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.05)
    time.sleep(3600)


def spinning() -> None:
    soon()
    while True:
        len("busy")


def stubborn() -> None:
    """Catches what interrupts it, twice."""
    soon()
    for _ in range(2):
        try:
            time.sleep(3600)
        except BaseException:
            continue
    time.sleep(3600)


# A time limit


@pytest.mark.parametrize("work", [sleeping, spinning, stubborn])
def test_what_hangs_is_interrupted(work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_calls, "_AGAIN_S", 0.05)

    with (
        pytest.raises(DeadlineExceededError, match="the work did not finish within 3600 s"),
        time_limit(3600, "the work"),
    ):
        work()


def test_the_interruption_is_due_when_the_limit_passes() -> None:
    with time_limit(3600, "the work"):
        left_s, again_s = signal.getitimer(signal.ITIMER_REAL)

    assert 0 < left_s <= 3600
    assert again_s == plugin_calls._AGAIN_S


def test_what_ends_in_time_is_not_disturbed_and_nothing_is_left_behind() -> None:
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)

    with time_limit(60, "the work"):
        pass

    assert signal.getsignal(signal.SIGALRM) is handler
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    assert (left > 0) == (timer[0] > 0)  # of who runs the tests


def test_the_outer_limit_holds_after_an_inner_one_passed() -> None:
    def work() -> None:
        with pytest.raises(DeadlineExceededError, match="inner"), time_limit(3600, "inner"):
            sleeping()
        left_s, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 3600 < left_s <= 7200
        sleeping()

    with pytest.raises(DeadlineExceededError, match="outer"), time_limit(7200, "outer"):
        work()


def test_a_block_can_be_left_more_time_and_never_less() -> None:
    with time_limit(600, "the work") as leave:
        leave(7200)
        more, again_s = signal.getitimer(signal.ITIMER_REAL)
        leave(1)
        same, _ = signal.getitimer(signal.ITIMER_REAL)

    assert 3600 < same <= more <= 7200
    assert again_s == plugin_calls._AGAIN_S


def test_a_block_is_left_no_more_than_the_limit_around_it_leaves() -> None:
    def work() -> None:
        with time_limit(600, "inner") as leave:
            leave(7200)
            left_s, _ = signal.getitimer(signal.ITIMER_REAL)
            assert 600 < left_s <= 900
            sleeping()

    with pytest.raises(DeadlineExceededError, match="outer"), time_limit(900, "outer"):
        work()


def test_the_outer_limit_holds_within_an_inner_one() -> None:
    with pytest.raises(DeadlineExceededError, match="outer"), time_limit(0.01, "outer"), time_limit(3600, "inner"):
        time.sleep(60)


def test_a_hook_that_the_outer_limit_ends_is_not_the_plugins_failure() -> None:
    with pytest.raises(DeadlineExceededError, match="outer"), time_limit(0.01, "outer"):
        in_driver("mock", "collage_fusion_spec", lambda: time.sleep(60), limit_s=3600)


def test_what_is_interrupted_can_clean_up() -> None:
    cleaned = []

    def work() -> None:
        try:
            with time_limit(3600, "inner"):
                time.sleep(60)
        finally:
            left_s, _ = signal.getitimer(signal.ITIMER_REAL)
            cleaned.append(left_s)

    with pytest.raises(DeadlineExceededError, match="outer"), time_limit(0.01, "outer", again_s=1800):
        work()

    assert 60 < cleaned[0] <= 1800


def test_outside_the_main_thread_there_is_no_limit() -> None:
    done: list[float] = []

    def work() -> None:
        began = time.monotonic()
        with time_limit(0.01, "the work"):
            time.sleep(0.05)
        done.append(time.monotonic() - began)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert done[0] >= 0.05


# Hooks


def fails(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


class NoException(BaseException):
    """Is caught by nobody who catches exceptions."""


@pytest.mark.parametrize("error", [ValueError("of\nsome kind"), SystemExit(3), NoException()], ids=repr)
def test_whatever_a_hook_raises_is_a_plugin_error(error: BaseException) -> None:
    with pytest.raises(PluginError) as caught:
        in_driver("mock", "collage_fusion_spec", fails(error))

    assert (caught.value.toolchain, caught.value.hook) == ("mock", "collage_fusion_spec")
    assert caught.value.reason == f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def test_the_users_interrupt_is_the_users() -> None:
    with pytest.raises(KeyboardInterrupt):
        in_driver("mock", "collage_fusion_spec", fails(KeyboardInterrupt()))


def test_a_hook_that_hangs_says_where() -> None:
    with pytest.raises(
        PluginError, match=r"within 3600 s and was interrupted in sleeping \(test_plugin_calls\.py, line"
    ):
        in_driver("mock", "collage_fusion_spec", sleeping, limit_s=3600)


def test_of_core_code_only_a_hang_is_the_plugins_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        in_time("mock", "finding candidates", fails(ZeroDivisionError()), limit_s=3600)
    with pytest.raises(PluginError, match="finding candidates"):
        in_time("mock", "finding candidates", sleeping, limit_s=3600)


def test_guards_surround_what_is_called_in_the_order_they_were_set() -> None:
    seen: list[str] = []

    def guard(name: str) -> CallGuard:
        @contextlib.contextmanager
        def around(toolchain: str, hook: str) -> Iterator[None]:
            seen.append(f"{name} begins {hook} of {toolchain}")
            yield
            seen.append(f"{name} ends")

        return around

    with guarded_by(guard("outer")), guarded_by(guard("inner")):
        in_driver("mock", "import", lambda: seen.append("called"))
    in_driver("mock", "import", lambda: seen.append("called alone"))

    assert seen == [
        "outer begins import of mock",
        "inner begins import of mock",
        "called",
        "inner ends",
        "outer ends",
        "called alone",
    ]


def test_a_process_that_a_guard_finds_damaged_is_not_the_plugins_failure_alone() -> None:
    @contextlib.contextmanager
    def guard(toolchain: str, hook: str) -> Iterator[None]:
        yield
        raise ProcessDamagedError(toolchain, hook, "closed all files")

    with pytest.raises(ProcessDamagedError, match="'mock' closed all files in import"), guarded_by(guard):
        in_driver("mock", "import", lambda: None)


# Tables


def raising(about: Any) -> Any:
    raise KeyError("axis")


def lowering_the_recursion_limit(about: Any) -> Supported:
    sys.setrecursionlimit(sys.getrecursionlimit() - 1)
    return Supported()


def lowering_it_and_raising(about: Any) -> Supported:
    lowering_the_recursion_limit(about)
    raise KeyError("axis")


def predicate_answer(predicate: Callable[[Any], Any]) -> Supported | Unsupported:
    table = PatternTable()
    table.predicate("MatMul", predicate)
    return guarded_table(table).supports(GRAPH, 0)


def test_a_predicate_that_is_well_answers_as_it_does() -> None:
    assert predicate_answer(lambda node: Supported()) == Supported()
    assert predicate_answer(lambda node: Unsupported("k is odd")) == Unsupported("k is odd")


@pytest.mark.guards("a predicate, `check` or `attrs_getter` raises or answers wrongly")
@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        (raising, "its predicate of 'MatMul' failed: KeyError: 'axis'"),
        (lambda node: True, "its predicate of 'MatMul' answered with bool, not Supported or Unsupported"),
        (lambda node: None, "its predicate of 'MatMul' answered with NoneType, not Supported or Unsupported"),
    ],
)
def test_a_predicate_that_is_not_refuses_the_node(predicate: Callable[[Any], Any], reason: str) -> None:
    assert predicate_answer(predicate) == Unsupported(reason)


@pytest.mark.parametrize("predicate", [lowering_the_recursion_limit, lowering_it_and_raising])
def test_a_predicate_that_lowers_the_recursion_limit_lowers_it_for_itself_only(
    predicate: Callable[[Any], Any],
) -> None:
    before = sys.getrecursionlimit()

    answer = predicate_answer(predicate)

    assert isinstance(answer, Unsupported)
    assert "it changed the recursion limit" in answer.reason or "KeyError" in answer.reason
    assert sys.getrecursionlimit() == before


@pytest.mark.guards("a predicate, `check` or `attrs_getter` raises or answers wrongly")
@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ({"check": raising}, "its check of pattern 'mm' failed: KeyError: 'axis'"),
        ({"check": lambda found: 1}, "its check of pattern 'mm' answered with int, not Supported or Unsupported"),
        ({"check": lambda found: Unsupported("k is odd")}, "k is odd"),
        ({"attrs_getter": raising}, "its attrs_getter of pattern 'mm' failed: KeyError: 'axis'"),
        (
            {"attrs_getter": lambda found: {"k": 3}},
            "its attrs_getter of pattern 'mm' answered with dict, not a mapping of strings to strings",
        ),
    ],
)
def test_a_check_or_getter_that_is_not_well_refuses_the_match(functions: dict[str, Any], reason: str) -> None:
    table = PatternTable()
    table.pattern("mm", is_op("MatMul")(wildcard(), wildcard()), **functions)
    [entry] = guarded_table(table).patterns
    found = match(entry.pattern, GRAPH, 0)

    assert entry.check is not None
    assert entry.check(found) == Unsupported(reason)  # type: ignore[arg-type]


def test_what_is_no_pattern_or_predicate_is_refused_where_it_is_registered() -> None:
    table = PatternTable()

    with pytest.raises(TypeError, match="pattern 'mm' is str, not a Pattern"):
        table.pattern("mm", "MatMul")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the predicate of 'MatMul' is bool, which cannot be called"):
        table.predicate("MatMul", True)  # type: ignore[arg-type]
