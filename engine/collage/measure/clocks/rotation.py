"""Rotate copies of a kernel's weights, so that a timed call finds none of them in the device's cache.

A run of a plan reads the weights of each kernel once. By the next run they are in the device's last-level cache only if
the weights of the whole model fit there; otherwise the other kernels' weights have displaced them. A kernel timed on
one copy of its weights would always find them in the cache. Where a plan does not, consecutive calls use different
copies that together exceed the cache: under LRU replacement each copy is evicted before its turn comes again.

Inputs and outputs are the same for all calls. A plan's kernel finds its inputs in the cache as far as they fit, because
the preceding kernels have just written them, and so does a timed call.

Each copy is the kernel loaded again, as for a clone. That takes time and memory, so both are bounded. Kernels whose
weights are smaller than a 255th of the cache do not get all copies and are timed as if cached: fetching so little takes
a small part of a microsecond.
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
    """Compute the size of a kernel's weights as it reads them, in the dtypes it requests, each counted once.

    Sizes in the model's dtypes would count converted weights twice as large, and too few copies would be made to
    fill the cache. Weights that the kernel does not request are in its own files and count in the model's dtypes.

    Args:
        function: Function of the kernel.
        artifact: Artifact that the function was lowered to.
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
    """Compute the number of copies of a kernel's weights to keep, the first included.

    Args:
        weights_bytes: Size of one copy.
        cache_bytes: Size of the device's last-level cache; 0 if it is not known.
        free_bytes: Free memory of the device; further copies take at most half of it.

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
    """Return a call and others on further copies of its weights, together larger than the device's cache.

    If the kernel cannot be loaded again, the rotation ends early but the kernel stays usable: the cause may be
    memory that other processes hold.

    Args:
        first: The call.
        another: Loads the kernel again, with its own copy of the weights, and binds it; None if it cannot.
        weights_bytes: Size of the weights.
        device: Device of the call.

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
