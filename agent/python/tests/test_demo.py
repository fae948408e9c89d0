import re
import subprocess
import sys

import pytest
import torch

from tidetape.demo import cluster, report
from tidetape.demo.checks import check
from tidetape.demo.planner import Frontier
from tidetape.demo.variant import Run, Step
from tidetape.demo.workload import Workload, standard_library_text

LOSSES = [3.0, 2.5, 2.0, 1.5]


def steps(peaks, generations=(0, 0, 0, 0), predicted=0, losses=LOSSES):
    return [
        Step(loss.hex(), 0.5, peak, generation, predicted if generation else 0, 0.01, 7)
        for loss, peak, generation in zip(losses, peaks, generations, strict=True)
    ]


def plain():
    return Run("plain", None, [steps([100] * 4), steps([100] * 4)])


def limited(limit=90, peaks=(60, 60, 85, 86), generations=(0, 0, 1, 1), predicted=86, **changes):
    first = steps(peaks, generations, predicted)
    return Run("limit", limit, [first, changes.pop("second", first)], **changes)


def broken(*runs):
    return [line for line in check([plain(), *runs]).lines if line.startswith("BROKEN")]


def test_a_run_within_its_limit_and_prediction_is_good():
    verdict = check([plain(), limited()])
    assert verdict.good and broken(limited()) == []
    assert "losses: 8 of 8 equal" in verdict.lines[0]


def test_every_broken_promise_is_found():
    one_bit = [*LOSSES[:3], 1.5000000000000002]
    assert "losses: 7 of 8" in broken(limited(second=steps((60, 60, 85, 86), (0, 0, 1, 1), 86, one_bit)))[0]
    assert "measured peak 91 bytes, limit 90 bytes" in broken(limited(peaks=(60, 60, 91, 91), predicted=91))[0]
    # Another rank's peak counts, too, and so does the worst step.
    assert "measured peak 93" in broken(limited(second=steps((60, 60, 93, 86), (0, 0, 1, 1), 86)))[0]
    assert "differ by at most 4.44 %" in broken(limited(peaks=(60, 60, 90, 86), predicted=86))[0]
    assert "no plan came" in broken(limited(generations=(0, 0, 0, 0)))[0]
    assert "all ranks switched" in broken(limited(second=steps((60, 60, 60, 86), (0, 0, 0, 1), 86)))[0]


def test_an_impossible_limit_has_to_be_explained():
    said = limited(limit=50, feasible=False, least_peak_bytes=60, least_peak_holder="backward of model.layers.0")
    assert broken(said) == []
    assert "least peak is 60 bytes, held by backward of model.layers.0" in check([plain(), said]).lines[-1]
    assert broken(limited(limit=50, feasible=False, least_peak_bytes=60)) != []


def test_figures_are_of_the_steps_under_the_last_plan():
    run = limited(peaks=(60, 99, 85, 86), generations=(0, 1, 2, 2))
    assert (run.planned_steps(), run.settled_steps(), run.peak_bytes()) == ([1, 2, 3], [2, 3], 86)
    assert plain().settled_steps() == [2, 3]


def test_the_page_stands_alone_and_shows_every_run(tmp_path):
    runs = [plain(), limited(live_bytes=[10, 80, 20])]
    frontier = Frontier([(100, 0.0), (60, 0.02)], 60, 100)
    report.write_page(tmp_path / "index.html", runs, frontier, ["losses & limits"])
    page = (tmp_path / "index.html").read_text()
    assert not re.search(r'(src|href)="(?!#)', page.replace("xlink:href", "href"))
    assert page.count("<svg") == 2 and "losses &amp; limits" in page
    assert "<td>limit</td>" in page and "planner&#39;s frontier" in page.replace("'", "&#39;")
    assert report.text_table(runs).splitlines()[2].split()[:2] == ["plain", "-"]


def test_the_same_seed_gives_the_same_training():
    workload = Workload(hidden=64, layers=1, batch=1, sequence=16, steps=2)

    def train(workload):
        model = workload.build(torch.device("cpu"))
        optimizer = workload.optimizer(model)
        losses = []
        for tokens in workload.batches(torch.device("cpu")):
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
        return losses

    assert train(workload) == train(workload)
    assert train(Workload(hidden=64, layers=1, batch=1, sequence=16, steps=2, seed=1)) != train(workload)
    assert next(iter(workload.build(torch.device("cpu")).parameters())).dtype == torch.bfloat16


def test_the_text_is_the_standard_librarys():
    text = standard_library_text(100_000)
    assert len(text) == 100_000 and b"import" in text


@pytest.mark.parametrize(
    ("program", "result"),
    [
        ("print('tidetape-server listening on 127.0.0.1:4711', flush=True); input()", "127.0.0.1:4711"),
        ("raise SystemExit(1)", RuntimeError),
    ],
)
def test_the_servers_address_is_read_from_what_it_says(program, result):
    command = [sys.executable, "-c", program]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        if isinstance(result, str):
            assert cluster._read_address(server) == result
        else:
            with pytest.raises(result, match="where it listens"):
                cluster._read_address(server)
    finally:
        cluster._stop(server)
    assert server.returncode is not None
