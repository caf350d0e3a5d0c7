"""isoflop: small GPTs compared at equal training compute."""

import os

# Threads of OpenMP wait for each other by spinning, by default so long that a second busy process on the machine slows
# training fortyfold and more. Measured on 2 cores, two other processes busy: under 1,000 tokens/s with the default,
# 19,000 with this; alone, 42,000 either way. It is read when torch is loaded, so it stands before any import of it.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
