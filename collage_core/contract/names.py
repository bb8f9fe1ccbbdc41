"""File names that are valid on every system and always denote a file in the containing folder."""

from __future__ import annotations

import re

# letters that are no path separator, drive, device or wildcard anywhere; Windows drops dots and blanks at the end
_PLAIN = re.compile(r"[\w.@+=()\[\], -]*[\w@+=()\[\],-]", re.ASCII)

# whatever their suffix (https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file)
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})


def is_plain_name(name: str) -> bool:
    """Return whether a name is a valid plain file name in any folder, on any system.

    Examples:
        >>> names = ("model.onnx", "a b.so", "..", "a/b", "c:x", "a.", "nul.txt")
        >>> [name for name in names if is_plain_name(name)]
        ['model.onnx', 'a b.so']
    """
    stem = name.partition(".")[0].rstrip().lower()
    return _PLAIN.fullmatch(name) is not None and stem not in _DEVICES
