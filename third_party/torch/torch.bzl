"""The torch of the project's Python: headers as one directory label, link options with an rpath to its libraries."""

_PROBE = """
import importlib.util, os, sys, sysconfig
spec = importlib.util.find_spec("torch")
if spec is None:
    sys.exit("torch is not installed for " + sys.executable)
root = os.path.dirname(spec.origin)
version = {}
exec(open(os.path.join(root, "version.py")).read(), version)
print(root)
print(sysconfig.get_path("include"))
print(sys.executable)
print(version["__version__"].split("+")[0])
print(os.path.dirname(root))
"""

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(name = "python_headers", hdrs = ["python"], includes = ["python"])

cc_library(
    name = "torch",
    hdrs = ["include"],
    includes = ["include", "include/torch/csrc/api/include"],
    defines = ["TT_TORCH_VERSION={number}"],
    deps = [":python_headers"],
    linkopts = ["-L{lib}", "-Wl,-rpath,{lib}", "-lc10", "-ltorch_cpu", "-ltorch"],
)

# For what a Python process loads: programs without an interpreter cannot link it.
cc_library(name = "torch_python", deps = [":torch"], linkopts = ["-ltorch_python"])
"""

def _impl(ctx):
    # The project's own environment, unless the caller names another.
    own = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv").get_child("bin").get_child("python")
    python = ctx.os.environ.get("TIDETAPE_PYTHON") or (str(own) if own.exists else "python3")
    if "/" not in python:
        python = str(ctx.which(python))
    result = ctx.execute([python, "-I", "-c", _PROBE])
    if result.return_code != 0:
        fail("TIDETAPE_PYTHON=%s has no torch; run `make setup`. It said: %s" % (python, result.stderr))
    torch, include, executable, version, site = result.stdout.strip().split("\n")
    parts = version.split(".")
    number = int(parts[0]) * 10000 + int(parts[1]) * 100 + int(parts[2])
    ctx.symlink(torch + "/include", "include")
    ctx.symlink(include, "python")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)
    ctx.file("defs.bzl", "PYTHON = %r\nSITE = %r\nTORCH_VERSION = %r\n" % (executable, site, version))
    ctx.file("BUILD.bazel", _BUILD.format(number = number, lib = torch + "/lib"))

torch_repository = repository_rule(
    implementation = _impl,
    local = True,
    configure = True,
    environ = ["TIDETAPE_PYTHON", "PATH"],
)
