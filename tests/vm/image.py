"""What a machine boots: Debian's kernel, and an archive with the tools of the guest. Both are made
once and kept in ~/.cache/gyre/vm, under names that change with what they were made of."""
import contextlib
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import time

from archive import Archive

CACHE = os.path.join(os.path.expanduser("~"), ".cache", "gyre", "vm")
MODULES = ["virtio_pci", "virtio_net", "9p", "9pnet_virtio", "crc32_generic", "rdma_rxe",
           "rdma_ucm", "dummy", "veth", "sch_netem", "sch_tbf"]
TOOLS = ["bash", "ip", "tc", "rdma", "kmod", "timeout", "setpriv"]
MINUTES_FOR_PACKAGES = 15
DAYS_UNUSED = 30
FOLDERS = ["bin", "proc", "sys", "dev", "tmp", "job", "shared", "root", "run", "etc"]
INIT = """\
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
ln -s /proc/self/fd /dev/fd
mkdir -p /dev/shm; mount -t tmpfs s /dev/shm; chmod 1777 /tmp /dev/shm
modprobe -a virtio_pci 9p 9pnet_virtio
for tag in job shared; do
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none $tag /$tag
done
ip link set lo up
ulimit -l unlimited
bash /job/guest.sh
# Ends QEMU at once.
dd if=/dev/zero of=/dev/port bs=1 seek=244 count=1 2>/dev/null
"""


class Missing(Exception):
    """What cannot be had on this machine, in words."""


def asked(*command, **options):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=60 * MINUTES_FOR_PACKAGES, **options)
    except OSError as error:
        raise Missing(str(error)) from error


def kernel_name():
    """The kernel that Debian's package of all kernels stands for now. Its name moves with security
    updates."""
    said = asked("apt-cache", "depends", "linux-image-amd64").stdout
    found = re.search(r"Depends: linux-image-(\S+)", said)
    if not found:
        raise Missing("apt knows no linux-image-amd64: is this Debian, and was apt-get update run?")
    return found[1]


def key_of(*texts):
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def unpacked(vmlinuz):
    """The kernel inside a bzImage. Without KVM, unpacking by the guest takes 15 s."""
    (offset,) = struct.unpack_from("<I", vmlinuz, 0x248)
    begin = ((vmlinuz[0x1f1] or 4) + 1) * 512 + offset
    if vmlinuz[begin:begin + 6] != b"\xfd7zXZ\0":
        return vmlinuz
    return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(vmlinuz[begin:])


def module_files(root, name):
    """Those of MODULES and what they need; each must be there."""
    found = []
    for module in MODULES:
        done = asked("modprobe", "-d", root, "-S", name, "--show-depends", module)
        if done.returncode != 0:
            raise Missing(f"kernel {name} has no module {module}: {done.stderr.strip()}")
        found += re.findall(r"^insmod (\S+)", done.stdout, re.M)
    return sorted(set(found))


def make_kernel(name, folder):
    """Downloads the package, and keeps of it what a guest takes."""
    part = folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    done = asked("apt-get", "download", f"linux-image-{name}", cwd=part)
    packages = glob.glob(os.path.join(part, "*.deb"))
    if done.returncode != 0 or not packages:
        raise Missing(f"apt-get download linux-image-{name}: {done.stderr.strip()}")
    whole = os.path.join(part, "whole")
    asked("dpkg-deb", "-x", packages[0], whole)
    asked("depmod", "-b", whole, name)
    with open(os.path.join(whole, "boot", f"vmlinuz-{name}"), "rb") as file, \
            open(os.path.join(part, "vmlinux"), "wb") as target:
        target.write(unpacked(file.read()))
    kept = module_files(whole, name)
    about = os.path.join(whole, "lib", "modules", name)
    kept += [os.path.join(about, f"modules.{what}")
             for what in ("order", "builtin", "builtin.modinfo")]
    for path in kept:
        target = os.path.join(part, "root", os.path.relpath(path, whole))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(path, target)
    asked("depmod", "-b", os.path.join(part, "root"), name)
    os.remove(packages[0])
    shutil.rmtree(whole)
    os.rename(part, folder)


