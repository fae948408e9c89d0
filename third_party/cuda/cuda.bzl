"""Shared libraries of CUDA kernels, with CUDA's runtime inside, so that nothing else of CUDA is needed to load them."""

load("@cuda//:defs.bzl", "NVCC")

# A100, H100 and H200, B200; and for what comes later, code that its driver compiles.
_ARCHITECTURES = ["80", "90", "100"]

def cuda_shared_library(name, srcs, hdrs = []):
    """One .so of all `srcs` for all architectures; an empty target where there is no nvcc."""
    if not NVCC:
        native.filegroup(name = name)
        return
    codes = ["-gencode arch=compute_%s,code=sm_%s" % (a, a) for a in _ARCHITECTURES]
    codes.append("-gencode arch=compute_{0},code=compute_{0}".format(_ARCHITECTURES[-1]))
    files = " ".join(["$(location %s)" % src for src in srcs])
    native.genrule(
        name = name.replace(".so", "") + "_nvcc",
        srcs = srcs + hdrs,
        outs = [name],
        cmd = " ".join([NVCC, "-std=c++20 -O3 -I. -shared -cudart=static -Xcompiler -fPIC"] + codes + [files, "-o $@"]),
    )
