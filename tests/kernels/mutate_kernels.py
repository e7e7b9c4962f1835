"""Breaks the CUDA kernels at every ordering, barrier, credit and modulo, one at a time, and counts
how many of these mutants the simulated device catches.

mutate_kernels.py ROOT BUILD CXX [--sample N] [--only TEXT] [--seeds N] [--seconds N] [--jobs N]
  ROOT, BUILD   the project's folder and the build's, whose libraries are linked
  --sample N    N mutants, evenly spread over all; without it all of them
  --only TEXT   those whose line or description contains TEXT
  --seeds N     seeds to try; a mutant that passes all of them has survived
  --seconds N   processor time, after which a mutant is stopped; that counts as caught
  --jobs N      mutants at a time

Exit code 1 if fewer than 95 % are caught, if a mutant survives that SURVIVORS does not explain, if
an explanation has no mutant, or if no mutant touches a place that it should. The unbroken kernels
have to pass the seeds that caught the mutants."""
import argparse
import concurrent.futures
import glob
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile

FOLDER = "kernels/cuda"
# Each file, and the protocols whose kernels it can break.
FILES = {
    "run_plan.h": ("Simple", "Ll", "Ll128"),
    "walk.h": ("Simple", "Ll", "Ll128"),
    "simple.h": ("Simple",),
    "lines.h": ("Ll", "Ll128"),
    "ll.h": ("Ll",),
    "ll128.h": ("Ll128",),
    "packs.h": ("Simple",),
    "multicast.h": ("Simple",),
    "bytes.h": ("Simple", "Ll", "Ll128"),
}
MIN_CAUGHT = 0.95

