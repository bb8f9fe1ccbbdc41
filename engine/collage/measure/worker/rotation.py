"""How many copies of a kernel's weights are read in turn, so that a timed call finds none of them in a device's cache.

A run of a plan reads the weights of each kernel once. By the next run they are in the device's last-level cache only if
the weights of the whole model fit there; otherwise those of the other kernels went through it since. A kernel timed on
one copy of its weights would find them there each time. So where a plan does not, calls on different copies follow each
other, which together are larger than the cache: under least recent use each copy is gone when its turn comes again.

Inputs and outputs are the same for all calls: what a kernel reads was written right before by those in front of it, so
a plan finds it in the cache as far as it fits, and so does a timed call.

Each copy is the kernel loaded again, as for a clone, and that takes time and memory: both are bounded. Of kernels whose
weights are less than a 255th of the cache not all copies are made, and they are timed as if cached; fetching so little
is a small part of a microsecond, for whoever runs the kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from collage.devices.opening import is_lost
from collage_core.contract import Artifact, BoundCall, DeviceStream, KernelFunction, weight_named

MOST_COPIES: Final = 256
LOADING_S = 0.25
"""Seconds after which no further copy is loaded."""


def weights_bytes_of(function: KernelFunction, artifact: Artifact) -> int:
    """Bytes of a kernel's weights as it reads them: those it asks for in the types it wants, each once.

    Counted as the model has them, converted ones would seem to be twice as large, and too few copies be made to fill
    the cache. What it does not ask for is in its own files and counts as the model has it.

    Args:
        function: What it computes.
        artifact: What it was lowered to.
    """
    names = {content: name for name, content in function.constants.items()}
    asked = [weight_named(key) for key in set(artifact.constants.values())]
    wanted = [*asked, *((content, None) for content in names.keys() - {content for content, _ in asked})]
    sizes = []
    for content, dtype in wanted:
        array = function.constant(names[content])
        sizes.append(array.nbytes if dtype is None else array.size * int(dtype.itemsize))
    return sum(sizes)


def copies_needed(weights_bytes: int, cache_bytes: int, free_bytes: int) -> int:
    """How many copies of a kernel's weights to have, the first included.

    Args:
        weights_bytes: Size of one copy.
        cache_bytes: Size of the device's last-level cache; 0 if it is not known.
        free_bytes: Free memory of the device, of which further copies take half at most.

    Examples:
        >>> copies_needed(10, 50, 10_000), copies_needed(60, 50, 10_000), copies_needed(0, 50, 10_000)
        (6, 2, 1)
        >>> copies_needed(10, 50, 40), copies_needed(10, 0, 10_000)
        (3, 1)
    """
    if not weights_bytes or not cache_bytes:
        return 1
    past_the_cache = 1 + -(-cache_bytes // weights_bytes)  # the others fill it
    affordable = 1 + free_bytes // 2 // weights_bytes
    return min(past_the_cache, affordable, MOST_COPIES)


def rotated(
    first: BoundCall, another: Callable[[], BoundCall | None], weights_bytes: int, device: DeviceStream
) -> list[BoundCall]:
    """A call, and others on further copies of its weights: together more than the device's cache holds.

    That a kernel cannot be loaded again costs the rotation, not the kernel: what is free was shared with others, say.

    Args:
        first: The call.
        another: Loads its kernel again, with weights of its own, and binds it; None if it cannot.
        weights_bytes: Size of its weights.
        device: Where it runs.

    Raises:
        Exception: If the device is lost.
    """
    calls = [first]
    wanted = copies_needed(weights_bytes, device.cache_bytes, device.free_bytes)
    end = time.monotonic() + LOADING_S
    while len(calls) < wanted and time.monotonic() < end:
        try:
            call = another()
        except Exception as error:
            if is_lost(error):
                raise
            break
        if call is None:
            break
        calls.append(call)
    return calls
