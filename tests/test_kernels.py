"""The CUDA kernels as compiled: for which GPUs, and of what. Needs no GPU; skipped where nvcc was not there to compile them."""

from pathlib import Path

import kernel_report
import pytest

LIBRARY = Path(__file__).resolve().parent.parent / "bazel-bin" / "collectives" / "kernels" / "libtt_kernels.so"
ARCHITECTURES = {"sm_80", "sm_90", "sm_100"}
# Of 65,536 registers and 256 threads a CTA: at least four CTAs fit on an SM.
MOST_REGISTERS = 64


@pytest.fixture(scope="module")
def tool():
    if not LIBRARY.exists():
        pytest.skip("no nvcc: the CUDA kernels were not built")
    found = kernel_report.cuobjdump()
    if found is None:
        pytest.skip("no cuobjdump to read the CUDA kernels with")
    return found


def test_every_kernel_is_there_for_every_architecture(tool):
    kernels = kernel_report.kernels_of(LIBRARY, tool)
    assert {k.architecture for k in kernels} == ARCHITECTURES
    for architecture in ARCHITECTURES:
        those = {(k.dtype, k.finish) for k in kernels if k.architecture == architecture}
        assert those == {(d, f) for d in ("bfloat16", "float32") for f in ("store", "add", "scale", "scale and add")}


def test_kernels_leave_room_on_an_sm_and_spill_nothing(tool):
    for k in kernel_report.kernels_of(LIBRARY, tool):
        assert k.registers <= MOST_REGISTERS, k
        assert (k.stack, k.local, k.shared) == (0, 0, 0), k


def test_rows_are_read_and_sums_written_16_bytes_at_a_time(tool):
    accesses = kernel_report.wide_accesses(LIBRARY, tool)
    assert len(accesses) == 8 * len(ARCHITECTURES)
    for kernel, (loads, stores) in accesses.items():
        assert loads >= 2 and stores >= 1, kernel
