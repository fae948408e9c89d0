"""A torchrun training of two ranks beside a test, read through the ranks' own logs."""

import json
import subprocess
import sys
import uuid

from tests.processes import ROOT, environment

RANKS = 2


class RankTraining:
    """Starts on construction; `folder` is the test's own. Use as a context: leaving it kills what still runs."""

    def __init__(self, folder, planner, limit, collectives="stock", policies=False):
        self._folder = folder
        self.set_limit(limit)
        self.job = f"test-{uuid.uuid4().hex[:8]}"
        program = ROOT / "tests" / "programs" / "train_ranks.py"
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", "0"]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", program]
        command += ["--planner", planner, "--folder", folder, "--collectives", collectives]
        command += ["--policies"] if policies else []
        self._output = open(folder / "output", "w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment(TIDETAPE_JOB=self.job), stdout=self._output, stderr=subprocess.STDOUT
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._output.close()

    def set_limit(self, limit):
        """The ranks take it over before one of their next steps, all before the same."""
        unfinished = self._folder / "limit.part"
        unfinished.write_text(limit)
        unfinished.rename(self._folder / "limit")

    def steps(self, rank):
        """The steps that a rank has logged so far, as dicts of session.stats() and more."""
        path = self._folder / f"rank{rank}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def require_running(self):
        assert self._process.poll() is None, f"training ended with {self._process.returncode}: {self.output()}"

    def finish(self, timeout_seconds=60):
        """Lets the ranks stop after their step; fails if one failed."""
        (self._folder / "stop").touch()
        self._process.wait(timeout_seconds)
        assert self._process.returncode == 0, self.output()

    def output(self):
        self._output.flush()
        return (self._folder / "output").read_text(encoding="utf-8")[-4000:]

    def activations(self):
        """For each rank, {generation: first step that it ran}."""
        result = []
        for rank in range(RANKS):
            first = {}
            for line in self.steps(rank):
                first.setdefault(line["generation"], line["step"])
            result.append(first)
        return result

    def newest_generation(self):
        """The highest generation that every rank has run. Fails where the training has ended."""
        self.require_running()
        return min(max(first_steps, default=0) for first_steps in self.activations())

    def is_back(self, server):
        """Whether the server has the job with all its ranks and tapes. Fails where the training has ended."""
        self.require_running()
        jobs = (server.ask("jobs") or {}).get("jobs", [])
        connected = any(job["job"] == self.job and job.get("connected_ranks") == RANKS for job in jobs)
        return connected and server.ask("frontier", self.job) is not None
