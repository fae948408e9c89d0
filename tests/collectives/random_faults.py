"""Trains on a few ranks again and again, with something going wrong at a random moment of each run:

    python -m tests.collectives.random_faults [--runs N] [--seed S]

After each run: no rank waited past its deadlines, every step that a rank finished has the numbers of a run without faults, to the
bit, errors name the peer, the unit, its slot and the training step, and /dev/shm holds nothing any more. Run as root it has a
/dev/shm of its own, and two hosts with a cable between them that may be cut; otherwise it says what it leaves out. The first wrong
run ends the program with the seed that makes it again.
"""

import argparse
import collections
import multiprocessing
import os
import re
import subprocess
import tempfile
import time
from multiprocessing.connection import wait

from tests.collectives.fault_cases import JOIN_SECONDS, WAIT_SECONDS, Case, private_tmpfs, train
from tests.collectives.two_hosts import TwoHosts, address

# Beside deadlines: start of the ranks, and a machine that does other things.
SLACK_SECONDS = 30.0
SHARED_MEBIBYTES = 64
PLACE = re.compile(r"of '(blocks\.\d|root)' in slot \d+, training step \d+, rank (\d)")
PRELOADED = ["torch.distributed.fsdp", "tidetape", "tests.collectives.features", "tests.collectives.fault_cases"]


class WrongRun(AssertionError):
    pass


def expect(condition, *what):
    if not condition:
        raise WrongRun(" ".join(map(str, what)))


class Runner:
    """`hosts`: TwoHosts or None. `private`: whether /dev/shm is this program's own."""

    def __init__(self, hosts, private):
        self._hosts = hosts
        self._private = private
        self._right = {}
        self._port = 29600
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def run(self, case):
        """Raises WrongRun. Returns how it ended: "error" or "numbers"."""
        ends, fault = self._ranks(case)
        right = self._right_numbers(case)
        errors = {rank: end[3] for rank, end in ends.items() if end[3]}
        for rank, (_, _, numbers, _) in ends.items():
            expect(len(numbers) == len(right[rank]) or rank in errors, f"rank {rank} ended early without an error")
            for step, found in enumerate(numbers):
                same = all(one.tobytes() == other.tobytes() for one, other in zip(found, right[rank][step], strict=True))
                expect(same, f"rank {rank} has wrong numbers in step {step}")
        happened = fault is not None or case.fault == "full"
        if case.fault in ("kill", "stop", "cut", "late") and happened:
            self._check_deadline(case, ends, fault)
        if case.fault in ("behind", "fill", "none") or not happened:
            expect(not errors, f"no rank should fail: {errors}")
        self._check_words(case, errors)
        self._check_memory()
        return "error" if errors else "numbers"

    def _check_deadline(self, case, ends, fault):
        for rank, (_, when, _, _) in ends.items():
            if rank != case.victim or case.fault == "cut":
                late = when - fault
                expect(late < max(2 * WAIT_SECONDS, JOIN_SECONDS) + SLACK_SECONDS, f"rank {rank} hung for {late:.1f} s")

    def _check_words(self, case, errors):
        for rank, error in errors.items():
            if case.fault == "full":
                expect("/dev/shm" in error, f"rank {rank} does not say what is full: {error}")
                continue
            if "could not start" not in error:
                place = PLACE.search(error)
                expect(place and int(place[2]) == rank, f"rank {rank} does not say where: {error}")
                error = error[place.end() :]
            expect(re.search(r"rank \d", error), f"rank {rank} names no other rank: {error}")
        if errors and case.fault in ("kill", "stop"):
            named = any(f"rank {case.victim}" in error.split(", phase")[-1] for error in errors.values())
            expect(named, f"nobody names rank {case.victim}: {errors}")

    def _check_memory(self):
        if not self._private:
            return
        if os.path.exists("/dev/shm/filling"):
            os.unlink("/dev/shm/filling")
        state = os.statvfs("/dev/shm")
        expect(state.f_bfree == state.f_blocks, f"{(state.f_blocks - state.f_bfree) * state.f_bsize} bytes are left in /dev/shm")

    def _right_numbers(self, case):
        plain = case.without_fault()
        if plain not in self._right:
            ends, _ = self._ranks(plain)
            for rank, end in ends.items():
                expect(not end[3], f"rank {rank} fails without a fault: {end[3]}")
            self._right[plain] = {rank: end[2] for rank, end in ends.items()}
        return self._right[plain]

    def _ranks(self, case):
        """What each rank said at its end, and when the fault happened, None where it did not."""
        enter, self._port = None, self._port + 1
        folder = tempfile.TemporaryDirectory()
        meeting = f"file://{folder.name}/store"
        if case.per_host < case.ranks:
            enter, meeting = self._hosts.enter(case.per_host), f"tcp://{address(0)}:{self._port}"
        processes, pipes = [], {}
        for rank in range(case.ranks):
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=train, args=(case, rank, meeting, enter, theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes[ours] = rank
        try:
            return self._listen(case, pipes)
        finally:
            for process in processes:
                process.kill()
                process.join()
            folder.cleanup()
            if case.fault == "cut":
                self._hosts.cable("up")

    def _listen(self, case, pipes):
        ends, fault, stopped = {}, None, set()
        deadline = time.monotonic() + 120 + JOIN_SECONDS + 10 * WAIT_SECONDS
        while len(ends) + len(stopped) < case.ranks:
            ready = wait([pipe for pipe, rank in pipes.items() if rank not in ends | dict.fromkeys(stopped)], 1.0)
            expect(time.monotonic() < deadline, f"ranks {sorted(set(pipes.values()) - ends.keys() - stopped)} say nothing")
            for pipe in ready:
                rank = pipes[pipe]
                try:
                    message = pipe.recv()
                except EOFError:
                    expect(case.fault == "kill" and rank == case.victim, f"rank {rank} died")
                    stopped.add(rank)
                    continue
                if message[0] == "end":
                    ends[rank] = message
                    continue
                fault = message[1]
                if case.fault == "cut":
                    self._hosts.cable("down")
                if case.fault == "stop":
                    stopped.add(rank)
        return ends, fault


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    private = True
    try:
        private_tmpfs(SHARED_MEBIBYTES)
    except OSError as error:
        private = False
        print(f"left out: full memory, and the search for what is left in /dev/shm ({error})")
    hosts = None
    try:
        hosts = TwoHosts().__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"left out: cut cables ({error})")
    runner = Runner(hosts, private)
    outcomes = collections.Counter()
    try:
        for seed in range(options.seed, options.seed + options.runs):
            case = Case.draw(seed, hosts is not None)
            if not private and case.fault in ("full", "fill"):
                continue
            try:
                ended = runner.run(case)
            except WrongRun as wrong:
                raise SystemExit(f"run with --seed {seed} --runs 1, {case}: {wrong}") from None
            outcomes[f"{case.fault}: {ended}"] += 1
            print(seed, case.fault, f"{case.ranks} ranks", ended, flush=True)
    finally:
        if hosts is not None:
            hosts.__exit__()
    print(f"{sum(outcomes.values())} runs, none wrong:", ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items())))


if __name__ == "__main__":
    main()
