"""Runs one scenario: starts the processes, injects the external faults, and collects the output of
every rank."""
import collections
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

from faults import ABSENT_S, CALL_S, INIT_S, bound_s
from hosts import Hosts, ThisMachine

SETTLE_S = 0.3     # what writes after a call has returned has the time to do so
END_S = 10         # for a process to end when nothing holds it any more
START_S = 40       # from the start to the fault
REST_S = ABSENT_S + CALL_S + INIT_S + 5  # from the last thing that befalls them to their rest
QUIET = ("idle", "left", "stranded")

Event = collections.namedtuple("Event", "ns rank word rest")


class RankProcess:
    """A process of the trial, its lines, and how it ended."""

    def __init__(self, number, popen, ranks):
        self.number, self.popen, self.ranks = number, popen, ranks
        self.text = ""          # what it wrote to stderr
        self.rest_of_line = b""
        self.quiet = set()      # ranks that do nothing any more
        self.ended_ns = None    # its output was closed
        self.pid = None         # of the rank itself

    def take(self):
        """The events that it has written since."""
        data = os.read(self.popen.stdout.fileno(), 1 << 16)
        if not data:
            self.ended_ns = time.monotonic_ns()
        *lines, self.rest_of_line = (self.rest_of_line + data).split(b"\n")
        events = []
        for line in lines:
            when, rank, word, *rest = line.decode(errors="replace").split(" ", 3)
            events.append(Event(int(when), int(rank), word, rest[0] if rest else ""))
            if word in QUIET:
                self.quiet.add(int(rank))
        return events

    def is_done(self):
        return self.ended_ns is not None or self.quiet >= set(self.ranks)

    def close_input(self):
        try:
            self.popen.stdin.close()
        except OSError:
            pass


