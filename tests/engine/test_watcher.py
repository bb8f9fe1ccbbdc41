"""A command's watcher ends as the command does, and notices when it ends without having finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.hardship import with_tests

WATCHED = """
import os, signal, sys, threading, time
from collage import watcher
from collage.command_start import command_began
from collage_core.plugin_guards import guarded, left_out
watcher.LINGER_S = 0.2
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run in the background

def wait():
    try:
        print(os.getpid(), flush=True)
        while True:
            time.sleep(0.05)  # a signal between Python's look for signals and a long sleep would wait for its end
    except KeyboardInterrupt:
        sys.exit(130)

def plugin(call):
    if not left_out():
        with guarded("mock", "import"):
            call()
    print("finished", left_out().get("mock", ""))

def ending():
    print(command_began(), flush=True)
    os._exit(0)

def started_again():
    plugin(ending)
    if left_out():
        print(command_began(), flush=True)
        if os.fork() == 0:
            print(command_began(), flush=True)
            os._exit(0)
        os.wait()

def always():
    with guarded("mock", "load"):
        os._exit(0)

def linger():
    threading.Thread(target=time.sleep, args=(3600,)).start()
    sys.exit(3)

watcher.watched(lambda: {body})
"""


def started(body: str) -> subprocess.Popen[str]:
    code = WATCHED.replace("{body}", body)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-P", "-c", code], env=with_tests(), text=True, **pipes)  # type: ignore[call-overload]


def ended(body: str) -> tuple[int, str, str]:
    """Return the status of a command, and what it wrote to both streams."""
    process = started(body)
    out, said = process.communicate()
    return process.returncode, out, said


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("print('done')", 0),
        ("sys.exit(2)", 2),
        ("sys.exit('a reason')", 1),
        ("1 / 0", 1),
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("linger()", 3),
    ],
)
def test_the_status_is_the_commands(body: str, status: int) -> None:
    assert ended(body)[0] == status


@pytest.mark.guards(
    "the process of a command ends with status 0 before the command has finished",
    "one message, and status 1",
    area="toolchains",
)
def test_an_end_without_a_finish_does_not_look_like_success() -> None:
    assert ended("os._exit(0)") == (1, "", "Error: the process of the command ended before the command was finished.\n")


@pytest.mark.parametrize(
    ("call", "how"),
    [("os._exit(0)", "status 0"), ("os._exit(7)", "status 7"), ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV")],
)
def test_a_plugin_that_ends_the_process_is_named_and_left_out(call: str, how: str) -> None:
    status, out, said = ended(f"plugin(lambda: {call})")

    told = f"ended the process of the command in import ({how})"
    assert (status, out) == (0, f"finished it {told}, so the command leaves it out\n")
    assert said == f"Warning: toolchain 'mock' {told}; the command starts again without it.\n"


def test_a_command_that_starts_again_knows_when_it_began() -> None:
    _, out, _ = ended("started_again()")

    first, _, again, elsewhere = out.splitlines()
    assert float(first) <= time.monotonic()
    assert again == first
    assert elsewhere == "None"  # a command that this one runs has a time of its own


def test_one_that_ends_it_although_it_is_left_out_is_an_error() -> None:
    status, _, said = ended("always()")

    assert status == 1
    assert said.splitlines()[-1].startswith("Error: toolchain 'mock' ended the process of the command in load")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_for_the_watcher_reaches_the_command(number: signal.Signals) -> None:
    process = started("wait()")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert child != process.pid

    process.send_signal(number)
    process.communicate()

    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert not psutil.pid_exists(child)


@pytest.mark.guards("the command's first process is killed", "the other ends with it", area="kills and databases")
def test_a_command_does_not_outlive_its_watcher() -> None:
    process = started("wait()")
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))

    process.kill()
    process.communicate()

    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


def test_output_that_could_not_be_written_is_no_success() -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("there is no full device")
    code = WATCHED.replace("{body}", "print('done')")
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-P", "-c", code], env=with_tests(), stdout=full, check=False)

    assert done.returncode in (1, 120)  # of print, or of Python when it flushes what was printed
