"""Reads memory limits as people write them: bytes, "3.5GiB", "90%", "min" and "max"."""

from __future__ import annotations

import os
import re

import torch

# As the planner understands them.
LEAST_MEMORY = 0
KEEP_EVERYTHING = -1

_UNITS = {"": 1, "B": 1}
_UNITS.update({f"{prefix}B": 1000 ** (power + 1) for power, prefix in enumerate("KMGT")})
_UNITS.update({f"{prefix}IB": 1024 ** (power + 1) for power, prefix in enumerate("KMGT")})

_HELP = 'write bytes (an int), "3.5GiB", "3500MB", "90%", "min" or "max"'


def parse_memory_limit(value: int | str, device: torch.device | str = "cpu") -> int:
    """The limit on one rank's step peak in bytes; 0 means the least memory, -1 keeps everything.

    A percentage is of `device`'s memory (see device_memory_bytes). Raises ValueError where the value says nothing sensible.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"memory_limit={value!r} is a {type(value).__name__}; {_HELP}")
    if isinstance(value, int):
        if value <= 0:
            raise ValueError(f"memory_limit={value} is not a positive number of bytes; {_HELP}")
        return value
    text = value.strip()
    if text.lower() in ("min", "max"):
        return LEAST_MEMORY if text.lower() == "min" else KEEP_EVERYTHING
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%|[A-Za-z]*)", text)
    if match is None:
        raise ValueError(f"memory_limit={value!r} is no amount of memory; {_HELP}")
    number, unit = float(match[1]), match[2].upper()
    if unit == "%":
        if not 0 < number <= 100:
            raise ValueError(f"memory_limit={value!r}: a percentage lies above 0 and is at most 100")
        return int(device_memory_bytes(device) * number / 100)
    if unit not in _UNITS:
        raise ValueError(f"memory_limit={value!r} has the unknown unit {match[2]!r}; {_HELP}")
    limit = int(number * _UNITS[unit])
    if limit <= 0:
        raise ValueError(f"memory_limit={value!r} is not a positive number of bytes; {_HELP}")
    return limit


def parse_host_memory_limit(value: int | str | None) -> int:
    """The limit on what one rank moves to host memory, in bytes; 0 for None. Raises ValueError on a value that makes no sense."""
    if value is None:
        return 0
    try:
        limit = parse_memory_limit(value)
    except ValueError as error:
        raise ValueError(f"host_{error}") from None
    if limit in (LEAST_MEMORY, KEEP_EVERYTHING):
        raise ValueError(f'host_memory_limit={value!r}: write bytes (an int), "3.5GiB", "3500MB", "10%" or None')
    return limit


def device_memory_bytes(device: torch.device | str = "cpu") -> int:
    """Memory that one rank may use: all of a CUDA device; on CPU the cgroup's limit or the machine's memory, whichever is less,
    shared evenly by the LOCAL_WORLD_SIZE ranks of the host. Bytes."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if device.type != "cpu":
        raise ValueError(f"memory_limit as a percentage is not known for device {device}; {_HELP}")
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, cgroup_limit_bytes() or machine) // _ranks_on_this_host()


def _ranks_on_this_host() -> int:
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"LOCAL_WORLD_SIZE={text!r} is not a number of ranks")
    return int(text)


def cgroup_limit_bytes(memberships: str = "/proc/self/cgroup", mount: str = "/sys/fs/cgroup") -> int | None:
    """The least memory limit of this process's cgroup and those around it (version 2 or 1), or None without one. Bytes."""
    try:
        with open(memberships) as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits_along(mount, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits_along(os.path.join(mount, "memory"), path, "memory.limit_in_bytes")
    # Version 1 says "no limit" with the largest number of pages, which is more than any machine has.
    return min(limits, default=None)


def _limits_along(root: str, path: str, name: str) -> list[int]:
    """Limits from the cgroup up to the root. Inside a container the path may not be visible; what is, counts."""
    limits = []
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        try:
            with open(os.path.join(root, *parts[:depth], name)) as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return limits
