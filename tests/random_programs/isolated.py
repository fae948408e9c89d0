"""Calls in forked processes, so that a crash is an answer, too. An exception passes through."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator

# What tidetape and torch import when they are first used, a second's work, is there before a process forks.
import torch._dynamo
import torch.distributed.fsdp  # noqa: F401

# No program trains for as long, seconds.
_LONGEST = 60


class Crash(Exception):
    """The process of a call died of a signal."""


def call(function: Callable, *arguments):
    """The result of one call. Raises Crash where its process dies."""
    ((_, result),) = each(function, [arguments])
    if isinstance(result, Crash):
        raise result
    return result


def each(function: Callable, calls: Iterable[tuple]) -> Iterator[tuple[tuple, object]]:
    """(arguments, result) of each call, in one process as long as that lives. Where it dies, the call's result is a Crash, and the
    next calls run in another process."""
    left = list(calls)
    while left:
        reader, child = _fork(function, left)
        done = 0
        with os.fdopen(reader, "rb") as results:
            while done < len(left):
                try:
                    result = pickle.load(results)
                except EOFError:
                    break
                if isinstance(result, Exception):
                    raise result
                yield left[done], result
                done += 1
        _, status = os.waitpid(child, 0)
        if done < len(left):
            name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            yield left[done], Crash(name)
            done += 1
        left = left[done:]


def _fork(function: Callable, calls: list[tuple]) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return reader, child
    try:
        os.close(reader)
        with os.fdopen(writer, "wb") as results:
            for arguments in calls:
                signal.alarm(_LONGEST)
                try:
                    result = function(*arguments)
                except Exception as error:
                    result = error
                results.write(pickle.dumps(result))
                results.flush()
    finally:
        os._exit(0)
