"""System calls that fail or kill the process: of each kind the k-th call, for k up to DEPTH."""
import re

# How calls of the library may fail in life. Not among them: futex, whose errors end a process in
# libc, and read and write, with which ranks talk to the driver.
ERRORS = {"mmap": ["ENOMEM"], "openat": ["EMFILE", "ENOENT"], "socket": ["EMFILE", "ENOBUFS"],
          "connect": ["ECONNREFUSED", "ETIMEDOUT"], "sendmsg": ["ECONNRESET", "ENOBUFS"],
          "recvmsg": ["ECONNRESET"], "sendto": ["ECONNRESET"], "recvfrom": ["ECONNRESET"],
          "epoll_ctl": ["ENOMEM"], "epoll_wait": ["EBADF", "EINTR"],
          "memfd_create": ["EMFILE", "ENOMEM"], "ftruncate": ["EFBIG", "ENOSPC"],
          "accept4": ["EMFILE", "ECONNABORTED"], "clone3": ["EAGAIN"],
          "pidfd_open": ["EMFILE"], "eventfd2": ["EMFILE"], "bind": ["EADDRINUSE"],
          "setsockopt": ["ENOBUFS"], "getrandom": ["EINTR"], "fallocate": ["ENOSPC"]}
# Beside those: calls at which a process may be killed.
FATAL = ["futex", "read", "write", "close", "fcntl", "mprotect", "munmap", "poll", "getsockopt",
         "getsockname", "listen", "epoll_create1", "sched_yield", "newfstatat", "shutdown"]
DEPTH = 21  # the k-th, up to this


def injection(call, what, when):
    """Options of strace."""
    return ["-e", f"trace={call}", "-e", f"inject={call}:{what}:when={when}"]


COUNTING = ["-c", "-S", "name"]


def counts_of(table):
    """{system call: how often} from what strace -c wrote."""
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)(?:\s+\d+)?\s+(\w+)$", table, re.M)
    return {name: int(count) for count, name in rows if name != "total"}


def injections(counts):
    """All that are worth a try where a process makes so many calls: (call, what, when)."""
    for call in sorted(counts):
        whats = ["error=" + error for error in ERRORS.get(call, [])]
        if call in ERRORS or call in FATAL:
            whats.append("signal=KILL")
        for what in whats:
            for when in range(1, min(DEPTH, counts[call]) + 1):
                yield call, what, when
