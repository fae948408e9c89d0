"""Runs a function on several ranks: processes of their own with a gloo group between them."""

import multiprocessing
import traceback

import torch.distributed as dist


def _main(function, rank, world_size, meeting, before, pipe, args):
    try:
        if before is not None:
            before(rank)
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
        pipe.send((True, function(rank, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        raise


def run_ranks(function, world_size, path, *args, timeout_seconds=120, meeting=None, before=None):
    """What `function(rank, *args)` returned on each rank; None for a rank that died without a word. A rank's exception fails the
    test. `path` is a folder of the test's own. No rank outlives the call. `before(rank)` is called before the ranks meet, which
    they do at the address `meeting`, or in the folder."""
    context = multiprocessing.get_context("spawn")
    processes = []
    for rank in range(world_size):
        ours, theirs = context.Pipe()
        where = meeting or f"file://{path / 'store'}"
        process = context.Process(target=_main, args=(function, rank, world_size, where, before, theirs, args), daemon=True)
        process.start()
        theirs.close()
        processes.append((process, ours))
    results = []
    try:
        for rank, (_, pipe) in enumerate(processes):
            assert pipe.poll(timeout_seconds), f"rank {rank} said nothing for {timeout_seconds} s"
            try:
                good, value = pipe.recv()
            except EOFError:
                good, value = True, None
            assert good, f"rank {rank}: {value}"
            results.append(value)
    finally:
        for process, _ in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
    return results
