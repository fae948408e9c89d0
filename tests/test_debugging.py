"""What people ask when something is off: the tape as text, the audit, and plans made by hand."""

import re

import pytest
import torch
import torch.nn.functional as F

import tidetape
from tests.processes import run_program
from tests.small_blocks import WIDTH, backward, hidden, stack

VALUE = re.compile(r"%\d+ site (?P<site>[0-9a-f]+), (?P<label>.+), (?P<bytes>\d+) B: (?P<fate>.+)")
OP = re.compile(r"\d+ (?P<op>\w+::[\w.]+) reads .*?(, (?P<cost>[\d.]+) us)?$")

drift = [1.0]
"""What the op "drifts" multiplies with: state that no schema tells of."""


@torch.library.custom_op("tidetape_debugging::drifts", mutates_args=())
def drifts(x: torch.Tensor) -> torch.Tensor:
    return x * drift[0]


def drifting_body(block, x):
    """An op whose result depends on what was set just for it, and ops that may be kept, moved or replayed."""
    h = block.linear(x)
    before, drift[0] = drift[0], 1.5
    scale = drifts(h.detach())
    drift[0] = before
    return (x * scale).sin() + h.tanh().exp().cos()


def _step(model, session, number=0):
    with session.step():
        backward(model, hidden(number))


@pytest.fixture
def explained(attach):
    """A session of two blocks whose values are kept, moved, replayed and demoted, and what explain() says of them by block."""
    model = stack(drifting_body)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    _step(model, session)
    words = {"aten::tanh": "save", "aten::exp": "move"}
    session.impose(
        {
            block: {site.site: words[op] for site in sites if (op := site.label.partition("#")[0]) in words}
            for block, sites in session.sites().items()
        }
    )
    _step(model, session, 1)
    texts = re.split(r"^block (\S+), .*\n", tidetape.explain(model), flags=re.MULTILINE)
    return session, dict(zip(texts[1::2], texts[2::2], strict=True))


def _values(text):
    return [match.groupdict() for line in text.splitlines() if (match := VALUE.fullmatch(line.strip()))]


def test_explain_names_every_value(explained):
    session, texts = explained
    assert list(texts) == ["blocks.0", "blocks.1"]
    for block, sites in session.sites().items():
        said = {(int(value["site"], 16), value["label"], int(value["bytes"])) for value in _values(texts[block])}
        assert said == {(site.site, site.label, site.bytes) for site in sites}


def test_explain_names_every_op_and_its_cost(explained):
    _, texts = explained
    for text in texts.values():
        ops = {match["op"]: match["cost"] for line in text.splitlines() if (match := OP.fullmatch(line.strip()))}
        assert set(ops) >= {"aten::addmm", "tidetape_debugging::drifts", "aten::mul.Tensor", "aten::tanh", "aten::exp", "aten::cos"}
        # What was replayed has been timed.
        assert float(ops["aten::mul.Tensor"]) > 0


@pytest.mark.parametrize(
    ("op", "fate"),
    [
        ("aten::tanh", "kept by the plan"),
        ("aten::exp", "moved to host memory by the plan"),
        ("aten::mul.Tensor", "replayed by default"),
        ("tidetape_debugging::drifts", "kept, it cannot be reproduced"),
        ("aten::addmm", "let go, backward does not read it"),
    ],
)
def test_explain_says_what_happens_to_a_value_and_why(explained, op, fate):
    _, texts = explained
    for text in texts.values():
        said = {value["label"].partition("#")[0]: value["fate"] for value in _values(text)}
        assert said[op] == fate


def test_explain_agrees_with_what_was_done(explained):
    session, texts = explained
    by_fate = {}
    for text in texts.values():
        for value in _values(text):
            by_fate[value["fate"]] = by_fate.get(value["fate"], 0) + int(value["bytes"])
    stats = session.stats()
    assert stats["moved_bytes"] == by_fate["moved to host memory by the plan"]
    assert stats["demoted_bytes"] == by_fate["kept, it cannot be reproduced"] == sum(session.demotions().values())
    assert stats["saved_bytes"] == by_fate["kept by the plan"] + stats["demoted_bytes"]


def test_explain_of_a_sequence_that_changes(attach):
    """Steps with other ops are merged by what they make: each op is said to make its own values, also where it was left out."""
    turns = []

    def body(block, x):
        turns.append(None)
        h = block.linear(x)
        h = h.tanh() if len(turns) % 2 else h.exp().clamp(max=3)
        return h.sin() * x

    model = stack(body, count=1)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    for number in range(3):
        _step(model, session, number)
    op, made = None, set()
    for line in tidetape.explain(model).splitlines():
        if match := OP.fullmatch(line.strip()):
            op = match["op"]
        elif match := VALUE.fullmatch(line.strip()):
            assert match["label"].partition("#")[0] == op
            made.add(op)
    assert made >= {"aten::addmm", "aten::tanh", "aten::exp", "aten::clamp", "aten::sin"}


def test_explain_before_a_step_is_empty(attach):
    model = stack(drifting_body)
    attach(model, blocks="blocks.*", planner="none")
    assert tidetape.explain(model) == ""


