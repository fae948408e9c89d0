"""Timing on machines whose speed drifts: everything that is compared runs, shuffled, within each round of one process.

A ratio is taken within a round, so that a drift over many rounds cancels. Time is the CPU time of the training thread: what other
processes take from the core does not count, only what they do to caches and clocks.
"""

import gc
import os
import random
import sys
import time

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


def thread_seconds(function):
    """CPU seconds that the calling thread spends in `function()`."""
    start = time.thread_time()
    function()
    return time.thread_time() - start


def measure(functions, rounds, seed=0, progress=None):
    """Runs every function once a round in shuffled order; returns {name: [what it returned, one entry a round]}.

    Each function returns its own seconds, so that it decides what of its work is timed. Garbage is collected between rounds only.
    """
    order = list(functions)
    shuffler = random.Random(seed)
    samples = {name: [] for name in functions}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for done in range(rounds):
            gc.collect()
            shuffler.shuffle(order)
            for name in order:
                samples[name].append(functions[name]())
            if progress:
                progress(done + 1, rounds)
    finally:
        if was_enabled:
            gc.enable()
    return samples
