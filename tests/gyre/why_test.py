#!/usr/bin/env python3
"""gyre why names the rank for which a job waits, and the reason, in seeded cases. Also its flight
files, timelines and errors.

usage: why_test.py GYRE STUCK_RANK [--rounds N] [--seed S] [--case NAME]
"""
import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import two_hosts  # noqa: E402

PATIENCE_S = 60
SETTLED_S = 0.5
LIVENESS_S = 2


class Round:
    """The ranks of one job, one of which is the victim."""

    def __init__(self, arguments, name, number):
        choose = random.Random(f"{arguments.seed} {name} {number}")
        self.gyre = arguments.gyre
        self.case, self.number, self.choose = name, number, choose
        self.size = choose.choice([2, 3, 4]) if name not in ("left_out", "crossed") else \
            choose.choice([3, 4])
        self.victim = choose.randrange(self.size)
        self.calls = choose.randrange(40)
        self.transport = choose.choice(["shm", "tcp"])
        mode = {"stopped": "runs", "dead": "runs", "reaped": "runs",
                "runs": "runs"}.get(name, name)
        job = f"why-{os.getpid()}-{name}-{number}"
        self.ranks = [self.start(arguments.program, mode, job, rank) for rank in range(self.size)]

    def start(self, program, mode, job, rank):
        environment = dict(os.environ, GYRE_RANK=str(rank), GYRE_SIZE=str(self.size),
                           GYRE_LOCAL_RANK=str(rank), GYRE_LOCAL_SIZE=str(self.size),
                           GYRE_TRANSPORT=self.transport, GYRE_SOCKET_IFNAME="lo",
                           GYRE_LIVENESS_TIMEOUT="100", GYRE_TIMEOUT="100")
        seed = self.choose.randrange(1 << 30) if rank == 0 else self.seed
        self.seed = seed
        return subprocess.Popen([program, mode, str(self.victim), str(self.calls), str(seed), job],
                                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                text=True)

    def wait_until_here(self):
        waiting = [self.ranks[self.victim]] if self.case == "late" else self.ranks
        for process in waiting:
            line = process.stdout.readline()
            assert line == "here\n", f"a rank said {line!r} in place of \"here\""

    def disturb(self):
        victim = self.ranks[self.victim]
        if self.case in ("stopped", "dead", "reaped"):
            time.sleep(self.choose.uniform(0, 0.3))
            victim.send_signal(signal.SIGSTOP if self.case == "stopped" else signal.SIGKILL)
        if self.case == "reaped":
            victim.wait()
        time.sleep(SETTLED_S)

    def ask(self, *more):
        """The job, as --json tells it; asked by the id of a rank that is there."""
        others = [p for r, p in enumerate(self.ranks) if r != self.victim]
        asked = self.choose.choice(others)
        done = subprocess.run([self.gyre, "why", str(asked.pid), "--json", *more],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["schema"] == "gyre-why-1" and len(document["jobs"]) == 1, document
        return document["jobs"][0]

    def describe(self):
        return (f"{self.size} ranks, victim {self.victim}, {self.calls} calls, {self.transport}")

    def text(self):
        done = subprocess.run([self.gyre, "why", str(self.ranks[self.victim - 1].pid)],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        return done.stdout

    def end(self):
        for process in self.ranks:
            process.kill()
        for process in self.ranks:
            process.communicate()


def expect(round_, job):
    """What is wrong with the answer, or nothing."""
    case, victim = round_.case, round_.victim
    roots = job["roots"]
    if not roots:
        return f"no root; the verdict is {job['verdict']}"
    root = roots[0]
    if {(r["rank"]) for r in roots} != {victim}:
        return f"the roots are ranks {[r['rank'] for r in roots]}"
    if case != "reaped" and case != "dead" and root["pid"] not in (round_.ranks[victim].pid, 0):
        return f"its process id is {root['pid']}"
    wanted = {"stopped": ("rank", "stopped"), "asleep": ("rank", "computes"),
              "busy": ("rank", "computes"), "left_out": ("crossed", "elsewhere"),
              "crossed": ("crossed", "elsewhere"), "dead": ("failure", "dead"),
              "reaped": ("failure", "dead"), "destroys": ("rank", "left"),
              "late": ("rank", "not_there")}[case]
    found = (root["kind"], root["standing"])
    # After a moment the others notice it themselves.
    if found != wanted and not (case == "destroys" and found == ("failure", "left")):
        return f"it is {found} in place of {wanted}"
    if len(root["waiting"]) < 1:
        return "nobody waits for it"
    if case in ("asleep", "busy"):
        state = [r["thread_state"] for r in job["ranks"] if r["rank"] == victim][0]
        if (state == "S") != (case == "asleep"):
            return f"its thread's state is {state}"
    if case in ("asleep", "busy", "left_out", "crossed"):
        if root["wanted"] != round_.calls + 1:
            return f"the call that it has not made is {root['wanted']}"
        last = root["last_call"]["number"] if root["last_call"] else 0
        if last != round_.calls:
            return f"its last call is {last}"
    return None


def texts_of(job):
    return "; ".join(root["text"] for root in job["roots"])


class HostRound:
    """A job on two hosts, one of which is cut off; gyre why is asked on the other one."""

    def __init__(self, arguments, number):
        choose = random.Random(f"{arguments.seed} host {number}")
        self.gyre, self.number = arguments.gyre, number
        self.size = choose.choice([2, 3, 4])
        self.first_on_b = choose.randrange(1, self.size)
        self.dead, self.calls = choose.randrange(2), choose.randrange(20)
        self.delay = choose.uniform(0, 0.3)
        self.hosts = two_hosts.TwoHosts(f"why{os.getpid()}n{number}")
        self.ranks = []
        seed = choose.randrange(1 << 30)
        for rank in range(self.size):
            self.start(arguments.program, rank, seed)

    def host_of(self, rank):
        return 1 if rank >= self.first_on_b else 0

    def start(self, program, rank, seed):
        host = self.host_of(rank)
        local = rank - self.first_on_b if host else rank
        local_size = self.size - self.first_on_b if host else self.first_on_b
        environment = dict(os.environ, GYRE_RANK=str(rank), GYRE_SIZE=str(self.size),
                           GYRE_LOCAL_RANK=str(local), GYRE_LOCAL_SIZE=str(local_size),
                           GYRE_SOCKET_IFNAME=two_hosts.INTERFACE, GYRE_TIMEOUT="100",
                           GYRE_RENDEZVOUS_ADDRESS=f"{two_hosts.ADDRESSES[0]}:29777",
                           GYRE_RENDEZVOUS_SECRET_FILE=self.hosts.secret,
                           GYRE_LIVENESS_TIMEOUT=str(LIVENESS_S))
        command = [program, "runs", "0", str(self.calls), str(seed), f"host{self.number}"]
        self.ranks.append(subprocess.Popen(self.hosts.on(host, command), env=environment,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           text=True))

    def describe(self):
        return f"{self.size} ranks, from {self.first_on_b} on host 1, host {self.dead} is dead"

    def run(self):
        """What is wrong with the answers, from the cut until the communicator breaks."""
        for rank, process in enumerate(self.ranks):
            line = process.stdout.readline()
            if line != "here\n":
                return f"rank {rank} said {line!r} in place of \"here\""
        time.sleep(self.delay)
        self.hosts.cut(self.dead)
        time.sleep(SETTLED_S)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            done = subprocess.run(self.hosts.on(1 - self.dead, [self.gyre, "why", "--json"]),
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            if done.returncode != 0:
                return done.stderr
            job, = json.loads(done.stdout)["jobs"]
            wrong = self.expect(job) or self.look_from_outside()
            if wrong or job["verdict"] == "failed":
                return wrong and f"{wrong}: {texts_of(job)}"
            time.sleep(0.2)
        return "the communicator did not break"

    def look_from_outside(self):
        """From where both hosts are seen, as containers are: the smaller side is named."""
        done = subprocess.run([self.gyre, "why", str(self.ranks[0].pid), "--json"],
                              capture_output=True, text=True, timeout=PATIENCE_S)
        if done.returncode != 0:
            return f"from outside, {done.stderr}"
        job, = json.loads(done.stdout)["jobs"]
        sides = [self.first_on_b, self.size - self.first_on_b]
        named = {self.host_of(root["rank"]) for root in job["roots"]}
        if not named or any(sides[host] > min(sides) for host in named):
            return f"from outside, hosts {named} are named: {texts_of(job)}"
        if any(rank["standing"] == "other_host" or rank["thread_state"] not in ("R", "S", "D")
               for rank in job["ranks"] if rank["process_state"]):
            return f"from outside, not all is seen: {texts_of(job)}"
        return None

    def expect(self, job):
        if not job["roots"]:
            return f"no root; the verdict is {job['verdict']}"
        for root in job["roots"]:
            if self.host_of(root["rank"]) != self.dead:
                return f"a root is rank {root['rank']}"
            if root["host"] != self.hosts.names[self.dead] or root["pid"] < 1:
                return f"the root is on {root['host']}, pid {root['pid']}"
            if root["standing"] != "other_host" or root["kind"] not in ("rank", "failure"):
                return f"it is {root['kind']}, {root['standing']}"
            # Whoever is quicker tells: the control plane, or who watches the path it waits for.
            signs = ("no sign of life", "no answer from its host")
            if root["kind"] == "failure" and not any(
                    sign in root["failure"]["text"] for sign in signs):
                return f"it failed because {root['failure']['text']}"
        return None

    def end(self):
        self.hosts.end()
        for process in self.ranks:
            process.communicate()


def run_host_round(arguments, number):
    round_, wrong = HostRound(arguments, number), None
    try:
        wrong = round_.run()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        wrong = str(error)
    finally:
        round_.end()
    return round_, wrong


def run_round(arguments, name, number):
    round_, wrong = Round(arguments, name, number), None
    try:
        round_.wait_until_here()
        round_.disturb()
        job = round_.ask()
        wrong = expect(round_, job)
        if wrong:
            wrong += f"\n{round_.text()}"
    except (AssertionError, subprocess.TimeoutExpired) as error:
        wrong = str(error)
    finally:
        round_.end()
    return round_, wrong


def one_round(arguments, name, number):
    if name == "host":
        round_, wrong = run_host_round(arguments, number)
    else:
        round_, wrong = run_round(arguments, name, number)
    if wrong:
        print(f"{name} {number} (seed {arguments.seed}, {round_.describe()}): {wrong}", flush=True)
    return wrong is None


# ---------------------------------------------------------------------- what else it writes

def flights_of(round_, folder):
    """Violations of --dump, --trace and --from, asked of ranks that go on meanwhile."""
    trace, again = os.path.join(folder, "trace"), os.path.join(folder, "again")
    round_.ask("--trace", trace, "--dump", os.path.join(folder, "%r"))
    files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name != "trace")
    if len(files) != round_.size:
        yield f"{len(files)} files of flights"
    for path in files:
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        numbers = [line["sequence"] for line in lines if line.get("function") == "gyreAllReduce"]
        if len(numbers) < 10 or sum("gyre_flights" in line for line in lines) != 2:
            yield f"{path}: calls {numbers}"
    subprocess.run([round_.gyre, "why", "--from", *files, "--trace", again], check=True,
                   timeout=PATIENCE_S)
    for path in (trace, again):
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        shown = {(event["ph"], event["name"].split(" of ")[0]) for event in events}
        wanted = {("X", "gyreAllReduce"), ("X", "sends and reduces"), ("X", "waits for data"),
                  ("s", "came"), ("f", "came"), ("M", "thread_name"), ("M", "process_name")}
        if not wanted <= shown:
            yield f"{os.path.basename(path)} lacks {wanted - shown}"
        if any(event["dur"] < 0 for event in events if event["ph"] == "X"):
            yield f"{os.path.basename(path)}: a slice ends before it begins"


def remedies_of(gyre):
    """What --explain says is what the header's table says."""
    header = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include/gyre/gyre.h")
    with open(header, encoding="utf-8") as file:
        table = re.findall(r"^ \*\s+(gyre\w+)\s+(\S.*?): (\S.*)$", file.read(), re.M)
    for code in range(11):
        done = subprocess.run([gyre, "why", "--explain", str(code)], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        said = re.fullmatch(r"(gyre\w+) \(\d+\): (.*)\nwhat to do: (.*)\n", done.stdout)
        if not said or said.groups() not in table:
            yield f"gyre.h has no line for {done.stdout}"


ERRORS = [
    (["999999999"], 1, "is no process"),
    (["no-such-job"], 1, "no communicator of this host has that name"),
    ([str(os.getpid())], 1, "shows no communicator"),
    (["--jsno"], 2, "--jsno"),
    (["--sample", "0"], 2, "--sample"),
    (["--from", "/dev/null"], 1, "--trace"),
    (["--from", "/no/such/file", "--trace", "/dev/null"], 1, "/no/such/file"),
    (["--explain", "gyreTimeuot"], 2, "did you mean gyreTimeout?"),
    (["--explain", "8"], 0, "gyreTimeout (8)"),
    (["--explain", "remoteerror"], 0, "what to do"),
]


def errors_of(gyre):
    for arguments, code, words in ERRORS:
        done = subprocess.run([gyre, "why", *arguments], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        if done.returncode != code or words not in done.stdout + done.stderr:
            yield f"gyre why {' '.join(arguments)}: {done.returncode}, {done.stderr}"


def closed_process_of(round_):
    """Somebody else's process; only root can be somebody else."""
    nobody = 65534
    if os.geteuid() != 0:
        return
    try:
        done = subprocess.run([round_.gyre, "why", str(round_.ranks[0].pid)], capture_output=True,
                              text=True, timeout=PATIENCE_S, user=nobody, group=nobody)
    except PermissionError:  # the build folder is closed to it
        return
    if done.returncode != 1 or "is not ours to look at" not in done.stderr:
        yield f"of a process of root, {done.returncode}, {done.stderr}"


def parent_of(round_):
    """Ranks are found by the process that started them: this one, or gyre run."""
    done = subprocess.run([round_.gyre, "why", str(os.getpid()), "--json"], capture_output=True,
                          text=True, timeout=PATIENCE_S)
    found = {rank["pid"] for job in json.loads(done.stdout or '{"jobs": []}')["jobs"]
             for rank in job["ranks"]}
    if found != {process.pid for process in round_.ranks}:
        yield f"of the parent of all ranks, {done.returncode}, ranks {found}"


PLANT = """
import os, sys, time
kind, folder = sys.argv[1:]
name = os.path.join(folder, "memfd:gyre-wait")
os.mkfifo(name) if kind == "fifo" else open(name, "wb").write(bytes(1 << 20))
held = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
# Without its mount the file has the path that memory of that name would have.
os.system(f"umount --lazy {folder}")
print(os.readlink(f"/proc/self/fd/{held}"), flush=True)
time.sleep(100)
"""


def plants_of(gyre):
    """What a user names as a state page is, and what must not stop or mislead who looks."""
    for kind in ("fifo", "file"):
        with tempfile.TemporaryDirectory() as folder:
            script = f'mount -t tmpfs gyre-test "{folder}" && exec "$@"'
            planter = subprocess.Popen(
                ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh",
                 sys.executable, "-c", PLANT, kind, folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            try:
                if planter.stdout.readline() != "/memfd:gyre-wait\n":
                    print(f"planted {kind}: not run: no mount namespace may be made here")
                    continue
                # The kernel writes " (deleted)" behind memory's name.
                done = subprocess.run([gyre, "why", str(planter.pid)], capture_output=True,
                                      text=True, timeout=PATIENCE_S / 6)
                if f"pid {planter.pid}: " not in done.stdout + done.stderr and \
                        "shows no communicator" not in done.stderr:
                    yield f"planted {kind}: {done.returncode}, {done.stdout}, {done.stderr}"
            except subprocess.TimeoutExpired:
                yield f"planted {kind}: it holds gyre why"
            finally:
                planter.kill()
                planter.communicate()


def links_of(round_):
    """Files that --trace writes are ours alone: others are refused, and left as they were."""
    with tempfile.TemporaryDirectory() as folder:
        mine, other = os.path.join(folder, "mine"), os.path.join(folder, "other")
        with open(other, "w", encoding="ascii") as file:
            file.write("kept")
        os.symlink(other, os.path.join(folder, "link"))
        os.link(other, os.path.join(folder, "twin"))
        os.mkfifo(os.path.join(folder, "fifo"))
        for name, words in [("link", "symbolic link"), ("twin", "a second name"),
                            ("fifo", "no regular file"), ("other/x", "other/x")]:
            done = subprocess.run([round_.gyre, "why", str(round_.ranks[0].pid), "--trace",
                                   os.path.join(folder, name)], capture_output=True, text=True,
                                  timeout=PATIENCE_S)
            if done.returncode != 1 or words not in done.stderr:
                yield f"--trace to a {name}: {done.returncode}, {done.stderr}"
        with open(other, encoding="ascii") as file:
            if file.read() != "kept":
                yield "--trace wrote through a link"
        for _ in range(2):  # the second time the file is there
            round_.ask("--trace", mine)
            with open(mine, encoding="utf-8") as file:
                json.load(file)
            if os.stat(mine).st_mode & 0o777 != 0o600:
                yield f"--trace's file has mode {os.stat(mine).st_mode:o}"


def check_writing(arguments):
    wrong = [*errors_of(arguments.gyre), *remedies_of(arguments.gyre),
             *plants_of(arguments.gyre)]
    # Ranks that share processors wait for each other: some of it is long.
    round_ = Round(arguments, "runs", 0)
    try:
        round_.wait_until_here()
        time.sleep(SETTLED_S)
        wrong += parent_of(round_)
        wrong += closed_process_of(round_)
        wrong += links_of(round_)
        with tempfile.TemporaryDirectory() as folder:
            wrong += flights_of(round_, folder)
    except (AssertionError, subprocess.SubprocessError) as error:
        wrong.append(str(error))
    finally:
        round_.end()
    for line in wrong:
        print(f"writing (seed {arguments.seed}): {line}", flush=True)
    return not wrong


CASES = ["stopped", "asleep", "busy", "left_out", "crossed", "dead", "reaped", "destroys", "late",
         "host"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gyre")
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", choices=[*CASES, "writing"])
    arguments = parser.parse_args()
    # Another mount namespace has another working folder.
    arguments.gyre = os.path.abspath(arguments.gyre)
    arguments.program = os.path.abspath(arguments.program)
    good = True
    for name in [arguments.case] if arguments.case else CASES:
        if name == "writing":
            continue
        if name == "host" and (why_not := two_hosts.why_not()):
            print(f"host: not run: {why_not}", flush=True)
            continue
        numbers = range(arguments.first, arguments.first + arguments.rounds)
        right = sum(one_round(arguments, name, number) for number in numbers)
        print(f"{name}: {right} of {len(numbers)} named the right rank and reason", flush=True)
        good &= right == len(numbers)
    if arguments.case in (None, "writing"):
        good &= check_writing(arguments)
    print(f"seed {arguments.seed}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
