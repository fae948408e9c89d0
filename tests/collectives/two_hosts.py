"""Two hosts on one machine: network namespaces with a cable between them. Needs root and iproute2."""

import ctypes
import functools
import os
import subprocess

CLONE_NEWNET = 0x40000000
PORT = 29513


class TwoHosts:
    """A context; leaving it takes the hosts away. Raises OSError where they cannot be made."""

    def __enter__(self):
        self._holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in range(2)]
        own = os.stat("/proc/self/ns/net").st_ino
        # The namespace is there as soon as the holder runs what it was started for.
        for holder in self._holders:
            while holder.poll() is None and os.stat(f"/proc/{holder.pid}/ns/net").st_ino == own:
                os.sched_yield()
            if holder.poll() is not None:
                self.__exit__()
                raise OSError("network namespaces need root")
        self._run(0, "ip", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", str(self._holders[1].pid))
        for host in range(2):
            self._run(host, "ip", "link", "set", "lo", "up")
            self._run(host, "ip", "addr", "add", f"{address(host)}/24", "dev", f"cable{host}")
            self._run(host, "ip", "link", "set", f"cable{host}", "up")
        return self

    def __exit__(self, *_):
        for holder in self._holders:
            holder.kill()
            holder.wait()

    @property
    def meeting(self):
        return f"tcp://{address(0)}:{PORT}"

    def holder(self, host):
        """A process on the host, for nsenter."""
        return self._holders[host].pid

    def cable(self, state):
        """Takes the cable away, or puts it back: "down" or "up"."""
        self._run(0, "ip", "link", "set", "cable0", state)

    def enter(self, per_host):
        """For run_ranks: takes a rank to its host, `per_host` ranks on each."""
        return functools.partial(_enter, tuple(holder.pid for holder in self._holders), per_host)

    def _run(self, host, *command):
        subprocess.run(["nsenter", "--target", str(self._holders[host].pid), "--net", *command], check=True)


def address(host):
    return f"10.117.0.{host + 1}"


def _enter(holders, per_host, rank):
    host = rank // per_host
    with open(f"/proc/{holders[host]}/ns/net") as space:
        if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
    os.environ |= {"MASTER_ADDR": address(0), "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": f"cable{host}"}
