"""A machine of QEMU's with one guest in it. What host and guest say to each other lies in a folder
that the guest sees as /job; all machines of a run see the folder /shared too."""
import os
import re
import shutil
import signal
import subprocess

PROGRAM = "qemu-system-x86_64"
MEMORY = "3G"
# It ends with the process that has started it, however that ends.
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]
KERNEL_WORDS = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable"


def why_not():
    """What keeps this computer from emulating one; empty if nothing."""
    if os.uname().machine != "x86_64":
        return f"the guest is for x86_64, and this is {os.uname().machine}"
    if shutil.which(PROGRAM) is None:
        return f"there is no {PROGRAM}; Debian and its kin have it (qemu-system-x86)"
    return ""


def has_kvm(cpuinfo="/proc/cpuinfo", device="/dev/kvm"):
    """A /dev/kvm alone is no proof: under some hypervisors it opens, and the guest hangs."""
    with open(cpuinfo, encoding="ascii", errors="replace") as file:
        flags = re.search(r"^flags\s*:.*\b(vmx|svm)\b", file.read(), re.M)
    return flags is not None and os.access(device, os.R_OK | os.W_OK)


def accelerator():
    return ["-accel", "kvm", "-cpu", "host"] if has_kvm() else \
        ["-accel", "tcg,thread=multi", "-cpu", "max"]


def shared_folder(tag, path):
    return ["-fsdev", f"local,id={tag},path={path},security_model=none",
            "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def cable(host, ports):
    """A card whose other end is the other machine's: datagrams on loopback."""
    mine, other = ports if host == 1 else reversed(ports)
    return ["-netdev", f"socket,id=n0,udp=127.0.0.1:{other},localaddr=127.0.0.1:{mine}",
            "-device", f"virtio-net-pci,netdev=n0,mac=52:54:00:00:00:{host:02x},host_mtu=4200,"
                       "romfile="]


class Machine:
    def __init__(self, kernel, archives, job, shared, host=1, ports=None):
        """`archives` are unpacked one after the other; `ports` if there is another machine."""
        self.job, self.host = job, host
        self.console = os.path.join(job, "console.txt")
        first_root = os.path.join(job, "root.cpio")
        with open(first_root, "wb") as whole:
            for path in archives:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, whole)
        with open(self.console, "wb") as console:
            self.process = subprocess.Popen(
                [*WITH_PARENT, PROGRAM, "-M", "q35", *accelerator(), "-m", MEMORY,
                 "-smp", "2" if ports is None else "1", "-nodefaults",
                 "-no-user-config", "-display", "none", "-no-reboot",
                 "-kernel", kernel, "-initrd", first_root, "-append", KERNEL_WORDS,
                 "-serial", "stdio", "-device", "isa-debug-exit,iobase=0xf4,iosize=1",
                 *shared_folder("job", job), *shared_folder("shared", shared),
                 *(cable(host, ports) if ports else [])],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console)

    def has_ended(self):
        return self.process.poll() is not None

    def end(self):
        if not self.has_ended():
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def said(self):
        """What its kernel, and whatever ran outside a case, has printed."""
        with open(self.console, encoding="utf-8", errors="replace") as file:
            return file.read()