@pytest.mark.parametrize("moment", ["never attached", "detached", "another one"])
def test_explain_refuses_a_model_that_is_not_attached(attach, moment):
    model = stack(drifting_body)
    if moment == "another one":
        attach(stack(drifting_body), blocks="blocks.*", planner="none")
    elif moment == "detached":
        attach(model, blocks="blocks.*", planner="none").detach()
    with pytest.raises(ValueError, match=r"not attached; call tidetape\.attach"):
        tidetape.explain(model)


# --- the audit -----------------------------------------------------------------------------------------------------------------

LATER = """
    from tests import small_blocks, test_debugging
    from tests.small_blocks import backward, require_as_plain, stack
    import tidetape

    sessions, calls = [], []

    def attach(*args, **kwargs):
        sessions.append(tidetape.attach(*args, **kwargs))
        return sessions[-1]

    def program(model, x):
        # Reproducible for two steps, and then no more.
        number = len(calls) % small_blocks.STEPS
        test_debugging.drift[0] = 1.5 if number < 2 else 1.0
        calls.append(sorted(sessions[0].demotions()) if sessions else [])
        return backward(model, x)

    require_as_plain(attach, "nothing", lambda: stack(test_debugging.drifting_body), program)
    # Of step 2 with the tape, and of what came after it.
    assert calls[small_blocks.STEPS + 2] == [], calls
    assert len(calls[small_blocks.STEPS + 3]) == 2, calls
    assert all("drifts" in label for label in calls[-1]), calls
"""


def test_every_step_is_audited():
    done = run_program(LATER, TIDETAPE_AUDIT="every-step")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("setting", "expected"), [("0", [1, 1, 1]), ("", [2, 1, 1]), ("every-step", [2, 2, 2])])
def test_how_often_an_op_runs_in_forward(attach, monkeypatch, setting, expected):
    """Once for training, and once more where it is audited."""
    runs = []

    @torch.library.custom_op("tidetape_debugging::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        runs.append(None)
        return x * 2

    monkeypatch.setenv("TIDETAPE_AUDIT", setting)
    model = stack(lambda block, x: (x * counted(block.linear(x).detach())).sin(), count=1)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    in_forward = []
    for _ in expected:
        with session.step():
            runs.clear()
            loss = model(hidden())
            in_forward.append(len(runs))
            loss.backward()
    assert in_forward == expected


def test_an_unknown_audit_is_refused(attach, monkeypatch):
    monkeypatch.setenv("TIDETAPE_AUDIT", "nonsense")
    model = stack(drifting_body)
    with pytest.raises(ValueError, match=r"TIDETAPE_AUDIT is 'nonsense'; it must be \"every-step\", \"0\" or empty"):
        attach(model, blocks="blocks.*", planner="none")
    assert all("forward" not in block.__dict__ for block in model.blocks)


# --- plans made by hand --------------------------------------------------------------------------------------------------------


def test_impose_refuses_what_it_does_not_know(attach):
    model = stack(drifting_body)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    _step(model, session)
    site = session.sites()["blocks.0"][0].site
    with pytest.raises(ValueError, match=r"no such block: blocks\.7; the blocks are blocks\.0, blocks\.1"):
        session.impose({"blocks.7": {site: "save"}})
    with pytest.raises(ValueError, match='an action is \'keep\'; it must be "save", "replay" or "move"'):
        session.impose({"blocks.0": {site: "keep"}})
    with pytest.raises(ValueError, match='default is \'move\'; it must be "save" or "replay"'):
        session.impose({}, default="move")
    _step(model, session, 1)
    assert session.stats()["saved_bytes"] == session.stats()["demoted_bytes"]


def test_a_site_that_never_was_is_skipped(attach):
    model = stack(drifting_body)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    _step(model, session)
    session.impose({"blocks.0": {12345: "save"}}, default="replay")
    _step(model, session, 1)
    assert session.stats()["saved_bytes"] == session.stats()["demoted_bytes"]


def test_a_plan_follows_its_blocks_into_another_order(attach):
    """Blocks that run in another order than they did keep their own plans."""

    def short(block, x):
        return block.linear(x).tanh()

    def long(block, x):
        return block.linear(x).exp().clamp(max=3).sin().tanh().cos()

    model = stack(short)
    model.blocks[1].body = long
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    _step(model, session)
    saves = {site.site: "save" for site in session.sites()["blocks.1"]}
    session.impose({"blocks.0": {}, "blocks.1": saves}, default="replay")
    saved = []
    for number in (1, 2):
        _step(model, session, number)
        saved.append(session.stats()["saved_bytes"])
        model.blocks = torch.nn.ModuleList(reversed(model.blocks))
    assert saved[0] == saved[1] > 0


def test_a_plan_holds_for_batches_of_other_sizes(attach):
    """As where batches vary and sequences are packed: a value is known by how it was made, not by its size."""

    def body(block, x):
        h = F.softmax(block.linear(x), -1)
        return (h @ block.linear.weight).exp().clamp(max=3) * h[: len(h) // 2].sum()

    model = stack(body)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    with session.step():
        model(torch.randn(4, WIDTH)).backward()
    session.impose({name: {site.site: "save" for site in sites} for name, sites in session.sites().items()}, default="replay")
    for rows in (4, 8, 2, 14):
        with session.step():
            model(torch.randn(rows, WIDTH)).backward()
        stats = session.stats()
        assert stats["saved_bytes"] == stats["consumed_bytes"] > 0
        assert stats["replayed_ops"] == 0
