"""Where CUDA's compiler is. CUDA_HOME, then PATH, then /usr/local; NVCC is empty where there is none."""

def _impl(ctx):
    candidates = []
    if ctx.os.environ.get("CUDA_HOME"):
        candidates.append(ctx.path(ctx.os.environ["CUDA_HOME"] + "/bin/nvcc"))
    on_path = ctx.which("nvcc")
    if on_path:
        candidates.append(on_path)
    candidates.append(ctx.path("/usr/local/cuda/bin/nvcc"))
    found = [str(path) for path in candidates if path.exists]
    nvcc = found[0] if found else ""
    if not nvcc:
        # buildifier: disable=print
        print("no nvcc: the CUDA kernels are not built (set CUDA_HOME to a CUDA 13 toolkit to build them)")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("BUILD.bazel", "")
    ctx.file("defs.bzl", "NVCC = %r\n" % nvcc)

cuda_repository = repository_rule(
    implementation = _impl,
    local = True,
    configure = True,
    environ = ["CUDA_HOME", "PATH"],
)
