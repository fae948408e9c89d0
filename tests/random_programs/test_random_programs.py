"""Random programs train with the tape as without; and they find what is wrong on purpose."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.random_programs.campaign import outcomes, smallest
from tests.random_programs.faults import FAULTS
from tests.random_programs.generate import generate
from tests.random_programs.program import Program, Statement
from tests.random_programs.report import runnable
from tests.random_programs.shrink import shrink

ROOT = Path(__file__).resolve().parents[2]
# No fault needs more programs to be found.
ENOUGH = 60


def _run(*command):
    """Runs Python in a process of its own, which forks one for its programs: a crash is reported with its seed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'agent/python'}:{ROOT}"}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def _require_programs_pass(first, count):
    result = _run("-m", "tests.random_programs", f"--first={first}", f"--count={count}")
    print(result.stdout)
    assert result.returncode == 0, result.stdout[-20000:]
    assert f"\n{count} programs" in f"\n{result.stdout}"


def test_300_programs():
    _require_programs_pass(0, 300)


@pytest.mark.long
def test_10000_programs():
    _require_programs_pass(300, 10_000)


def test_a_seed_makes_the_same_program_again():
    assert generate(12) == generate(12)
    assert generate(12) != generate(13)


def _in_a_fresh_process(function, *arguments):
    """Programs run in forks, and autograd refuses to run in a fork of a process in which it has started threads."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        return processes.submit(function, *arguments).result()


def _finds(fault, kind):
    train, _ = FAULTS[fault]
    found = (outcome.difference for outcome in outcomes(range(ENOUGH), train))
    return any(difference is not None and difference.kind == kind for difference in found)


@pytest.mark.parametrize("fault, kind", [(name, kind) for name, (_, kind) in FAULTS.items()], ids=list(FAULTS))
def test_a_fault_is_found(fault, kind):
    assert _in_a_fresh_process(_finds, fault, kind)


def _smallest_with(fault):
    """(difference of the program found, the smallest program, its difference, that program as a file)."""
    train, _ = FAULTS[fault]
    outcome = next(outcome for outcome in outcomes(range(ENOUGH), train) if outcome.difference is not None)
    program, difference = smallest(outcome, train)
    return outcome.difference, program, difference, runnable(outcome, program, difference)


def test_a_failing_program_shrinks_to_a_small_one_that_runs(tmp_path):
    """A wrong last bit shows in every program; what is left of it is a call of a block, an op, and two returns."""
    found, program, difference, text = _in_a_fresh_process(_smallest_with, "returns a value with a wrong last bit")
    assert len(program) <= 5
    assert difference.kind == found.kind
    path = tmp_path / "program.py"
    path.write_text(text)
    assert _run(str(path)).stdout == "None\n", "with Tidetape it trains as it does plainly"


def test_a_removed_statement_is_bypassed():
    def reads(name, makes):
        return Statement("{0}.sin()", (name,), (makes,))

    program = Program(((reads("x", "v1"), reads("v1", "v2"), Statement("return {0}", ("v2",))),))
    assert program.without({(0, 1)}).functions == ((reads("x", "v1"), Statement("return {0}", ("v1",))),)
    assert program.without({(0, 0), (0, 1)}).functions == ((Statement("return {0}", ("x",)),),)


def test_shrinking_keeps_only_what_fails():
    program = generate(3)
    wanted = next(statement.code for _, statement in program.paths() if statement.makes and not statement.body)

    def fails(candidate):
        return any(statement.code == wanted for _, statement in candidate.paths())

    assert [statement.code for _, statement in shrink(program, fails).paths()] == [wanted]
