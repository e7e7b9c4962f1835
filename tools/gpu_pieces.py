"""The parts of tools/dev gpu (gpu_parts.py), in the order that a first run on a GPU should take:
from one kernel to whole communicators. Each has a time limit and an explanation of its failure."""
import glob
import os
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build-gpu")
MAX_SECONDS = 540  # of a part that needs no build: nine minutes
SIDE_BY_SIDE = ["CUDA_DEVICE_MAX_CONNECTIONS=32"]
BY_DEFAULT = ["-u", "CUDA_DEVICE_MAX_CONNECTIONS"]

PASSED, FAILED, LATE, SKIP, ABSENT = "passed", "failed", "too late", "skipped", "not there"
NOT_YET = "not yet"


class Part:
    def __init__(self, name, seconds, command, needs=None, means=""):
        self.name, self.seconds, self.command, self.needs = name, seconds, command, needs
        self.means = means
        self.outcome, self.took, self.why = ABSENT, 0.0, ""


def build_parts():
    again = ["--reconfigure"] if os.path.exists(os.path.join(BUILD, "build.ninja")) else []
    wheel = glob.glob(os.path.join(ROOT, ".venv-cuda", "lib", "python3*", "site-packages", "nvidia",
                                   "nccl"))
    return [
        Part("configure", 300, ["meson", "setup", BUILD, "--buildtype=release", "-Dcuda=enabled",
                                *again], means="what Meson says is missing"),
        Part("build", 3600, ["ninja", "-C", BUILD, "all", "gpu_images",
                             *(["bench/compare/nccl_all_reduce"] if wheel else [])],
             means="a compiler that this project has not seen; the log names the file")]


def of_test(name, cases, means, environment=SIDE_BY_SIDE, words=(), before=()):
    program = os.path.join(BUILD, "tests", "gpu", "gpu_test")
    return Part(name, MAX_SECONDS, [*before, "env", *environment, "GYRE_SOCKET_IFNAME=lo", program,
                                     "--rng-seed", "1", *words, cases], program, means)


def kernel_parts():
    share = [["--shares", "3", "--share", str(number)] for number in range(3)]
    parts = [
        of_test("first kernels", "[one_grid]",
                "the driver does not load the images, as its text says, or a kernel does not do "
                "what it does on the host's machine: the PTX of kernels/cuda/device.h, or what gcc "
                "and nvcc make of launch.h; memcheck comes next", words=["--short"])]
    parts += [
        of_test(f"one grid {number + 1} of 3", "[one_grid]",
                "a type, an operation or a schedule, which the case names: run it alone, by "
                "compute-sanitizer", words=share[number]) for number in range(3)]
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    meant = {"memcheck": "an access outside of what the host gave, which it names by kernel and "
                         "line",
             "racecheck": "a barrier that is missing around a block's memory (walk.h)",
             "synccheck": "threads of a warp or block that meet at different places (device.h)"}
    for tool, means in meant.items():
        part = of_test(tool, "[one_grid]", means, words=["--short"],
                       before=[sanitizer, "--tool", tool, "--error-exitcode", "1",
                               "--target-processes", "all"])
        part.needs = sanitizer
        parts.append(part)
    return parts + [
        of_test(f"a grid for each rank {number + 1} of 3", "[kernels]~[one_grid]",
                "grids of ranks that do not run side by side: blocks that do not fit, or streams "
                "that share a queue of the driver's", words=share[number]) for number in range(3)]


def communicator_parts():
    first = "every collective is right on one GPU*"
    ends = ("a kernel on a GPU whose peer does not come*,an abort frees a kernel*,"
            "ranks whose calls on a GPU differ*,what is no memory or no stream*")
    memory = "calls are right on a GPU's memory*,a GPU's memory is mapped*,opening memory on a GPU*"
    parts = [
        of_test("first calls", first,
                "the executor or the links, as kernels by themselves are right: GYRE_DEBUG=INFO "
                "and `gyre why` say who waits for whom"),
        of_test("first calls on 8 queues", first,
                "where the one before has passed: streams of ranks share one of the driver's "
                "queues (CUDA_DEVICE_MAX_CONNECTIONS), and wait for each other", BY_DEFAULT)]
    parts += [
        of_test(f"schedules of {ranks}", f"every algorithm under every protocol is right for "
                f"{ranks} threads", "one algorithm or protocol, which the case names; lines "
                "(LL128) that arrive torn look like wrong sums of middle sizes")
        for ranks in (2, 4, 8)]
    return parts + [
        of_test("ends", ends,
                "the watch: aborts and deadlines that do not reach a kernel, or a report that the "
                "host does not see (walk.h, stop)"),
        of_test("memory", memory, "the driver's virtual memory, or a call of it that waits for "
                "kernels that run"),
        of_test("graphs", "[graph]", "captures: what a graph must keep alive, or a counter that a "
                "replay does not advance"),
        of_test("processes", "[processes]", "CUDA IPC; without MPS processes take turns, and a "
                "wait within one turn is a hang"),
        of_test("processes under MPS", "[processes]", "what MPS gives each client: two queues by "
                "default", before=[sys.executable, os.path.join(ROOT, "tools", "with_mps.py")]),
        of_test("random operations", "[soak]", "an order of calls that no case has; the seed "
                "repeats it", words=["--soak", "1000"])]


def torch_parts():
    script = os.path.join(ROOT, "tests", "gpu", "torch_on_gpu.py")
    return [Part("PyTorch", MAX_SECONDS, [sys.executable, script, BUILD], script,
                 "the order of PyTorch's streams and ours, or memory that PyTorch uses again; "
                 "skipped: this Python has no PyTorch with CUDA")]


def bench_parts():
    script = os.path.join(ROOT, "bench", "gpu.py")
    meant = {"moves": "a ratio that misses its limit: copies by kernels against the copy engines",
             "threads": "all-reduce that is wrong (it is checked) or hangs",
             "processes": "the same between processes, in turns",
             "mps": "the same side by side",
             "limits": "all-reduce against the memory's floor, and graphs; it needs the moves",
             "nccl": "that NCCL is not there (tools/dev setup --nccl, then build), or a time"}
    return [Part(f"bench {piece}", MAX_SECONDS,
                 [sys.executable, script, "--build", BUILD, "--record", "--only", piece], script,
                 means) for piece, means in meant.items()]


def all_parts(built=False):
    """`built`: the folder was built elsewhere and copied here."""
    return [*([] if built else build_parts()), *kernel_parts(), *communicator_parts(),
            *torch_parts(), *bench_parts()]
