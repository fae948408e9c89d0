"""Values that a plan moves to host memory come back as they were, and do not count while they are away."""

import pytest
import torch
import torch.nn.functional as F

import tidetape
from tests.processes import run_program
from tests.small_blocks import ROWS, WIDTH, backward, hidden, require_as_plain, stack

VALUE_BYTES = ROWS * WIDTH * 4


def move_all(session, default="save"):
    session.impose({block: {site.site: "move" for site in sites} for block, sites in session.sites().items()}, default)


@pytest.fixture(params=["save", "replay"])
def moved(request, attach):
    """moved(body, program): trains with all values moved, as it does plainly; what no plan names is saved or replayed. Returns
    what the last step says."""

    def compare(body, program=backward):
        sessions = []

        def attach_and_note(*args, **kwargs):
            sessions.append(attach(*args, **kwargs))
            return sessions[-1]

        def move_and_train(model, x):
            for session in sessions:
                move_all(session, request.param)
            return program(model, x)

        way = "everything" if request.param == "save" else "nothing"
        stats = require_as_plain(attach_and_note, way, lambda: stack(body), move_and_train).stats
        assert stats["moved_bytes"] > 0
        return stats

    return compare


def _body(block, x):
    return block.linear(x).tanh() * x.sin()


def test_all_values_are_moved(moved):
    stats = moved(_body)
    assert stats["moved_bytes"] == stats["consumed_bytes"] == 4 * VALUE_BYTES
    assert stats["saved_bytes"] == 0
    assert stats["replayed_ops"] == 0


def test_random_values_and_statistics(moved):
    moved(lambda block, x: F.dropout(block.norm(block.linear(x)).exp().clamp(max=3), 0.2) * x.sin())


def test_values_of_other_kinds(moved):
    def body(block, x):
        h = block.linear(x)
        wide = h[:, :1].exp().expand(ROWS, WIDTH)
        half = h.bfloat16().t().exp().t().float()
        turned = torch.fft.rfft(h)
        nothing = h[:0].exp()
        order = h.argsort(-1)
        return (
            torch.cat([wide * wide.sin() + half, nothing * nothing]) + torch.fft.irfft(turned * turned.conj()) + h.gather(-1, order)
        )

    moved(body)


def test_values_written_in_place_before_and_after_they_are_saved(moved):
    def body(block, x):
        h = block.linear(x).mul_(2).sigmoid_()
        result = h * x.sin()
        scale = x.detach().exp()
        total = result + scale
        scale.mul_(0.5)
        return total * scale

    moved(body)


def test_an_output_written_past_the_version_counter_after_it_was_moved(moved):
    """Backward reads what was written, as in plain training, not what was moved."""

    def program(model, x):
        h = model.blocks[0](x)
        h.data.mul_(0.5)
        loss = model.blocks[1](h).square().mean() + h.sum()
        loss.backward()
        return loss

    moved(lambda block, x: block.linear(x).exp(), program)


def test_a_value_read_by_several_nodes(moved):
    def body(block, x):
        h = block.linear(x).tanh()
        return h.exp() * h.sin() + h * h * (h @ block.linear.weight)

    moved(body)


def test_a_graph_read_twice(moved):
    def program(model, x):
        loss = model(x)
        loss.backward(retain_graph=True)
        (2 * loss).backward()
        return loss

    moved(_body, program)


def test_several_forwards_before_one_backward_in_another_order(moved):
    def program(model, x):
        losses = [model(x * scale) for scale in (1.0, 0.5, 2.0)]
        for loss in (losses[1], losses[0], losses[2]):
            loss.backward()
        return sum(losses)

    moved(_body, program)


def test_a_graph_that_never_runs_backward(moved):
    def program(model, x):
        model(x * 2)
        return backward(model, x)

    moved(_body, program)


def test_memory_falls_while_values_are_away(attach):
    model = stack(_body)
    session = attach(model, blocks="blocks.*", memory_limit="max", planner="none")

    def live_after_forward():
        with session.step():
            x = hidden()
            before = tidetape._C.meter_live_bytes()
            loss = model(x)
            held = tidetape._C.meter_live_bytes() - before
            loss.backward()
        return held

    live_after_forward()
    kept = live_after_forward()
    saved = session.stats()["saved_bytes"]
    move_all(session)
    assert kept - live_after_forward() == saved == session.stats()["moved_bytes"] == 4 * VALUE_BYTES
    assert live_after_forward() == kept - saved


