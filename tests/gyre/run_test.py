"""gyre run: exit codes, output, signals, deaths, and the variables that a rank gets. Runs the built
program: run_test.py PATH_OF_GYRE [unittest arguments]."""
import collections
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

GYRE = ""
# All ranks must be gone two seconds after one's death; a busy machine gets three times that.
REAPED_S = 6
PATIENCE_S = 60

Outcome = collections.namedtuple("Outcome", "code out err")


def python(source):
    return [sys.executable, "-c", source]


def clean_environment(**more):
    environment = {k: v for k, v in os.environ.items()
                   if not k.startswith(("GYRE_", "OMP_", "MASTER_"))}
    environment.update(more)
    return environment


def gyre_run(*arguments, **environment):
    done = subprocess.run([GYRE, "run", *arguments], capture_output=True, timeout=PATIENCE_S,
                          env=clean_environment(**environment), stdin=subprocess.DEVNULL)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def start(*arguments, **how):
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.Popen([GYRE, "run", *arguments], env=clean_environment(), text=True,
                            stdin=subprocess.DEVNULL, **streams)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Pids:
    """A folder into which ranks write their process ids, with a line of shell that does it."""

    def __init__(self, test):
        self.folder = tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        self.tell = f'echo $$ > {self.folder.name}/.$$ && mv {self.folder.name}/.$$ ' \
                    f'{self.folder.name}/$GYRE_RANK-$$; '

    def known(self):
        """Process id by rank."""
        names = [n for n in os.listdir(self.folder.name) if not n.startswith(".")]
        return {int(n.split("-")[0]): int(n.split("-")[1]) for n in names}

    def all(self):
        return [int(n.split("-")[1]) for n in os.listdir(self.folder.name) if n[0] != "."]

    def wait_for(self, count):
        assert wait_until(lambda: len(self.all()) >= count, PATIENCE_S), "ranks did not start"

    def gone(self, seconds):
        return wait_until(lambda: not any(map(is_alive, self.all())), seconds)


class ExitCodes(unittest.TestCase):
    def test_the_exit_code_of_a_failing_rank_is_kept(self):
        for code in (0, 1, 7, 255):
            script = f"[ $GYRE_RANK = 1 ] && exit {code}; exit 0"
            self.assertEqual(gyre_run("-n", "3", "sh", "-c", script).code, code)

    def test_sixty_four_ranks_that_do_nothing_end_well(self):
        self.assertEqual(gyre_run("-n", "64", "true").code, 0)

    def test_a_rank_that_ends_early_with_success_ends_nobody_else(self):
        outcome = gyre_run("-n", "2", "sh", "-c",
                           "[ $GYRE_RANK = 0 ] && exit 0; sleep 1.5; echo still here")
        self.assertEqual((outcome.code, outcome.out), (0, "[1] still here\n"))

    def test_a_program_that_is_not_there_is_127_and_named(self):
        outcome = gyre_run("-n", "2", "no-such-program-here")
        self.assertEqual(outcome.code, 127)
        self.assertIn('cannot start "no-such-program-here": not in PATH', outcome.err)

    def test_a_file_that_is_no_program_is_126(self):
        with tempfile.NamedTemporaryFile() as plain:
            outcome = gyre_run("-n", "2", plain.name)
        self.assertEqual(outcome.code, 126)
        self.assertIn("Permission denied", outcome.err)

    def test_a_job_that_takes_too_long_is_ended_with_124(self):
        began = time.monotonic()
        outcome = gyre_run("-n", "2", "--timeout", "1", "sleep", "100")
        self.assertEqual(outcome.code, 124)
        self.assertLess(time.monotonic() - began, 1 + REAPED_S)
        self.assertIn("--timeout: 1 s have passed", outcome.err)


