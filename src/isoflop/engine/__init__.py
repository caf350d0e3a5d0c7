"""A study with its runs side by side: `python -m isoflop.engine --jobs 4`.

First what all runs share (`dvc repro plan`). Then each arm and seed is a chain, train -> evaluate -> sample, on which
no other chain waits: the chains are the jobs of a pool, each a `dvc repro --single-item` of its stages, which DVC
allows at the same time in one workspace. At last `dvc repro` makes the rest and finds the chains done. What is
recorded is what `dvc repro` alone would have recorded.

A small model does not fill a processor: two processes of one thread each train more tokens per second than one process
of two threads. The pool is any `concurrent.futures.Executor`, so that a cluster's may take the place of the one here.
"""