PROGRAM = """
    import os, resource
    import tidetape
    from tests.small_blocks import backward, require_as_plain, stack
    from tests.test_moved import _body, move_all

    sessions = []

    def attach(*args, **kwargs):
        sessions.append(tidetape.attach(*args, **kwargs))
        return sessions[-1]

    def program(model, x):
        for session in sessions:
            move_all(session)
        return backward(model, x)

    def train():
        return require_as_plain(attach, "everything", lambda: stack(_body), program).stats
"""


def _run(program, **environment):
    done = run_program(PROGRAM + program, **environment)
    assert done.returncode == 0, done.stderr


def test_a_directory_of_ones_own(tmp_path):
    _run(
        """
    stats = train()
    assert stats["moved_bytes"] == stats["consumed_bytes"] and stats["saved_bytes"] == 0, stats
    links = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if number.isdigit()
             and os.path.islink(f"/proc/self/fd/{number}")]
    assert any(link.startswith(os.environ["TIDETAPE_HOST_DIR"]) for link in links), links
    """,
        TIDETAPE_HOST_DIR=str(tmp_path),
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("directory", ["missing", "file"])
def test_without_a_directory_values_stay(tmp_path, directory):
    (tmp_path / "file").touch()
    program = """
    stats = train()
    assert stats["moved_bytes"] == 0 and stats["saved_bytes"] == stats["consumed_bytes"] > 0, stats
    """
    _run(program, TIDETAPE_HOST_DIR=str(tmp_path / directory))


@pytest.mark.parametrize("room", [0, 1], ids=["none", "one value"])
def test_what_finds_no_room_stays(tmp_path, room):
    """A limit on the size of files stands for a full disk."""
    program = f"""
    resource.setrlimit(resource.RLIMIT_FSIZE, ({room} << 16, resource.RLIM_INFINITY))
    stats = train()
    assert stats["moved_bytes"] == {room * VALUE_BYTES}, stats
    assert stats["saved_bytes"] == stats["consumed_bytes"] - {room * VALUE_BYTES}, stats
    """
    _run(program, TIDETAPE_HOST_DIR=str(tmp_path))


def test_values_are_read_back_one_block_ahead(tmp_path):
    """When the gradient comes to a block, its values have been read: the file may go."""
    _run(
        """
    import time
    from tests.small_blocks import hidden

    own = [0]  # bytes of the counter's own file, which it counts as well

    def bytes_read():
        with open("/proc/self/io", "rb", buffering=0) as file:
            text = file.read(4096)
        read = int(text.split()[1]) - own[0]
        own[0] += len(text)
        return read

    def until_read(count, start):
        for _ in range(1000):
            if bytes_read() - start >= count:
                return
            time.sleep(0.01)
        raise AssertionError(f"{count} bytes were not read ahead")

    train()
    sessions.pop().detach()
    model = stack(_body)
    session = attach(model, blocks="blocks.*", memory_limit="max", planner="none")
    with session.step():
        backward(model, hidden())
    move_all(session)
    with session.step():
        x = hidden()
        h = model.blocks[0](x)
        result = model.blocks[1](h)
        (file,) = [name for number in os.listdir("/proc/self/fd") if os.path.islink(name := f"/proc/self/fd/{number}")
                   and os.readlink(name).startswith(os.environ["TIDETAPE_HOST_DIR"])]
        start = bytes_read()

        def lose_the_file(gradient):
            until_read(4 * 96, start)  # two values of each block
            os.truncate(file, 0)

        h.register_hook(lose_the_file)
        result.sum().backward()
    """,
        TIDETAPE_HOST_DIR=str(tmp_path),
    )


def test_a_value_that_cannot_be_read_back_is_an_error(tmp_path):
    _run(
        """
    import pytest, torch
    from tests.small_blocks import hidden

    train()
    model = stack(_body)
    sessions.pop().detach()
    session = attach(model, blocks="blocks.*", memory_limit="max", planner="none")
    for step in range(2):
        with session.step():
            loss = model(hidden())
            if step == 0:
                loss.backward()
        move_all(session)
    (file,) = [name for number in os.listdir("/proc/self/fd") if os.path.islink(name := f"/proc/self/fd/{number}")
               and os.readlink(name).startswith(os.environ["TIDETAPE_HOST_DIR"])]
    os.truncate(file, 0)
    with pytest.raises(RuntimeError, match="could not be read back; check the disk of TIDETAPE_HOST_DIR"):
        loss.backward()
    """,
        TIDETAPE_HOST_DIR=str(tmp_path),
    )