class Usage(unittest.TestCase):
    def refused(self, arguments, *texts):
        done = subprocess.run([GYRE, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 2, arguments)
        self.assertEqual(done.stdout, "", arguments)
        for text in texts:
            self.assertIn(text, done.stderr)

    def test_a_misspelt_word_is_refused_with_the_nearest_one(self):
        self.refused(["rum"], 'no subcommand "rum"', "did you mean run?")
        self.refused(["run", "--bnd", "core", "-n", "2", "true"], "--bnd", "did you mean --bind?")
        self.refused(["run", "-n", "2", "--no-prefx", "true"], "did you mean --no-prefix?")
        self.refused(["run", "-n", "2", "--zzzzzzzzzzzz", "true"], "no option --zzzzzzzzzzzz; see")

    def test_a_bad_value_is_refused_with_what_is_accepted(self):
        for value in ("0", "-1", "x", "4097", "1x"):
            self.refused(["run", "-n", value, "true"], value)
        self.refused(["run", "-n", "2", "--bind", "socket", "true"], "socket", "numa")
        self.refused(["run", "-n", "2", "--timeout", "0", "true"], "--timeout")
        self.refused(["run", "-n", "2"], "name the program to start")
        self.refused(["run", "true"], "give -n N, how many ranks")
        self.refused([], "Usage:")

    def test_an_entry_that_is_no_assignment_is_refused(self):
        outcome = gyre_run("-n", "1", "--env", "NOTHING", "true")
        self.assertNotEqual(outcome.code, 0)
        self.assertIn('"NOTHING" is not NAME=VALUE', outcome.err)

    def test_options_after_the_program_are_the_programs(self):
        outcome = gyre_run("-n", "1", "--no-prefix", "printf", "%s ", "--bind", "-n", "--timeout")
        self.assertEqual((outcome.code, outcome.out), (0, "--bind -n --timeout \n"))
        outcome = gyre_run("-n", "1", "--no-prefix", "--", "printf", "%s ", "--", "x")
        self.assertEqual((outcome.code, outcome.out), (0, "-- x \n"))


class Output(unittest.TestCase):
    def test_lines_carry_their_rank_and_streams_stay_apart(self):
        outcome = gyre_run("-n", "3", "sh", "-c", "echo out $RANK; echo err $RANK >&2",
                           OMP_NUM_THREADS="1")
        self.assertEqual(sorted(outcome.out.splitlines()), [f"[{r}] out {r}" for r in range(3)])
        self.assertEqual(sorted(outcome.err.splitlines()), [f"[{r}] err {r}" for r in range(3)])

    def test_the_prefix_can_be_left_out(self):
        self.assertEqual(gyre_run("-n", "1", "--no-prefix", "echo", "plain").out, "plain\n")

    def test_a_partial_last_line_is_not_lost(self):
        self.assertEqual(gyre_run("-n", "1", "printf", "one\ntwo").out, "[0] one\n[0] two\n")

    def test_lines_of_many_ranks_never_mix(self):
        source = ("import os, sys\n"
                  "for i in range(300):\n"
                  "  os.write(1, b'a' * 40); os.write(1, b'%s-%d\\n' % "
                  "(os.environ['RANK'].encode(), i))")
        outcome = gyre_run("-n", "6", *python(source))
        self.assertEqual(outcome.code, 0)
        expected = sorted(f"[{r}] {'a' * 40}{r}-{i}" for r in range(6) for i in range(300))
        self.assertEqual(sorted(outcome.out.splitlines()), expected)

    def test_a_line_without_end_goes_out_in_pieces_and_loses_nothing(self):
        outcome = gyre_run("-n", "1", "--no-prefix", *python("print('x' * 1000000, end='')"))
        self.assertEqual(outcome.out.replace("\n", ""), "x" * 1000000)
        self.assertLess(max(map(len, outcome.out.splitlines())), 200000)

    def test_each_rank_has_its_logs_byte_for_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            logs = os.path.join(folder, "made", "on", "the", "way")
            gyre_run("-n", "2", "--log-dir", logs, "sh", "-c",
                     "printf 'a\\nb%s' $RANK; printf e$RANK >&2")
            self.assertEqual(sorted(os.listdir(logs)),
                             ["rank-0.err", "rank-0.out", "rank-1.err", "rank-1.out"])
            for rank in (0, 1):
                with open(f"{logs}/rank-{rank}.out") as out, open(f"{logs}/rank-{rank}.err") as err:
                    self.assertEqual((out.read(), err.read()), (f"a\nb{rank}", f"e{rank}"))

    def test_logs_are_the_users_alone_and_begin_anew(self):
        with tempfile.TemporaryDirectory() as logs:
            path = os.path.join(logs, "rank-0.out")
            with open(path, "w") as file:
                file.write("of the run before this one\n")
            os.chmod(path, 0o644)
            gyre_run("-n", "1", "--log-dir", logs, "echo", "new")
            for name in os.listdir(logs):
                self.assertEqual(os.stat(os.path.join(logs, name)).st_mode & 0o777, 0o600, name)
            with open(path) as file:
                self.assertEqual(file.read(), "new\n")

    def test_what_is_no_log_of_ours_is_refused_at_once(self):
        def refused(make, words):
            with tempfile.TemporaryDirectory() as logs:
                path = os.path.join(logs, "rank-1.err")
                other = os.path.join(logs, "other")
                with open(other, "w") as file:
                    file.write("kept")
                make(path, other)
                outcome = gyre_run("-n", "2", "--log-dir", logs, "echo", "x")
                self.assertEqual(outcome.code, 1, words)
                self.assertIn(path, outcome.err)
                self.assertIn(words, outcome.err)
                with open(other) as file:
                    self.assertEqual(file.read(), "kept")

        refused(lambda path, other: os.mkfifo(path), "no regular file")
        refused(lambda path, other: os.symlink(other, path), "symbolic link")
        refused(lambda path, other: os.link(other, path), "a second name")
        refused(lambda path, other: os.mkdir(path), "directory")
        if os.geteuid() == 0:
            def foreign(path, other):
                with open(path, "w"):
                    os.chown(path, 65534, 65534)
            refused(foreign, "another user (uid 65534")

    def test_a_limit_on_the_size_of_files_cuts_the_logs_and_not_the_job(self):
        with tempfile.TemporaryDirectory() as logs:
            done = subprocess.run(
                ["sh", "-c", f'ulimit -f 8; exec {GYRE} run -n 2 --log-dir {logs} sh -c '
                             '"ulimit -f; yes | head -c 100000; exit 5"'],
                capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment())
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("is cut short: File too large", done.stderr)
            self.assertIn("[1] 8\n", done.stdout)

    def test_a_rank_is_ended_by_the_limit_on_its_files_as_without_us(self):
        with tempfile.TemporaryDirectory() as folder:
            outcome = gyre_run("-n", "1", "sh", "-c",
                               f"ulimit -f 1; exec head -c 10000 /dev/zero > {folder}/file")
            self.assertEqual(outcome.code, 128 + signal.SIGXFSZ)

    def test_a_full_disk_under_the_output_does_not_disturb_the_job(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([GYRE, "run", "-n", "2", "sh", "-c", "echo x; sleep 0.3; exit 5"],
                                  stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=PATIENCE_S, env=clean_environment())
        self.assertEqual(done.returncode, 5)
        self.assertIn("stdout is cut short: No space left on device", done.stderr)

    def test_a_closed_stdout_keeps_the_exit_code(self):
        done = subprocess.run(["sh", "-c", f"exec {GYRE} run -n 2 sh -c 'echo x; exit 9' >&-"],
                              capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 9)

    def test_the_job_ends_when_nobody_reads_its_output_any_more(self):
        pids = Pids(self)
        job = start("-n", "2", "sh", "-c", pids.tell + "while echo tick; do sleep 0.05; done",
                    stderr=subprocess.DEVNULL)
        pids.wait_for(2)
        job.stdout.readline()
        job.stdout.close()
        self.assertTrue(pids.gone(REAPED_S))
        self.assertEqual(job.wait(PATIENCE_S), 128 + signal.SIGPIPE)

    def test_a_reader_that_does_not_read_delays_no_death(self):
        pids = Pids(self)
        job = start("-n", "2", "sh", "-c", pids.tell + "[ $RANK = 0 ] && exec yes; exec sleep 100")
        pids.wait_for(2)
        time.sleep(0.3)  # the pipes are full by now
        os.kill(pids.known()[1], signal.SIGKILL)
        self.assertTrue(pids.gone(REAPED_S))
        out, _ = job.communicate(timeout=PATIENCE_S)
        self.assertEqual(set(out.splitlines()[:-1]), {"[0] y"})
        self.assertEqual(job.returncode, 137)


class Deaths(unittest.TestCase):
    def test_a_killed_rank_takes_the_others_with_it_and_is_named(self):
        pids = Pids(self)
        job = start("-n", "4", "sh", "-c", pids.tell + "exec sleep 100")
        pids.wait_for(4)
        victim = pids.known()[3]
        os.kill(victim, signal.SIGKILL)
        self.assertTrue(pids.gone(REAPED_S))
        _, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 137)
        self.assertIn(f"gyre run: rank 3 (pid {victim}) died first: signal 9 (Killed)\n", err)
        self.assertIn("gyre run: ranks 0-2: signal 15 (Terminated), after gyre run", err)

    def test_ranks_that_ignore_sigterm_or_are_stopped_die_too(self):
        pids = Pids(self)
        job = start("-n", "3", "sh", "-c", "trap '' TERM; " + pids.tell +
                    "[ $RANK = 1 ] && kill -STOP $$; [ $RANK = 2 ] && sleep 0.5 && exit 4; "
                    "while :; do sleep 0.1; done")
        pids.wait_for(3)
        _, err = job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 4)
        self.assertTrue(pids.gone(REAPED_S))
        self.assertIn("died first: exit code 4", err)
        self.assertIn("ranks 0-1: signal 9 (Killed), after gyre run had ordered its end", err)

    def test_survivors_have_a_moment_to_say_what_they_saw(self):
        outcome = gyre_run("-n", "2", "sh", "-c",
                           "[ $RANK = 0 ] && exit 3; sleep 0.1; echo rank 0 is gone; exit 6")
        self.assertEqual((outcome.code, outcome.out), (3, "[1] rank 0 is gone\n"))

    def test_what_a_rank_started_ends_with_the_job(self):
        ranks, children = Pids(self), Pids(self)
        job = start("-n", "2", "sh", "-c",
                    ranks.tell + f"sh -c '{children.tell} exec sleep 100' & wait")
        ranks.wait_for(2)
        children.wait_for(2)
        os.kill(ranks.known()[0], signal.SIGKILL)
        self.assertTrue(ranks.gone(REAPED_S) and children.gone(REAPED_S))
        job.communicate(timeout=PATIENCE_S)

    def test_what_a_rank_left_behind_ends_with_the_job(self):
        pids = Pids(self)
        outcome = gyre_run("-n", "2", "sh", "-c",
                           f"sh -c '{pids.tell} exec sleep 100' & sleep 0.3; exit 0")
        self.assertEqual(outcome.code, 0)
        self.assertEqual(len(pids.all()), 2)
        self.assertTrue(pids.gone(REAPED_S))

    def test_a_killed_launcher_leaves_nothing_behind(self):
        pids = Pids(self)
        job = start("-n", "2", "sh", "-c",
                    pids.tell + f"sh -c '{pids.tell} exec sleep 100' & wait")
        pids.wait_for(4)
        job.kill()
        self.assertTrue(pids.gone(REAPED_S))
        job.communicate(timeout=PATIENCE_S)