class Trial:
    """`events` and `processes` are what the verdict is made of."""

    def __init__(self, scenario, program, has_namespaces=True, is_stopping=lambda: False):
        self.scenario, self.program = scenario, program
        self.has_namespaces, self.is_stopping = has_namespaces, is_stopping
        self.events, self.processes, self.others = [], [], []
        self.unread = []             # ends of pipes
        self.left_behind, self.tracer_log = [], ""
        self.struck_ns = None        # when the fault came to be
        self.hung = self.is_ending = False
        self.healed_late_s = 0.0     # after it was due
        self.timers = []             # (when, what)
        self.selector = selectors.DefaultSelector()

    def carry_out(self):
        self.folder = tempfile.mkdtemp(prefix="gyre-campaign-")
        self.world = None
        try:
            self.world = self.make_world()
            self.start()
            self.start_s = self.until = time.monotonic()
            self.until += START_S
            self.attend(lambda: all(p.is_done() for p in self.processes) and not self.timers)
            self.hung = not all(p.is_done() for p in self.processes)
            self.let_end()
            self.tracer_log = self.read("tracer-log")
            self.left_behind = self.world.left_behind() + self.strange_files()
        finally:
            self.end()
        return self

    # ------------------------------------------------------------------ the beginning

    def make_world(self):
        if not self.has_namespaces:
            return ThisMachine()
        return Hosts(self.scenario.hosts, f"c{os.getpid()}-{self.scenario.seed}")

    def start(self):
        with open(os.path.join(self.folder, "script"), "w", encoding="ascii") as file:
            file.write(self.scenario.script())
        if self.scenario.fault.name == "load":
            for _ in range(os.cpu_count() or 1):
                # Should nobody end it, its limit of processor time does.
                command = ["sh", "-c", "ulimit -t 30; while :; do :; done"]
                self.others.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("GYRE_")}
        settings = {**self.scenario.settings, **self.world.settings}
        environment.update({name: str(value) for name, value in settings.items()})
        environment["TMPDIR"] = self.folder
        os.mkfifo(os.path.join(self.folder, "pipe"))
        for number, host in enumerate(self.scenario.host_of_process):
            command = ["sh", "-c", f"cd {self.folder} && exec {self.program} script {number}"]
            own = self.scenario.own_settings if number == self.victim_process() else {}
            self.start_one(number, self.world.on(host, command), {**environment, **own})

    def start_one(self, number, command, environment):
        with self.errors_of(number) as errors:
            popen = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=errors, cwd=self.folder,
                                     start_new_session=True)
        process = RankProcess(number, popen, self.scenario.ranks_of_process(number))
        self.processes.append(process)
        self.selector.register(popen.stdout, selectors.EVENT_READ, process)

    def errors_of(self, number):
        """Where a process writes its errors: a file, or a pipe that is full or that nobody has."""
        name = self.scenario.fault.name
        if name not in ("unread", "unheard"):
            return open(os.path.join(self.folder, f"errors-{number}"), "wb")
        reading, writing = os.pipe()
        if name == "unheard":
            os.close(reading)
            return os.fdopen(writing, "wb", buffering=0)
        self.unread.append(reading)
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writing, True)
        return os.fdopen(writing, "wb", buffering=0)

    def victim_process(self):
        victims = self.scenario.victims
        return self.scenario.process_of_rank[victims[0]] if victims else None

    # ------------------------------------------------------------------ in the middle

    def attend(self, is_over):
        """Takes what is written and does what is due, until it is over or the time is up."""
        while not is_over() and not self.is_stopping():
            now = time.monotonic()
            if now > self.until:
                return
            for timer in [timer for timer in self.timers if timer[0] <= now]:
                self.timers.remove(timer)
                timer[1]()
            for key, _ in self.selector.select(timeout=0.02):
                for event in key.data.take():
                    self.events.append(event)
                    if event.word == "fault":
                        self.strike(event, key.data)
                    elif event.word == "ready":
                        self.trace(key.data)
                if key.data.ended_ns is not None:
                    self.selector.unregister(key.fileobj)

    def trace(self, process):
        """From now on its system calls are counted, or one of them fails, or kills it."""
        process.pid = self.world.process_of(process.popen)
        log = os.path.join(self.folder, "tracer-says")
        self.others.append(subprocess.Popen(
            ["strace", "-f", "-o", os.path.join(self.folder, "tracer-log"), "-p", str(process.pid),
             *self.scenario.tracer], stdin=subprocess.DEVNULL, stderr=open(log, "wb"),
            start_new_session=True))
        until = time.monotonic() + 5
        while os.path.getsize(log) == 0 and time.monotonic() < until:
            time.sleep(0.005)  # it says that it is attached
        try:
            process.popen.stdin.write(b"\n")
            process.popen.stdin.flush()
        except BrokenPipeError:
            pass  # it was killed before it could begin

    def later(self, seconds, act):
        self.timers.append((time.monotonic() + seconds, act))
        self.until = max(self.until, time.monotonic() + seconds + REST_S)

    def strike(self, event, process):
        """The fault comes to be: what the process does not do itself is done here."""
        scenario = self.scenario
        self.struck_ns = event.ns
        bound = bound_s(scenario.fault, scenario.hosts, scenario.phase.kind == "init")
        self.until = time.monotonic() + bound + REST_S
        if event.rest == "stop":
            process.pid = self.world.process_of(process.popen)
            if scenario.stop_s is not None:
                self.later(scenario.stop_s, lambda: self.go_on(process))
            else:
                process.quiet = set(process.ranks)
                self.end_if_stopped(process)
        elif event.rest == "cue":
            self.cut()
            self.struck_ns = time.monotonic_ns()

    def end_if_stopped(self, process):
        if self.is_ending and process.pid is not None and self.scenario.fault.name == "coma":
            os.kill(process.pid, signal.SIGKILL)
            os.kill(process.popen.pid, signal.SIGCONT)

    @staticmethod
    def go_on(process):
        # nsenter stops with its child.
        for pid in {process.pid, process.popen.pid}:
            os.kill(pid, signal.SIGCONT)

    def cut(self):
        scenario, (first, second) = self.scenario, self.scenario.cut
        if scenario.fault.name == "narrow":
            return self.world.narrow()
        if scenario.fault.name == "one-way":
            return self.world.lose(first, second)
        if scenario.fault.name == "flow":
            there = self.world.connections(first, second)
            if there:
                ports = there[scenario.seed % len(there)]
                self.world.cut_connection(first, second, ports)
            return None
        self.world.cut(first, second)
        if scenario.heal_s is not None:
            cut_at = time.monotonic()
            self.later(scenario.heal_s, lambda: self.heal(cut_at))
        return None

    def heal(self, cut_at):
        self.world.heal()
        self.healed_late_s = time.monotonic() - cut_at - self.scenario.heal_s

    # ------------------------------------------------------------------ the end

    def let_end(self):
        """Ranks look at their memory once more and end; who cannot is ended."""
        if not self.hung:
            self.until = time.monotonic() + SETTLE_S
            self.attend(lambda: False)
        self.is_ending = True
        for process in self.processes:
            self.end_if_stopped(process)
        for process in self.processes:
            process.close_input()
        self.until = time.monotonic() + (1 if self.hung else END_S)
        self.attend(lambda: all(p.ended_ns is not None for p in self.processes))
        for process in self.processes:
            try:
                process.popen.wait(timeout=max(0.1, self.until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.hung = True
        for other in self.others:
            other.kill()
            other.wait()
        if self.scenario.fault.name == "fork-hold":
            time.sleep(3)  # as long as the child lives

    def read(self, name):
        """A file of the trial's, or nothing."""
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def strange_files(self):
        ours = ("script", "id", "id-again", "errors-", "tracer-", "pipe")
        return [f"file {name}" for name in os.listdir(self.folder) if not name.startswith(ours)]

    def end(self):
        for process in self.processes:
            if process.popen.poll() is None:
                process.popen.kill()
        for other in self.others:
            other.kill()
            other.wait()
        if self.world is not None:
            self.world.end()
        for process in self.processes:
            process.close_input()
            process.popen.wait()
            process.text = self.read(f"errors-{process.number}")
            process.popen.stdout.close()
        for end in self.unread:
            os.close(end)
        self.selector.close()
        shutil.rmtree(self.folder, ignore_errors=True)
