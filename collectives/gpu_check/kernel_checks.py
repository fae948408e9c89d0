"""The kernels on a GPU: their sums against float64 rounded after each step, and their speed against the copy engine's."""

import ctypes
from pathlib import Path

import torch

MAX_ROWS = 72
FINISHES = ("store", "add", "scale", "scale and add")
FACTOR = 0.3
ROWS = 8
TIMED_BYTES = 1 << 28
TIMED_RUNS = 20


class RowSum(ctypes.Structure):
    """As in collectives/kernels/row_sum.h."""

    _fields_ = [
        ("sources", ctypes.c_void_p * MAX_ROWS),
        ("rows", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("finish", ctypes.c_int32),
        ("factor", ctypes.c_float),
        ("destination", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
    ]


class RowSumLaunch(ctypes.Structure):
    """As in collectives/kernels/row_sum_kernels.h."""

    _fields_ = [("ctas", ctypes.c_int32), ("elements_per_cta", ctypes.c_int64)]


def launch(library, rows, destination, finish, ctas=0, elements_per_cta=16384):
    """Enqueues one sum on the current stream."""
    task = RowSum(rows=len(rows), dtype=int(rows[0].dtype == torch.float32), finish=finish, factor=FACTOR)
    task.elements = destination.numel()
    task.destination = destination.data_ptr()
    for i, row in enumerate(rows):
        task.sources[i] = row.data_ptr()
    arguments = (ctypes.byref(task), ctypes.byref(RowSumLaunch(ctas, elements_per_cta)))
    error = library.tt_row_sum(*arguments, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    if error:
        raise RuntimeError(f"tt_row_sum: CUDA error {error}")


def expected(rows, old, finish):
    """In float64, rounded to float32 after every step: float32 arithmetic by its definition."""
    total = rows[0].double()
    for row in rows[1:]:
        total = (total + row.double()).float().double()
    if finish >= 2:
        total = (torch.tensor(FACTOR, dtype=torch.float32, device=total.device).double() * total).float().double()
    return (old.double() + total).float() if finish % 2 else total.float()


def wrong_sums(library):
    """(sums tried, descriptions of those that are wrong), over dtypes, finishes, sizes and alignments to elements."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    tried, wrong = 0, []
    for dtype in (torch.bfloat16, torch.float32):
        memory = torch.randn(3, 4200, device="cuda", generator=generator).to(dtype)
        for finish, name in enumerate(FINISHES):
            for elements in [*range(70), 255, 256, 257, 1023, 1024, 2048, 4093, 4096, 4099]:
                for shift in range(8):
                    rows = [row[shift : shift + elements] for row in memory]
                    old = torch.randn(elements + 8, device="cuda", generator=generator)
                    result = old.clone()
                    at = (shift * 3) % 4
                    if elements:
                        launch(library, rows, result[at : at + elements], finish, elements_per_cta=1000)
                    want = old.clone()
                    want[at : at + elements] = expected(rows, old[at : at + elements], finish)
                    tried += 1
                    if not torch.equal(result, want):
                        wrong.append(f"{dtype}, {name}, {elements} elements, {shift} elements off")
    return tried, wrong


def seconds(work):
    """Of one run on the device, the median of several."""
    times = []
    for _ in range(TIMED_RUNS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return sorted(times)[len(times) // 2]


def speed(library):
    """Bytes a second that a sum of bfloat16 rows and that a copy moves, reads and writes counted; by number of CTAs."""
    elements = TIMED_BYTES // 2 // ROWS
    rows = [torch.ones(elements, dtype=torch.bfloat16, device="cuda") for _ in range(ROWS)]
    sums = torch.empty(elements, device="cuda")
    source, copy = (torch.empty(TIMED_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    found = {"copy_bytes_per_second": 2 * TIMED_BYTES / seconds(lambda: copy.copy_(source))}
    for ctas in (0, 16, 32, 64):
        took = seconds(lambda ctas=ctas: launch(library, rows, sums, 0, ctas))
        found[f"sum_bytes_per_second_{ctas or 'all'}_ctas"] = (TIMED_BYTES + 4 * elements) / took
    return found


def check(path: Path) -> dict:
    """All of the above, for the report."""
    library = ctypes.CDLL(str(path))
    tried, wrong = wrong_sums(library)
    return {"gpu": torch.cuda.get_device_name(), "sums": tried, "wrong": wrong[:20], "speed": speed(library)}
