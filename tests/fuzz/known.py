"""Differences from eager that are known and not mended yet: no program runs into them.

Each is a pattern of program text, with what goes wrong. Take a line out when its fault is mended;
`python -m tests.fuzz --known` makes programs as if there were none.
"""

import re

KNOWN = (
    # What an effect or the end of a frame drops is finalized later, or in another order, at a
    # recording.
    r"globals\(\)\['HELD'\] = ",
    r"HELD\.v = ",
    r"weakref\.ref\(",
)
# Warnings of tensor-to-number conversions are not given at replays.
QUIET_WARNINGS = ("Converting a tensor with requires_grad=True to a scalar",)

switched_off = False


def switch_off() -> None:
    """From now on programs run into known differences too."""
    global switched_off
    switched_off = True


def runs_into_known(text: str) -> bool:
    return not switched_off and any(re.search(pattern, text) for pattern in KNOWN)


def is_quiet(message: str) -> bool:
    return not switched_off and message.startswith(QUIET_WARNINGS)
