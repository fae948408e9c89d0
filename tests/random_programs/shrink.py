"""Makes a failing program smaller while it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable

from .program import Program


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program for which `fails` is true and for no program with one statement less."""
    while True:
        smaller = _without_chunks(program, fails)
        smaller = _unwrapped(smaller, fails)
        smaller = _plainer(smaller, fails)
        if smaller == program:
            return program
        program = smaller


def _without_chunks(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Takes out runs of statements, halving their length down to one."""
    length = len(program) // 2 or 1
    while length:
        paths = [path for path, _ in program.paths()]
        end = len(paths)
        while end > 0:
            candidate = program.without(set(paths[max(0, end - length) : end]))
            if candidate != program and fails(candidate):
                program = candidate
                paths = [path for path, _ in program.paths()]
                end = min(end, len(paths) + 1)
            end -= length
        length //= 2
    return program


def _unwrapped(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Puts bodies in the place of their compound statements."""
    for path, statement in reversed(list(program.paths())):
        if statement.body:
            candidate = program.unwrapped(path)
            if fails(candidate):
                program = candidate
    return program


def _plainer(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Reads each statement's operands from as far up as possible, and shares and freezes no weights."""
    for candidate in program.plainer():
        if fails(candidate):
            return candidate
    return program
