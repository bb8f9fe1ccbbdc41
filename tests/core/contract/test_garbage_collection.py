from __future__ import annotations

import gc

import pytest

from collage_core.contract import uncollected


def test_afterwards_it_is_as_it_was_before() -> None:
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_of_two_that_overlap_the_last_to_end_turns_it_on_again() -> None:
    """As two threads do that capture."""
    first, second = uncollected(), uncollected()

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)

    assert gc.isenabled()
