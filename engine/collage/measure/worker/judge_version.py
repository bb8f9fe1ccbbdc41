"""Version of the judge: of what decides whether a kernel's numbers are right."""

from __future__ import annotations

from typing import Final

JUDGE: Final = 8
"""Version of `check_outputs`, `verdicts`, `reference.judge`, and what these compare with.

Raise it with each change after which a kernel that passed may fail, or the reverse: what is compared, how far off it
may be, on which values and after how many calls, and where a kernel may write. Not with a change of messages or speed.

It is in each record and in the names of races and verifications. What another judge found wrong is measured again; what
another judge let through counts until it is on a plan that is kept, where it is measured once more.
"""
