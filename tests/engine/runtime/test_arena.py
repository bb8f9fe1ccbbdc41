import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.runtime.arena import Block, allocate, plan_arena
from collage_core.contract import ALIGNMENT_BYTES


@st.composite
def blocks(draw: st.DrawFn) -> list[Block]:
    spans = draw(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 12), st.integers(0, 6)), max_size=14))
    return [
        Block(name=f"v{index}", nbytes=nbytes, first=first, last=first + length)
        for index, (nbytes, first, length) in enumerate(spans)
    ]


@given(blocks())
def test_blocks_alive_together_never_overlap(live: list[Block]) -> None:
    plan = plan_arena(live)

    assert set(plan.offsets) == {block.name for block in live}
    for index, one in enumerate(live):
        start = plan.offsets[one.name]
        assert start % ALIGNMENT_BYTES == 0
        assert start + one.nbytes <= plan.nbytes
        for other in live[:index]:
            if one.alive_with(other) and one.nbytes and other.nbytes:
                begin = plan.offsets[other.name]
                assert start + one.nbytes <= begin or begin + other.nbytes <= start


@given(blocks())
def test_the_arena_lies_between_its_lower_bound_and_no_sharing_at_all(live: list[Block]) -> None:
    def size(block: Block) -> int:
        return -(-block.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    needed = max((sum(size(b) for b in live if b.first <= step <= b.last) for step in range(20)), default=0)

    assert needed <= plan_arena(live).nbytes <= sum(map(size, live))


@given(blocks(), st.randoms())
def test_the_plan_does_not_depend_on_the_order_given(live: list[Block], random: "object") -> None:
    shuffled = list(live)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert plan_arena(shuffled) == plan_arena(live)


def test_what_a_step_reads_does_not_share_memory_with_what_it_writes() -> None:
    plan = plan_arena([Block(name="in", nbytes=64, first=0, last=1), Block(name="out", nbytes=64, first=1, last=2)])

    assert sorted(plan.offsets.values()) == [0, 64]


def test_a_chain_needs_room_for_two() -> None:
    chain = [Block(name=f"v{step}", nbytes=1024, first=step, last=step + 1) for step in range(20)]

    assert plan_arena(chain).nbytes == 2048


def test_two_blocks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two blocks are named 'x'"):
        plan_arena([Block(name="x", nbytes=1, first=0, last=0), Block(name="x", nbytes=1, first=1, last=1)])


@pytest.mark.parametrize("nbytes", [0, 1, 1000])
def test_allocated_memory_is_aligned(nbytes: int) -> None:
    memory = allocate(nbytes)

    assert memory.nbytes == nbytes
    assert memory.dtype == np.uint8
    assert memory.ctypes.data % ALIGNMENT_BYTES == 0 or nbytes == 0
