"""The programs that are compared: how each is started on so many ranks over a given transport, and
how its results are read."""
import json
import os
import shutil
import subprocess
import tempfile

NO_LIMIT = 1 << 62
MANY = os.cpu_count() or 1  # above this many ranks, waiting ranks must give way


class Gyre:
    """A perf program of Gyre's, with settings of its own. Its buffers come from malloc, as those of
    the MPI programs do, or are registered: from gyreMemAlloc."""

    def __init__(self, build, program="all_reduce_perf", name="gyre", settings=None,
                 memory="malloc"):
        self.name, self.memory = name, memory
        self.launcher = os.path.join(build, "tools", "gyre")
        self.program = os.path.join(build, "bench", program)
        self.settings = settings or {}
        self.max_bytes = NO_LIMIT  # larger sizes are left out

    def command(self, ranks, transport, sizes, rows_file):
        words = [self.launcher, "run", "-n", str(ranks), self.program, *sizes, "--stats", "-J",
                 rows_file]
        if self.memory == "malloc":
            words += ["--device", "host", "--plain_memory"]
        return words, {"GYRE_TRANSPORT": transport, "GYRE_SOCKET_IFNAME": "lo", **self.settings}

    @staticmethod
    def rows(rows_file):
        with open(rows_file) as file:
            document = json.load(file)
        for result in document["results"]:
            for key, in_place in (("out_of_place", False), ("in_place", True)):
                times = result[key + "_per_iter"]
                if times is None:  # there is no in-place form
                    continue
                yield {"bytes": result["size"], "in_place": in_place, "p50_us": times["p50_us"],
                       "p99_us": times["p99_us"]}


class Mpi:
    max_bytes = NO_LIMIT

    def __init__(self, program):
        self.program = program

    @staticmethod
    def rows(rows_file):
        with open(rows_file) as file:
            for line in file:
                yield json.loads(line)

    def after(self, launcher, sizes, rows_file):
        return [*launcher, self.program, *sizes, "-J", rows_file]


class OpenMpi(Mpi):
    name = "openmpi"
    launcher = "mpirun.openmpi"

    def command(self, ranks, transport, sizes, rows_file):
        words = [self.launcher, "--oversubscribe", "-n", str(ranks), "--mca", "pml", "ob1"]
        if os.geteuid() == 0:
            words.append("--allow-run-as-root")
        if ranks > MANY:
            words += ["--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"]
        if transport == "tcp":
            words += ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
        else:
            words += ["--mca", "btl", "self,vader"]
        return self.after(words, sizes, rows_file), {}


class Gloo(Mpi):
    """Over TCP alone. It is built against the Gloo whose prefix, or build folder beside `gloo`,
    holds its headers and libgloo.a."""
    name = "gloo"

    def __init__(self, places):
        here = os.path.dirname(os.path.abspath(__file__))
        root = os.path.dirname(os.path.dirname(here))
        archive = _find_first(places, ("lib/libgloo.a", "gloo/libgloo.a"))
        self.folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        super().__init__(os.path.join(self.folder.name, "gloo_all_reduce"))
        loop = os.path.join(self.folder.name, "reduce_loop.o")
        subprocess.run(["cc", "-std=c99", "-D_GNU_SOURCE", "-O2", f"-I{root}", "-c",
                        os.path.join(here, "reduce_loop.c"), "-o", loop], check=True)
        subprocess.run(["c++", "-std=c++17", "-O2", "-w", f"-I{root}",
                        *(f"-I{os.path.join(place, part)}" for place in places
                          for part in ("", "include")),
                        os.path.join(here, "gloo_all_reduce.cc"), loop, archive, "-pthread",
                        "-o", self.program], check=True)

    def command(self, ranks, transport, sizes, rows_file):
        meeting = tempfile.mkdtemp(dir=self.folder.name)
        return [self.program, str(ranks), meeting, *sizes, "-J", rows_file], {}


class Raw(Mpi):
    """Plain sockets, of two ranks over TCP: the bytes alone, or also their sums."""

    def __init__(self, build, pattern):
        super().__init__(os.path.join(build, "bench", "compare", "raw_all_reduce"))
        self.name, self.pattern = "raw_" + pattern, pattern

    def command(self, ranks, transport, sizes, rows_file):
        return [self.program, self.pattern, *sizes, "-J", rows_file], {}


def _find_first(places, names):
    found = [os.path.join(place, name) for place in places for name in names
             if os.path.exists(os.path.join(place, name))]
    if not found:
        raise FileNotFoundError(f"no {' or '.join(names)} in {' or '.join(places)}")
    return found[0]


def find_peers(build, memory="malloc"):
    """Programs that can run, Gyre first, and a line for each that cannot."""
    found, missing = [], []
    gyre = Gyre(build, memory=memory)
    absent = [path for path in (gyre.launcher, gyre.program) if not os.access(path, os.X_OK)]
    if absent:
        missing.append(f"gyre: no {' and no '.join(absent)}")
    else:
        found.append(gyre)
    program = os.path.join(build, "bench", "compare", "mpi_all_reduce.openmpi")
    if not os.access(program, os.X_OK):
        missing.append(f"openmpi: no {program}")
    elif shutil.which(OpenMpi.launcher) is None:
        missing.append(f"openmpi: no {OpenMpi.launcher}")
    else:
        found.append(OpenMpi(program))
    return found, missing
