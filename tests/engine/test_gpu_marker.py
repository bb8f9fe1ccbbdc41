"""Where there is no GPU, or a library is missing, just the tests that need it are skipped, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.devices.providers import Providers
from collage_core.contract import Device
from collage_core.errors import DeviceLostError

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
GPU = Device(name="cuda:0", model="NVIDIA H200", compute_capability="9.0", driver="580.65", memory_bytes=1)
TESTS = """
    import pytest

    def test_anywhere() -> None: ...

    @pytest.mark.gpu
    def test_on_a_gpu() -> None: ...

    @pytest.mark.gpu("json")
    def test_with_a_library() -> None: ...

    @pytest.mark.gpu("json", "a_library_that_nobody_has")
    def test_with_two() -> None: ...
"""


@pytest.mark.guards(
    "a test needs a GPU, or a library, that is not there",
    "it is skipped and says what it needs; the others run",
    area="devices",
)
@pytest.mark.parametrize(
    ("devices", "skipped"),
    [
        ((), {"test_on_a_gpu": "NVIDIA GPU", "test_with_a_library": "NVIDIA GPU", "test_with_two": "NVIDIA GPU"}),
        ((GPU,), {"test_with_two": "needs a_library_that_nobody_has, not installed"}),
    ],
    ids=["without a GPU", "with one"],
)
def test_what_is_missing_skips_what_needs_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, devices: tuple[Device, ...], skipped: dict[str, str]
) -> None:
    monkeypatch.setattr(Providers, "discover", lambda: Machine(devices))
    pytester.makeconftest((ROOT / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers = gpu(*modules): needs a GPU")
    pytester.makepyfile(TESTS)

    reports = pytester.inline_run("-p", "no:cacheprovider").getreports("pytest_runtest_logreport")

    said = {
        str(each.head_line): each.longrepr[2] for each in reports if each.skipped and isinstance(each.longrepr, tuple)
    }
    assert said.keys() == skipped.keys()
    assert all(skipped[name] in said[name] for name in said), said
    assert len([each for each in reports if each.when == "call" and each.passed]) == 4 - len(skipped)


LOSING = """
    import pytest

    def test_before() -> None: ...

    @pytest.mark.gpu
    def test_that_loses_it() -> None:
        assert False

    @pytest.mark.gpu
    def test_after() -> None: ...
"""


class Machine:
    """Providers of devices, of which there are these.

    Attributes:
        lost: Whether they do not answer any more.
    """

    def __init__(self, devices: tuple[Device, ...], *, lost: bool = False) -> None:
        self._devices = devices
        self.lost = lost

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def open(self, name: str) -> Answering:
        return Answering(lost=self.lost)


class Answering:
    """A GPU, as far as it is asked whether it is lost."""

    def __init__(self, *, lost: bool) -> None:
        self._lost = lost

    def synchronise(self) -> None:
        if self._lost:
            raise DeviceLostError("cuda:0", "cudaErrorIllegalAddress")


@pytest.mark.guards(
    "a test's kernel goes astray, and the GPU answers its process no more",
    "the run ends there and names the test, in place of failing all that follow",
    area="devices",
)
@pytest.mark.parametrize("lost", [False, True])
def test_a_test_that_loses_the_gpu_is_the_last_and_is_named(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    monkeypatch.setattr(Providers, "discover", lambda: Machine((GPU,), lost=lost))
    pytester.makeconftest((ROOT / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers = gpu(*modules): needs a GPU")
    pytester.makepyfile(LOSING)

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    result.assert_outcomes(passed=1 if lost else 2, failed=1)
    said = "*test_that_loses_it lost the GPU; for the others leave it out by --deselect.*IllegalAddress*"
    (result.stdout.fnmatch_lines if lost else result.stdout.no_fnmatch_line)(said)
