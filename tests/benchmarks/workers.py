"""One process a variant of training: a session manages one model a process, and its memory limit is the process's.

The processes are forks of one that has loaded the libraries, so that code lies at the same addresses in all of them. They work one
at a time, when they are told.
"""

import gc
import multiprocessing
import traceback

import torch

# Far above a step; a worker that is silent for longer hangs.
MOST_SECONDS = 1800


class Worker:
    """An object in a process of its own. Calls of its methods are made there; errors come back."""

    def __init__(self, name, make, metered=False):
        """`make()` makes the object there. `metered`: counts bytes from the start, also where nothing else imports tidetape."""
        self.name = name
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(make, metered, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, method, *arguments):
        """What the method returns. Raises RuntimeError with the worker's own traceback where it raises."""
        self._pipe.send((method, arguments))
        if not self._pipe.poll(MOST_SECONDS):
            raise RuntimeError(f"{self.name}: no answer to {method} within {MOST_SECONDS} s")
        try:
            good, value = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"{self.name}: the process died with {self._process.exitcode} in {method}") from None
        if not good:
            raise RuntimeError(f"{self.name}: {method} failed\n{value}")
        return value

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error is None:
            self.call("close")
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()


def _serve(make, metered, pipe):
    torch.set_num_threads(1)
    if metered:
        import tidetape  # noqa: F401
    served = None
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return
        try:
            if served is None:
                served = make()
                gc.collect()
                gc.freeze()
                gc.disable()
            gc.collect()
            pipe.send((True, getattr(served, method)(*arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