def note_use(used):
    """Removes what nobody has used for long. Work trees may differ in what they take."""
    os.utime(used)
    for entry in os.scandir(CACHE):
        if time.time() - entry.stat().st_mtime > DAYS_UNUSED * 86400:
            if entry.is_dir():
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.remove(entry.path)


def kernel(say):
    """The folder with `vmlinux` and `root`, the modules as they lie in the guest."""
    name = kernel_name()
    folder = os.path.join(CACHE, f"kernel-{name}-{key_of(*MODULES)}")
    if not os.path.isdir(folder):
        say(f"downloading Debian's kernel {name} (70 MB) into {CACHE}")
        make_kernel(name, folder)
    note_use(folder)
    return folder


def tool_files():
    """Of this machine: programs, and the provider of rxe, which libibverbs loads by name."""
    paths = []
    for tool in TOOLS:
        path = shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if path is None:
            raise Missing(f"there is no {tool}")
        paths.append(path)
    return paths, [path for pattern in ("/usr/lib/*/libibverbs/librxe-rdmav*.so",
                                        "/usr/lib/*/libibverbs.so.1",
                                        # UCX, if it is there, and what it loads by name.
                                        "/usr/lib/*/libucp.so.0",
                                        "/usr/lib/*/ucx/libuct_*.so.0")
                   for path in glob.glob(pattern)]


def busybox():
    path = shutil.which("busybox")
    if path is None or asked("ldd", path).returncode == 0:
        raise Missing("there is no busybox without shared libraries (busybox-static)")
    return path


def fill(archive, folder):
    programs, providers = tool_files()
    for name in FOLDERS:
        archive.add(name, "folder")
    archive.add("init", "file", INIT.encode())
    archive.add("etc/hosts", "file", b"127.0.0.1 localhost\n::1 localhost\n")
    archive.add("etc/passwd", "file", b"root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/:\n")
    for path in programs:
        archive.add_program(path)
        archive.add("bin/" + os.path.basename(path), "link", path.encode())
    for path in providers:
        archive.add_program(path)
    # Those of other hardware would warn in each process.
    if os.path.exists("/etc/libibverbs.d/rxe.driver"):
        archive.add_copy("/etc/libibverbs.d/rxe.driver")
    archive.add_copy(busybox(), "bin/busybox")
    archive.add("bin/modprobe", "link", b"kmod")
    for applet in asked(busybox(), "--list").stdout.split():
        archive.add(f"bin/{applet}", "link", b"busybox")
    root = os.path.join(folder, "root")
    for place, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            path = os.path.join(place, name)
            archive.add_copy(path, os.path.relpath(path, root))


def tools(folder, say):
    """The archive of everything but the programs under test."""
    programs, providers = tool_files()
    made_of = [f"{path} {os.stat(path).st_size} {os.stat(path).st_mtime_ns}"
               for path in sorted({*programs, *providers, busybox()})]
    with open(__file__, encoding="utf-8") as file:
        key = key_of(folder, file.read(), *made_of)
    path = os.path.join(CACHE, f"tools-{key}.cpio")
    if not os.path.exists(path):
        say("packing the guest's tools")
        with Archive(path + ".part") as archive:
            fill(archive, folder)
        os.rename(path + ".part", path)
    note_use(path)
    return path


@contextlib.contextmanager
def alone():
    """One process at a time makes what is missing."""
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(lock.name)
        yield


def base(say):
    """(name of the kernel, its file, the archive of tools)."""
    with alone():
        folder = kernel(say)
        return kernel_name(), os.path.join(folder, "vmlinux"), tools(folder, say)


def pack_programs(path, programs):
    """The programs under test, at the places where they lie on this machine."""
    with Archive(path) as archive:
        for program in programs:
            archive.add_program(program)
