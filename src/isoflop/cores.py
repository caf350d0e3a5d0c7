"""How many processor cores this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Those that the scheduler lets it have, where the system says so; else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
