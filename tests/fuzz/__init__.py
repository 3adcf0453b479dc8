"""Random programs, run compiled against eager.

To the bit: kernels, whose sums have another order, are made only where GLOWPLUG_NATIVE=1 asks.
"""

import os

os.environ.setdefault("GLOWPLUG_NATIVE", "0")
