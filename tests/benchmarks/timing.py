"""Timing on machines whose speed drifts: everything that is compared runs, shuffled, within each round of one run.

A ratio is taken within a round, so that a drift over many rounds cancels. Time is the CPU time of the training thread: what other
processes take from the core does not count, only what they do to caches and clocks.
"""

import os
import random
import sys

# glibc moves its mmap and trim thresholds as a program runs, so that the same step would sometimes fault its pages in again and
# sometimes not, depending on what ran before it. Fixed values keep freed pages in the one arena.
MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
THREAD_SETTINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def fix_process_settings(module):
    """Starts `python -m module` again with fixed malloc settings and one thread, unless this process has them already.

    Both are read when libraries load, so this must come before torch is imported.
    """
    settings = MALLOC_SETTINGS | THREAD_SETTINGS
    if all(os.environ.get(name) == value for name, value in settings.items()):
        return
    os.environ.update(settings)
    os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


def measure(functions, rounds, seed=0, progress=None):
    """Calls every function once a round in shuffled order; returns {name: [what it returned, one entry a round]}.

    Each function returns its own seconds, so that it decides what of its work is timed.
    """
    order = list(functions)
    shuffler = random.Random(seed)
    samples = {name: [] for name in functions}
    for done in range(rounds):
        shuffler.shuffle(order)
        for name in order:
            samples[name].append(functions[name]())
        if progress:
            progress(done + 1, rounds)
    return samples