class Signals(unittest.TestCase):
    def test_signals_are_passed_on_to_all_ranks(self):
        for name, code in (("INT", 21), ("TERM", 22), ("HUP", 23), ("QUIT", 24), ("USR1", 25)):
            pids = Pids(self)
            job = start("-n", "2", "sh", "-c",
                        f"trap 'echo got {name}; exit {code}' {name}; " + pids.tell +
                        "while :; do sleep 0.05; done")
            pids.wait_for(2)
            job.send_signal(getattr(signal, "SIG" + name))
            out, _ = job.communicate(timeout=PATIENCE_S)
            self.assertEqual(job.returncode, code)
            self.assertEqual(sorted(out.splitlines()), [f"[0] got {name}", f"[1] got {name}"])

    def test_a_signal_that_ends_the_ranks_is_the_exit_code(self):
        pids = Pids(self)
        job = start("-n", "2", "sh", "-c", pids.tell + "exec sleep 100")
        pids.wait_for(2)
        job.terminate()
        job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)

    def test_a_second_interrupt_kills_ranks_that_ignore_the_first(self):
        pids = Pids(self)
        job = start("-n", "2", "sh", "-c", "trap '' INT TERM; " + pids.tell +
                    "while :; do sleep 0.05; done")
        pids.wait_for(2)
        job.send_signal(signal.SIGINT)
        time.sleep(0.3)
        self.assertIsNone(job.poll())
        job.send_signal(signal.SIGINT)
        self.assertTrue(pids.gone(REAPED_S))
        job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 128 + signal.SIGINT)

    def test_a_signal_the_caller_ignores_stays_ignored(self):
        pids = Pids(self)
        job = start("-n", "2", "sh", "-c", pids.tell + "sleep 1; exit 0",
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        pids.wait_for(2)
        job.send_signal(signal.SIGHUP)
        job.communicate(timeout=PATIENCE_S)
        self.assertEqual(job.returncode, 0)


class Processes(unittest.TestCase):
    def test_ranks_share_the_session_lead_groups_and_have_no_terminal(self):
        """Linux's autogroup shares processors between sessions, and a yield stays within one."""
        source = """
import os
try:
    os.open("/dev/tty", os.O_RDWR)
    terminal = "a terminal"
except OSError:
    terminal = "none"
print(os.getsid(0), os.getpgid(0) - os.getpid(), terminal)
"""
        launcher, terminal = pty.fork()
        if launcher == 0:
            os.execve(GYRE, [GYRE, "run", "-n", "2", *python(source)], clean_environment())
        said = b""
        try:
            while part := os.read(terminal, 4096):
                said += part
        except OSError:
            pass  # the last one has closed the other end
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1]), 0)
        self.assertEqual(sorted(said.decode().splitlines()),
                         [f"[{rank}] {launcher} 0 none" for rank in (0, 1)])