# (what is looked for, what stands there instead, in words). One mutant for each place found.
RULES = [
    # Orderings and meetings.
    (r"device::load_acquire\(", "device::load_relaxed(", "acquire becomes relaxed"),
    (r"device::store_release\(", "device::store_relaxed(", "release becomes relaxed"),
    (r"device::add_acquire_release\(", "device::add_relaxed(", "an addition orders nothing"),
    (r"device::block_barrier\(\);", ";", "no barrier"),
    (r"device::block_any\(walk\.stopped\)", "(walk.stopped)", "no meeting"),
    (r"device::warp_any\(([^()]+)\)", r"(\1)", "no meeting of the warp"),
    (r"device::alias_fence\(\);", ";", "no fence between two addresses of one memory"),
    (r"\.lies != Lies::in_input\)", ".lies == Lies::in_output)", "what is not lent is summed"),
    (r"\.delivery != transport::Delivery::push\)", ".base == nullptr)",
     "what is not lent is written to"),
    (r"&& await_grant\(walk, wired, link\)", "", "no waiting for a grant"),
    (r"end\.pulled = true;", "end.pulled = false;", "no drain"),
    (r"Protocol::finish_(send|receive)\(walk, link\);", "", "an end is not finished"),
    # Credit.
    (r">= walk\.ring_count\(\)\)", "> walk.ring_count())", "one credit too many"),
    (r"< walk\.ring_count\(\)\) break", "<= walk.ring_count()) break", "one credit too many"),
    (r"(>|<=) walk\.ring_count\(\)\)( return| \{)", r"\1 2 * walk.ring_count())\2",
     "twice the credit"),
    (r"(>|<=) walk\.ring_count\(\)\)( return| \{)", r"\1 walk.ring_count() + 1)\2",
     "one credit too many"),
    (r"<= walk\.ring_count\(\)\) end\.seen", "< walk.ring_count()) end.seen",
     "a full ring is a lie"),
    (r"<= end\.next - end\.seen\) end\.seen", "< end.next - end.seen) end.seen",
     "an empty ring is a lie"),
    (r"ring_count\(\) / 4", "ring_count() * 2", "credit of lines never comes back"),
    (r"tell\(walk, link\);", ";", "credit of lines is not told"),
    (r"- next < lines\)", "- next < lines - 1)", "a line fewer is waited for"),
    # Counters.
    (r"\+\+end\.next;", ";", "a message is not counted"),
    (r"\.told, \+\+end\.next\)", ".told, end.next++)", "credit comes a message late"),
    (r"end\.next \+= lines;", "end.next += lines - 1;", "a line too few is counted"),
    (r"\.next \+= lines;", ".next += lines + 1;", "a line too many is counted"),
    (r"end\.seen = end\.next;", ";", "what was seen is not kept"),
    (r"(end\.seen) (==|!=) end\.next\b", r"\1 \2 end.next + 1", "off by a message"),
    (r"state\.sequence \+ 1", "state.sequence", "the sequence is off by one"),
    (r"device::store_relaxed\((send|receive)\.next, [^;]*;", ";", "a counter is not put back"),
    (r"device::store_relaxed\(launch\.blocks_ended, [^;]*;", ";", "blocks are counted on"),
    (r"turn \^ 1", "turn", "moves are not shown by turns"),
    (r"turn \^= 1", "turn ^= 0", "moves are not taken by turns"),
    (r"walk\.pieces\+\+ & 1", "walk.pieces++ & 0", "pieces take no turns"),
    # Flags.
    (r"(\(number|\(end\.next|number) \+ 1,", r"\1,", "the flag is off by one"),
    (r"ring_shift\) \+ 1\)", "ring_shift))", "the lap is off by one"),
    (r"number >> walk\.call\.ring_shift", "number >> (walk.call.ring_shift + 1)",
     "a lap's flag lasts for two"),
    (r"signature & 0xffffff\)", "signature)", "the call spills into the lap"),
    (r"got\.high != flag", "false", "the flag is not looked at"),
    (r"const Bytes16 whole = device::load_line_part\(place\);", "const Bytes16 whole = got;",
     "a line is taken from the load in which its flag was seen"),
    (r"low\.low >> 32 == flag &&", "", "a flag is not looked at"),
    (r"low\.high >> 32 == flag &&", "", "a flag is not looked at"),
    (r"high\.low >> 32 == flag &&", "", "a flag is not looked at"),
    (r"&&\s*high\.high >> 32 == flag", "", "a flag is not looked at"),
    # What is told to the host.
    (r"(device::store_relaxed\(reinterpret_cast<std::uint32_t\*>\(&call\.status->outcome\)[^}]*?)"
     r"(device::store_release\(&call\.status->told, 1\);)", r"\2 \1",
     "what is told is written after it is told"),
    # Modulo.
    (r" & walk\.ring_mask\(\)", " & (walk.ring_mask() >> 1)", "half of the ring is used"),
    (r" & walk\.ring_mask\(\)", "", "no modulo"),
    (r"1ULL << call\.ring_shift\) - 1;", "1ULL << call.ring_shift) - 2;", "no odd slots"),
    (r"return 1ULL << call\.ring_shift", "return 2ULL << call.ring_shift", "twice the ring"),
    (r"& \(max_regions - 1\)", "& (max_regions / 2 - 1)", "regions share a place"),
    (r"wired\.regions == nullptr \|\| place\.region != 0", "true", "what is in no region is lent"),
    (r"wired\.regions != nullptr\n", "false\n", "another process's number is an address"),
    (r"polls_between_looks - 1\)\) != 0", "polls_between_looks - 1)) >= 0", "nobody looks"),
    (r"part % parts \* 16", "part % parts * 8", "parts of a line overlap"),
    (r"% parts == parts - 1", "% parts == parts - 2", "another part has the flag"),
    (r"% device::warp_threads", "% (device::warp_threads / 2)", "half a warp goes round alone"),
    (r"% 16\b", "% 8", "modulo 8"),
    (r"& 15\b", "& 7", "modulo 8"),
    (r"& \(element_bytes - 1\)", "& 0", "elements are cut"),
    (r"\(odd & 7\)", "(odd & 3)", "wider than aligned"),
    (r"\(odd & 3\)", "(odd & 1)", "wider than aligned"),
    (r"\(odd & 1\)", "(odd & 0)", "wider than aligned"),
]

