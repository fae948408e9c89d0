"""Debian's C++ libraries as cc_library targets: link options from pkg-config, headers from the compiler's own search path."""

# What the linker keeps on a stack: each of these belongs to one of the others, also where it was said before.
_PAIRED = ["-Wl,--push-state", "-Wl,--pop-state"]

def _without_repeats(flags):
    seen = {}
    kept = []
    for flag in flags:
        if flag not in seen or any([flag.startswith(paired) for paired in _PAIRED]):
            kept.append(flag)
        seen[flag] = True
    return kept

def _impl(ctx):
    build = ['package(default_visibility = ["//visibility:public"])']
    for name, modules in ctx.attr.libs.items():
        flags = []
        for module in modules:
            result = ctx.execute(["pkg-config", "--libs", module])
            if result.return_code != 0:
                fail("pkg-config does not know %s; run `make setup`. It said: %s" % (module, result.stderr))
            flags += [flag for flag in result.stdout.strip().split(" ") if flag]
        if name == "grpc_reflection":
            # Registered by a static initialiser, so the linker must not drop it. What follows is linked as it would be without this.
            flags = ["-Wl,--push-state,--no-as-needed", "-lgrpc++_reflection", "-Wl,--pop-state"] + flags
        deps = ""
        if name == "absl_synchronization":
            deps = ", deps = select({%r: [%r], \"//conditions:default\": []})" % (
                "@//third_party/system:thread_sanitizer",
                "@//third_party/system:abseil_thread_sanitizer",
            )
        build.append("cc_library(name = %r, linkopts = %r%s)" % (name, _without_repeats(flags), deps))
    ctx.file("BUILD.bazel", "\n".join(build) + "\n")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

system_libs = repository_rule(
    implementation = _impl,
    attrs = {"libs": attr.string_list_dict(mandatory = True)},
    local = True,
    configure = True,
    environ = ["PATH", "PKG_CONFIG_PATH"],
)
