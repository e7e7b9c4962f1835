"""Breaks the CUDA kernels in every place where an ordering, a barrier, a credit or a modulo stands,
one at a time, and counts how many of the broken ones the host's machine catches.

mutate_kernels.py ROOT BUILD CXX [--sample N] [--only TEXT] [--seeds N]
  ROOT, BUILD   the project's folder and the build's, whose libraries are linked
  --sample N    N mutants, evenly spread over all (the default run); without it all of them
  --only TEXT   those whose line or description contains TEXT

Exit code 1 if fewer than 95 % are caught, or if one survives that SURVIVORS does not explain. An
unbroken kernel has to pass first."""
import argparse
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

FOLDER = "kernels/cuda"
FILES = ["run_plan.h", "walk.h", "simple.h", "lines.h", "ll.h", "ll128.h", "packs.h"]
LEAST_CAUGHT = 0.95

# (what is looked for, what stands there instead, in words). One mutant for each place found.
RULES = [
    (r"device::load_acquire\(", "device::load_relaxed(", "acquire becomes relaxed"),
    (r"device::store_release\(", "device::store_relaxed(", "release becomes relaxed"),
    (r"device::block_barrier\(\);", ";", "no barrier"),
    (r"device::block_any\(walk\.stopped\)", "(walk.stopped)", "no meeting"),
    (r"device::warp_any\((\w+)\)", r"(\1)", "no meeting of the warp"),
    (r" & walk\.ring_mask\(\)", " & (walk.ring_mask() >> 1)", "half of the ring is used"),
    (r" & walk\.ring_mask\(\)", "", "no modulo"),
    (r">= walk\.ring_count\(\)\)", "> walk.ring_count())", "one credit too many"),
    (r"< walk\.ring_count\(\)\) break", "<= walk.ring_count()) break", "one credit too many"),
    (r"> walk\.ring_count\(\)\)", "> 2 * walk.ring_count())", "twice the credit"),
    (r"<= walk\.ring_count\(\)\) return", "<= 2 * walk.ring_count()) return", "twice the credit"),
    (r"<= walk\.ring_count\(\)\) end\.seen", "< walk.ring_count()) end.seen",
     "a full ring is a lie"),
    (r"<= end\.next - end\.seen\) end\.seen", "< end.next - end.seen) end.seen",
     "an empty ring is a lie"),
    (r"\+\+end\.next;", ";", "a message is not counted"),
    (r"\.told, \+\+end\.next\)", ".told, end.next++)", "credit comes a message late"),
    (r"end\.next \+= lines;", "end.next += lines - 1;", "a line too few is counted"),
    (r"\.next \+= lines;", ".next += lines + 1;", "a line too many is counted"),
    (r"end\.seen = end\.next;", ";", "what was seen is not kept"),
    (r"end\.pulled = true;", "end.pulled = false;", "no drain"),
    (r"(end\.seen) (==|!=) end\.next\b", r"\1 \2 end.next + 1", "off by a message"),
    (r"state\.sequence \+ 1", "state.sequence", "the sequence is off by one"),
    (r"(\(number|\(end\.next|number) \+ 1,", r"\1,", "the flag is off by one"),
    (r"ring_shift\) \+ 1\)", "ring_shift))", "the lap is off by one"),
    (r"number >> walk\.launch\.ring_shift", "number >> (walk.launch.ring_shift + 1)",
     "a lap's flag lasts for two"),
    (r"got\.high != flag", "false", "the flag is not looked at"),
    (r"low\.low >> 32 == flag &&", "", "a flag is not looked at"),
    (r"low\.high >> 32 == flag &&", "", "a flag is not looked at"),
    (r"high\.low >> 32 == flag &&", "", "a flag is not looked at"),
    (r"&&\s*high\.high >> 32 == flag", "", "a flag is not looked at"),
    (r"turn \^ 1", "turn", "moves are not shown by turns"),
    (r"turn \^= 1", "turn ^= 0", "moves are not taken by turns"),
    (r"&& await_grant\(walk, wired, link\)", "", "no waiting for a grant"),
    (r"ring_count\(\) / 4", "ring_count() * 2", "credit of lines never comes back"),
    (r"tell\(walk, link\);", ";", "credit of lines is not told"),
    (r"part % parts \* 16", "part % parts * 8", "parts of a line overlap"),
    (r"% device::warp_threads", "% (device::warp_threads / 2)", "half a warp goes round alone"),
]

