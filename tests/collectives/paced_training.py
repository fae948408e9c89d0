"""Ranks that train with a pacing for each generation (tests/programs/train_paced_ranks.py), and what tests do to them."""

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import threading
import time
import uuid

from tests.processes import ROOT, environment


class PacedTraining:
    """Starts on construction; `folder` is a new one. `planners`: the planner's address for each rank. Use as a context."""

    def __init__(self, folder, planners):
        folder.mkdir()
        self.folder = folder
        self.set_limit("90%")
        self.ranks = range(len(planners))
        job = f"paced-{uuid.uuid4().hex[:8]}"
        program = ROOT / "tests" / "programs" / "train_paced_ranks.py"
        self._processes = []
        for rank, planner in enumerate(planners):
            variables = environment(TIDETAPE_JOB=job, RANK=str(rank), WORLD_SIZE=str(len(planners)))
            with open(folder / f"output{rank}", "w", encoding="utf-8") as output:
                command = [sys.executable, program, "--planner", planner, "--folder", folder]
                self._processes.append(subprocess.Popen(command, cwd=ROOT, env=variables, stdout=output, stderr=subprocess.STDOUT))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in self._processes:
            process.kill()
            process.wait()

    def set_limit(self, limit):
        """All ranks take it over before the same step; a new plan follows."""
        unfinished = self.folder / "limit.part"
        unfinished.write_text(limit)
        unfinished.rename(self.folder / "limit")

    def steps(self, rank):
        """What the rank has logged: step, generation, pacing_generation, loss."""
        path = self.folder / f"rank{rank}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def newest_pacing(self):
        """The highest generation whose pacing every rank has run; fails where a rank has ended."""
        for rank, process in enumerate(self._processes):
            assert process.poll() is None, f"rank {rank} ended with {process.returncode}: {self.output(rank)}"
        return min(max((line["pacing_generation"] for line in self.steps(rank)), default=0) for rank in self.ranks)

    def kill(self, rank):
        self._processes[rank].kill()

    def await_end(self, seconds):
        """Until all ranks have ended, by themselves; their return codes."""
        deadline = time.monotonic() + seconds
        return [process.wait(max(0.1, deadline - time.monotonic())) for process in self._processes]

    def stop(self):
        """Lets the ranks end after their step; fails where one fails."""
        (self.folder / "stop").touch()
        for rank, code in enumerate(self.await_end(60)):
            assert code == 0, f"rank {rank}: {self.output(rank)}"

    def output(self, rank):
        return (self.folder / f"output{rank}").read_text(encoding="utf-8")[-4000:]

    def splits(self):
        """Steps at whose end two ranks were under different pacings, with the generations by rank. Steps that a rank has not logged
        are left out."""
        logged = [{line["step"]: line["pacing_generation"] for line in self.steps(rank)} for rank in self.ranks]
        common = set.intersection(*(set(steps) for steps in logged))
        return {step: found for step in sorted(common) if len(set(found := [steps[step] for steps in logged])) > 1}

    def switches(self):
        """How often the pacing changed."""
        generations = [line["pacing_generation"] for line in self.steps(0)]
        return sum(a != b for a, b in itertools.pairwise(generations))


class CutProxy:
    """A TCP proxy that can cut all connections through it. Threads; close() ends it."""

    def __init__(self, target):
        host, port = target.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Every connection breaks, in both directions."""
        with self._lock:
            connections, self._open = self._open, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self):
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
