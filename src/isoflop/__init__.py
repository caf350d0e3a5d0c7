"""isoflop: small GPTs compared at equal training compute."""

import ctypes
import os

# Threads of OpenMP wait for each other by spinning, by default so long that a second busy process on the machine slows
# training fortyfold and more. Measured on 2 cores, two other processes busy: under 1,000 tokens/s with the default,
# 19,000 with this; alone, 42,000 either way. It is read when torch is loaded, so it stands before any import of it.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

# glibc hands the memory of a freed array back to the system, and the next step faults its pages in anew: a tenth to a
# fifth of a step's time at small sizes. Told to keep it, a process does not grow beyond its peak. The numbers are those
# of M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD in malloc.h.
if os.name == "posix" and hasattr(libc := ctypes.CDLL(None), "gnu_get_libc_version"):
    for parameter, size in ((-3, 2**30), (-1, 2**31 - 1), (-2, 2**26)):
        libc.mallopt(parameter, size)
