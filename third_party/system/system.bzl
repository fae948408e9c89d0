"""Debian's C++ libraries as cc_library targets: link options from pkg-config, headers from the compiler's own search path."""

def _unique(items):
    seen = {}
    for item in items:
        seen[item] = True
    return seen.keys()

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
            # Registered by a static initialiser, so the linker must not drop it.
            flags = ["-Wl,--no-as-needed", "-lgrpc++_reflection", "-Wl,--as-needed"] + flags
        build.append("cc_library(name = %r, linkopts = %r)" % (name, _unique(flags)))
    ctx.file("BUILD.bazel", "\n".join(build) + "\n")
    ctx.file("WORKSPACE", "workspace(name = %r)\n" % ctx.name)

system_libs = repository_rule(
    implementation = _impl,
    attrs = {"libs": attr.string_list_dict(mandatory = True)},
    local = True,
    configure = True,
    environ = ["PATH", "PKG_CONFIG_PATH"],
)