# Mutants that no run can tell from the original, and why: (file, text of the line, description).
SURVIVORS = []


def mutants(root):
    """[(file, line number, description, whole text)]"""
    found = []
    for name in FILES:
        text = open(os.path.join(root, FOLDER, name), encoding="utf-8").read()
        for pattern, replacement, description in RULES:
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                broken = text[:match.start()] + match.expand(replacement) + text[match.end():]
                found.append((name, line, description, broken))
    return sorted(found, key=lambda one: (FILES.index(one[0]), one[1], one[2]))


def libraries(build):
    names = ["tests/libtest_main.a", "tests/libtest_device_job.a",
             "tests/libtest_host_device.a", "lib/exec/libexec.a",
             "lib/transport/libtransport.a", "lib/plan/libplan.a", "lib/trust/libtrust.a",
             "lib/base/libbase.a"]
    return [os.path.join(build, name) for name in names] + \
        sorted(glob.glob(os.path.join(build, "kernels/cpu/*.a")))


# The instance that is broken: one row of the table, for every pair.
KERNELS = """#include "kernels/cuda/instance.h"
namespace gyre::cuda {
GYRE_KERNELS(Float32, Sum)
Kernel find_kernel(DeviceProtocol protocol, ElementType, ReduceOp) {
  return kernels_Float32_Sum.by_protocol[static_cast<int>(protocol)];
}
}
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def trial(arguments, folder, name=None, text=None):
    """What became of it: 'passed', 'failed', 'endless' or 'does not compile'."""
    if name is not None:
        write(os.path.join(folder, FOLDER, name), text)
    source, program = os.path.join(folder, "kernels.cc"), os.path.join(folder, "trial")
    write(source, KERNELS)
    root = arguments.root
    done = subprocess.run(
        [*shlex.split(arguments.cxx), "-std=c++20", "-O1", "-ffp-contract=off", "-w", f"-I{folder}",
         f"-I{root}", f"-I{root}/include", source, "-o", program, "-Wl,--start-group",
         "-Wl,--whole-archive", os.path.join(arguments.build, "tests/libtest_mutant_trial.a"),
         "-Wl,--no-whole-archive", *libraries(arguments.build), "-Wl,--end-group", "-lfmt",
         "-lboost_context", "-lssl", "-lcrypto", "-pthread"], capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stderr[:2000])
        return "does not compile"
    try:
        done = subprocess.run([program], capture_output=True, timeout=arguments.seconds,
                              env={**os.environ, "GYRE_TRIAL_SEEDS": str(arguments.seeds)})
    except subprocess.TimeoutExpired:
        return "endless"
    return "passed" if done.returncode == 0 else "failed"


def is_explained(root, name, line, description):
    text = open(os.path.join(root, FOLDER, name), encoding="utf-8").read().split("\n")[line - 1]
    return any(name == file and part in text and description == what
               for file, part, what, _ in SURVIVORS)


def chosen(arguments):
    every = [one for one in mutants(arguments.root)
             if arguments.only is None or arguments.only in f"{one[0]}:{one[1]} {one[2]}"]
    if arguments.sample is None or arguments.sample >= len(every):
        return every
    return [every[i * len(every) // arguments.sample] for i in range(arguments.sample)]


def parsed():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("cxx")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--only")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=120)
    return parser.parse_args()


def main():
    arguments = parsed()
    with tempfile.TemporaryDirectory() as folder:
        if (became := trial(arguments, folder)) != "passed":
            sys.exit(f"the unbroken kernels: {became}")
    caught, explained, survived = 0, 0, []
    for name, line, description, text in chosen(arguments):
        with tempfile.TemporaryDirectory() as folder:
            became = trial(arguments, folder, name, text)
        if became == "passed" and is_explained(arguments.root, name, line, description):
            became, explained = "lives, as explained", explained + 1
        elif became == "passed":
            became = "SURVIVED"
            survived.append(f"{name}:{line} {description}")
        elif became == "does not compile":
            sys.exit(f"{name}:{line} {description}: {became}")
        else:
            caught += 1
        print(f"{name}:{line} {description}: {became}", flush=True)
    total = caught + explained + len(survived)
    print(f"{caught} of {total} mutants caught, {explained} live for a known reason, "
          f"{len(survived)} survived")
    sys.exit(0 if not survived and caught >= LEAST_CAUGHT * total else 1)


if __name__ == "__main__":
    main()