class Environment(unittest.TestCase):
    def told(self, *arguments, **environment):
        source = "import os, json; print(json.dumps(dict(os.environ)))"
        outcome = gyre_run("--no-prefix", *arguments, *python(source), **environment)
        self.assertEqual(outcome.code, 0, outcome.err)
        ranks = [json.loads(line) for line in outcome.out.splitlines()]
        return sorted(ranks, key=lambda r: int(r["GYRE_RANK"])), outcome.err

    def test_a_rank_is_told_its_place_for_gyre_and_as_torchrun_does(self):
        ranks, _ = self.told("-n", "3")
        for rank, variables in enumerate(ranks):
            for name in ("GYRE_RANK", "GYRE_LOCAL_RANK", "RANK", "LOCAL_RANK"):
                self.assertEqual(variables[name], str(rank), name)
            for name in ("GYRE_SIZE", "GYRE_LOCAL_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
                self.assertEqual(variables[name], "3", name)
        self.assertEqual(len({r["GYRE_JOB_ID"] for r in ranks}), 1)
        self.assertEqual(len({(r["MASTER_ADDR"], r["MASTER_PORT"]) for r in ranks}), 1)
        again, _ = self.told("-n", "1")
        self.assertNotEqual(again[0]["GYRE_JOB_ID"], ranks[0]["GYRE_JOB_ID"])

    def test_openmp_gets_one_thread_unless_somebody_chose(self):
        ranks, err = self.told("-n", "2")
        self.assertEqual({r["OMP_NUM_THREADS"] for r in ranks}, {"1"})
        self.assertEqual(err, "")
        _, err = self.told("-n", "2", GYRE_DEBUG="INFO")
        self.assertEqual(err.count("OMP_NUM_THREADS=1"), 1, err)
        ranks, err = self.told("-n", "2", OMP_NUM_THREADS="4")
        self.assertEqual({r["OMP_NUM_THREADS"] for r in ranks}, {"4"})
        self.assertEqual(err, "")
        ranks, _ = self.told("-n", "1")
        self.assertNotIn("OMP_NUM_THREADS", ranks[0])

    def test_variables_can_be_set_for_all_ranks(self):
        ranks, _ = self.told("-n", "2", "--env", "A=1=2", "--env", "B=", "--env", "MASTER_PORT=5")
        for variables in ranks:
            self.assertEqual([variables[n] for n in ("A", "B", "MASTER_PORT")], ["1=2", "", "5"])

    def test_the_secret_travels_in_sealed_memory_alone(self):
        source = (
            "import os, fcntl\n"
            "fd = int(os.environ['GYRE_RENDEZVOUS_FD'])\n"
            "data = os.pread(fd, 4096, 0)\n"
            "assert len(data) == 56 and data[:8] == b'GYRERUN1', data[:8]\n"
            "secret = data[8:40]\n"
            "for form in (secret, secret.hex().encode()):\n"
            "  for place in ('environ', 'cmdline'):\n"
            "    for pid in ('self', os.getppid()):\n"
            "      assert form not in open(f'/proc/{pid}/{place}', 'rb').read()\n"
            "try:\n"
            "  os.pwrite(fd, b'x', 0)\n"
            "  raise SystemExit('writable')\n"
            "except PermissionError: pass\n"
            "import hashlib; print(hashlib.sha256(secret).hexdigest())")
        jobs = [gyre_run("-n", "3", "--no-prefix", *python(source), GYRE_DEBUG="INFO")
                for _ in range(2)]
        for job in jobs:
            self.assertEqual(job.code, 0, job.err)
            self.assertEqual(len(set(job.out.split())), 1)
        self.assertNotEqual(jobs[0].out, jobs[1].out)


class Binding(unittest.TestCase):
    SOURCE = "import os; print(sorted(os.sched_getaffinity(0)))"

    def sets(self, *arguments):
        outcome = gyre_run("--no-prefix", *arguments, *python(self.SOURCE), GYRE_DEBUG="INFO")
        self.assertEqual(outcome.code, 0, outcome.err)
        return [tuple(json.loads(line)) for line in outcome.out.splitlines()], outcome.err

    def setUp(self):
        self.allowed = tuple(sorted(os.sched_getaffinity(0)))

    def test_ranks_have_a_core_each_while_there_are_enough(self):
        sets, err = self.sets("-n", "2")
        if "one core each" in err:
            self.assertFalse(set(sets[0]) & set(sets[1]))
            self.assertLess(len(sets[0]), len(self.allowed))
        else:
            self.assertIn("not bound: 2 ranks on 1 cores", err)
            self.assertEqual(sets, [self.allowed] * 2)

    def test_more_ranks_than_cores_are_not_bound(self):
        count = len(self.allowed) + 1
        sets, err = self.sets("-n", str(count))
        self.assertEqual(sets, [self.allowed] * count)
        self.assertIn("not bound", err)

    def test_the_caller_can_choose(self):
        self.assertEqual(self.sets("-n", "2", "--bind", "none")[0], [self.allowed] * 2)
        sets, _ = self.sets("-n", str(2 * len(self.allowed)), "--bind", "core")
        self.assertTrue(all(set(s) <= set(self.allowed) for s in sets))
        self.assertEqual(set().union(*sets), set(self.allowed))

    def test_binding_stays_within_what_the_launcher_may_use(self):
        outcome = subprocess.run(
            ["taskset", "-c", str(self.allowed[-1]), GYRE, "run", "-n", "1", "--bind", "core",
             "--no-prefix", *python(self.SOURCE)], capture_output=True, text=True,
            env=clean_environment(), timeout=PATIENCE_S)
        self.assertEqual(outcome.stdout, f"[{self.allowed[-1]}]\n")


if __name__ == "__main__":
    # A shell's background jobs start with these ignored, and what a process ignores its children
    # ignore: signals that were never heard cannot be passed on.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    GYRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
