"""A package loaded with other threads than it was verified with is verified again on request."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from collage.cli import main
from collage.commands.load import load
from collage.errors import OtherThreadsWarning, VerificationError
from tests.integration.wrong_in_plans.models import product
from tests.integration.wrong_in_plans.plans import SLY, STEADY, Plans


@pytest.fixture
def package(plans: Plans) -> Path:
    """A package, verified with one thread, with a kernel that is wrong on more than one, every other time."""
    return plans.plan("threads", product(), mul_0=STEADY, relu_0=SLY).package


@pytest.mark.guards(
    "a package is loaded with other threads than it was verified with",
    "a warning that says how to verify it; verified again on request",
    area="sessions",
)
def test_a_kernel_that_is_wrong_on_more_threads_is_found_on_request(package: Path) -> None:
    with pytest.warns(OtherThreadsWarning):
        load(package, threads=2)

    with pytest.raises(VerificationError, match="with 2 threads is wrong: output 'relu_0': "):
        load(package, threads=2, verify=True)
    load(package, threads=1, verify=True)


def test_run_verifies_on_request(package: Path) -> None:
    unverified = CliRunner().invoke(main, ["run", str(package), "--threads", "2"])
    wrong = CliRunner().invoke(main, ["run", str(package), "--threads", "2", "--verify"])
    right = CliRunner().invoke(main, ["run", str(package), "--verify"])

    assert (unverified.exit_code, wrong.exit_code, right.exit_code) == (0, 1, 0)
    assert "collage run --verify" in " ".join(unverified.output.split())
    assert "with 2 threads is wrong: output 'relu_0'" in " ".join(wrong.output.split())