# Where a mutant has to be: orderings, meetings, credit and modulos, whatever form they take.
PLACES = re.compile(r"load_acquire|store_release|acquire_release|fence|block_barrier|block_any|"
                    r"warp_any|Bytes16 whole|ring_mask|ring_count|ring_shift| % |"
                    r" & \(?\w+ - 1| & \d|\^")
# ... but where one would say nothing: (file, text of the line, why).
NO_PLACES = [
    ("ll.h", "& 0xffffffff", "takes a word apart; the mutants of put and fetch show what it does"),
    ("packs.h", "first ^ misalignment", "compares two addresses"),
    ("walk.h", "peer) & 0xffffff", "packs what tools read, and no kernel"),
]

# Mutants that no run can tell from the original, and why: (file, text of the line, description).
SURVIVORS = [
    ("walk.h", "call.claim", "an addition orders nothing",
     "one thread claims the status, and what it writes there a release tells"),
    ("simple.h", "end.seen != end.next && !walk.poll_again", "off by a message",
     "one poll more when the drain is done; the loop's own condition ends it"),
]


def lines_of(root, name):
    with open(os.path.join(root, FOLDER, name), encoding="utf-8") as file:
        return file.read().split("\n")


def mutants(root):
    """[(file, line number, description, whole text)]"""
    found = []
    for name in FILES:
        text = "\n".join(lines_of(root, name))
        for pattern, replacement, description in RULES:
            for match in re.finditer(pattern, text):
                line = text.count("\n", 0, match.start()) + 1
                broken = text[:match.start()] + match.expand(replacement) + text[match.end():]
                found.append((name, line, description, broken))
    return sorted(found, key=lambda one: (list(FILES).index(one[0]), one[1], one[2]))


def left_out(root, every):
    """Places that no mutant touches."""
    touched = {(name, line) for name, line, *_ in every}
    for name in FILES:
        for number, line in enumerate(lines_of(root, name), 1):
            code = line.split("//")[0]
            exempt = any(name == file and part in line for file, part, _ in NO_PLACES)
            if PLACES.search(code) and not exempt and (name, number) not in touched:
                yield f"{name}:{number}: no rule touches: {line.strip()}"


def libraries(build):
    names = [f"tests/support/libtest_{name}.a" for name in (
        "main", "session", "device_job", "kernel_cases", "ranks", "host_device")]
    names += [f"lib/{room}/lib{room}.a" for room in (
        "exec", "cuda", "loaded", "transport", "plan", "trust", "base")]
    names += ["kernels/cuda/libkernels_cuda_names.a"]
    return [os.path.join(build, name) for name in names] + \
        sorted(glob.glob(os.path.join(build, "kernels/cpu/*.a")))


# The instances that are broken: one row of the table, for every pair.
KERNELS = """#include "kernels/cuda/device.h"
namespace gyre::cuda::device {{
std::uint32_t add_relaxed(std::uint32_t* word, std::uint32_t value);
}}
#include "kernels/cuda/instance.h"
namespace gyre::cuda {{
const KernelRow row = {{{{{simple}, {ll}, {ll128}}}}};
Kernel find_kernel(DeviceProtocol protocol, ElementType, ReduceOp) {{
  return row.by_protocol[static_cast<int>(protocol)];
}}
}}
"""


def kernels_of(protocols):
    return KERNELS.format(**{
        name.lower(): f"run_plan_kernel<{name}, Float32, Sum>" if name in protocols else "nullptr"
        for name in ("Simple", "Ll", "Ll128")})


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def trial(arguments, seeds, name=None, text=None):
    """What became of it, 'passed', 'failed', 'endless' or 'does not compile', and at which seed."""
    with tempfile.TemporaryDirectory() as folder:
        if name is not None:
            write(os.path.join(folder, FOLDER, name), text)
        source, program = os.path.join(folder, "kernels.cc"), os.path.join(folder, "trial")
        write(source, kernels_of(FILES[name] if name is not None else FILES["walk.h"]))
        root = arguments.root
        done = subprocess.run(
            [*shlex.split(arguments.cxx), "-std=c++20", "-O1", "-ffp-contract=off", "-w",
             f"-I{folder}", f"-I{root}", f"-I{root}/include", source, "-o", program,
             "-Wl,--start-group", "-Wl,--whole-archive",
             os.path.join(arguments.build, "tests/kernels/libtest_mutant_trial.a"),
             "-Wl,--no-whole-archive", *libraries(arguments.build), "-Wl,--end-group", "-lfmt",
             *shlex.split(arguments.catch), "-lboost_context", "-lssl", "-lcrypto", "-pthread"],
            capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr[:2000])
            return "does not compile", 0
        limits = (arguments.seconds, arguments.seconds)
        done = subprocess.run([program], capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limits),
                              env={**os.environ, "GYRE_TRIAL_SEEDS": str(seeds)})
        if done.returncode == 0:
            return "passed", 0
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return "endless", seeds - 1
        seed = re.findall(r", seed (\d+)\n", done.stdout)
        return "failed", int(seed[-1]) if seed else 0


def explanation(root, name, line, description):
    text = lines_of(root, name)[line - 1]
    for one in SURVIVORS:
        if name == one[0] and one[1] in text and description == one[2]:
            return one
    return None


def chosen(arguments, every):
    every = [one for one in every
             if arguments.only is None or arguments.only in f"{one[0]}:{one[1]} {one[2]}"]
    if arguments.sample is None or arguments.sample >= len(every):
        return every
    # From the middle of as many equal parts.
    return [every[(2 * i + 1) * len(every) // (2 * arguments.sample)]
            for i in range(arguments.sample)]


def parsed():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("cxx")
    parser.add_argument("--catch", default="", help="what links Catch2")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--only")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def check_lists(root, every):
    wrong = list(left_out(root, every))
    for one in SURVIVORS:
        if not any(explanation(root, *mutant[:3]) is one for mutant in every):
            wrong.append(f"explained, but there is no such mutant: {one[:3]}")
    if wrong:
        sys.exit("\n".join(wrong))


def main():
    arguments = parsed()
    every = mutants(arguments.root)
    check_lists(arguments.root, every)
    picked = chosen(arguments, every)
    caught, explained, survived, seeds = 0, 0, [], 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        trials = [pool.submit(trial, arguments, arguments.seeds, name, text)
                  for name, _, _, text in picked]
        for (name, line, description, _), one in zip(picked, trials):
            became, seed = one.result()
            shown = f"{name}:{line} {description}"
            reason = explanation(arguments.root, name, line, description)
            if became == "does not compile":
                sys.exit(f"{shown}: {became}")
            if became == "passed" and reason is not None:
                became, explained = f"lives: {reason[3]}", explained + 1
            elif became == "passed":
                survived.append(shown)
                became = "SURVIVED"
            else:
                caught, seeds = caught + 1, max(seeds, seed + 1)
                became = f"{became}, seed {seed}" + (", THOUGH EXPLAINED" if reason else "")
            print(f"{shown}: {became}", flush=True)
    total = caught + explained + len(survived)
    print(f"{caught} of {total} mutants caught, {explained} live for a known reason, "
          f"{len(survived)} survived")
    became, seed = trial(arguments, max(seeds, 1))
    if became != "passed":
        sys.exit(f"the unbroken kernels: {became}, seed {seed}")
    sys.exit(0 if not survived and caught >= MIN_CAUGHT * total else 1)


if __name__ == "__main__":
    main()
