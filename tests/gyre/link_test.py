"""gyre link on whole jobs: started in each way, over links that are slow, change bytes or are cut,
with a rank that is killed, and with wrong words. link_test.py GYRE [unittest arguments]"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support")
sys.path.insert(0, SUPPORT)
import shaping  # noqa: E402
import two_hosts  # noqa: E402

GYRE = ""
PATIENCE_S = 90
NAMED_WITHIN_S = 60
EXIT_NAMED = 3
# A loaded machine makes links slow for moments: where speed is not the question, none is named.
CALM = ["--slow-below", "0.01"]
OWN = {key: value for key, value in os.environ.items() if not key.startswith("GYRE_")}
LOOPBACK = {**OWN, "GYRE_SOCKET_IFNAME": "lo"}


def run(*command, environment=None):
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S,
                          stdin=subprocess.DEVNULL, env=environment or LOOPBACK)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def one_line(text):
    return " ".join(text.split())


class Ways(unittest.TestCase):
    def test_ranks_of_this_host_measure_each_pair_and_report(self):
        with tempfile.TemporaryDirectory() as folder:
            report, picture = os.path.join(folder, "l.json"), os.path.join(folder, "l.svg")
            done = run(GYRE, "link", "-n", "3", "--all-pairs", *CALM, "--json", report, "--svg",
                       picture)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            found = load(report)
            root = xml.etree.ElementTree.parse(picture).getroot()
        self.assertEqual(found["schema"], "gyre-link-1")
        self.assertEqual(sorted(link["ranks"] for link in found["links"]), [[0, 1], [0, 2], [1, 2]])
        self.assertEqual(found["silent_ranks"], [])
        for link in found["links"]:
            self.assertEqual((link["finding"], link["failure"]), ("fine", None))
            self.assertGreater(link["best_latency_us"], 0)
            self.assertGreaterEqual(link["latency_us"], link["best_latency_us"])
            self.assertGreaterEqual(link["latency_p99_us"], link["latency_us"])
            self.assertGreater(link["both_bytes_per_s"], 0)
            for direction in link["directions"]:
                self.assertGreater(direction["bytes_per_s"], 1e6)
                self.assertGreaterEqual(direction["checked_bytes"], direction["message_bytes"])
                self.assertIsNone(direction["damage"])
        self.assertEqual(root.get("width"), "700")
        self.assertIn("All 3 links are as expected", done.stdout)
        self.assertRegex(done.stderr, r"3 links in 3 rounds: about \d+ s, and 60 s at most")
        self.assertIn("round 3 of 3", done.stderr)

    def test_a_launcher_starts_it_as_a_job(self):
        done = run(GYRE, "run", "-n", "2", "--timeout", "60", GYRE, "link", *CALM)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.assertIn("[0] The only link is as expected", done.stdout)
        self.assertNotIn("[1]", done.stdout)

    def test_it_measures_the_transport_and_the_plan_that_the_job_takes(self):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "l.json")
            done = run(GYRE, "link", "-n", "4", *CALM, "--json", report,
                       environment={**LOOPBACK, "GYRE_TRANSPORT": "tcp,self", "GYRE_ALGO": "ring"})
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            found = load(report)
        self.assertEqual(sorted(link["ranks"] for link in found["links"]),
                         [[0, 1], [0, 3], [1, 2], [2, 3]])
        self.assertEqual({link["kind"] for link in found["links"]}, {"tcp, over loopback"})
        self.assertEqual(found["plans"], ["ring (all-reduce of 8 B and 64 MiB)"])

    def test_wrong_words_get_an_answer(self):
        for words, said in ((["--all-pair"], "did you mean --all-pairs"),
                            (["--slow-below", "2"], "--slow-below"), (["-n", "0"], "-n"),
                            (["-n", "1"], "-n 2"), ([], "link -n 4"),
                            (["-n", "2", "--seconds", "2"], "--seconds")):
            done = run(GYRE, "link", *words)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(said, done.stderr, words)
        done = run(GYRE, "link", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("gyre-link-1", done.stdout)

    def test_a_rank_that_is_killed_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "l.json")
            ranks = [subprocess.Popen(
                [GYRE, "link", "--all-pairs", *CALM, "--json", report], text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**LOOPBACK, "GYRE_RANK": str(rank), "GYRE_SIZE": "3",
                     "GYRE_JOB_ID": f"link{os.getpid()}"}) for rank in range(3)]
            try:
                line = ""
                while "round 1" not in line:
                    line = ranks[0].stderr.readline()
                    self.assertTrue(line, "rank 0 ended before the first round")
                ranks[2].kill()
                said, errors = ranks[0].communicate(timeout=PATIENCE_S)
                ranks[1].communicate(timeout=PATIENCE_S)
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.communicate()
            self.assertEqual(ranks[0].returncode, EXIT_NAMED, said + errors)
            self.assertRegex(said, r"Rank 2 \(.+\) answered no more")
            found = load(report)
        self.assertEqual(found["silent_ranks"], [2])
        self.assertEqual({tuple(link["ranks"]): link["finding"] for link in found["links"]},
                         {(0, 1): "fine", (0, 2): "dead", (1, 2): "dead"})
        self.assertEqual(ranks[1].returncode, 0)


class FlippingHosts(two_hosts.SwitchedHosts):
    """The cable of host 2 flips a bit in some of the bytes that host 1 sends to it."""
    relay = None

    def lay_cable(self, host):
        if host != 2:
            super().lay_cable(host)
            return
        self.relay = subprocess.Popen(
            [sys.executable, os.path.join(SUPPORT, "bad_cable.py"), self.first_process(host),
             two_hosts.INTERFACE, self.first_process(self.hosts), self.port(host),
             f"flip={self.addresses[1]},{self.addresses[2]}"], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        if self.relay.stdout.readline() != "ready\n":
            raise OSError("the relay of a cable could not be made")

    def end(self):
        if self.relay:
            self.relay.kill()
            self.relay.communicate()
        super().end()


def why_no_hosts():
    return two_hosts.why_not() or (None if shutil.which("tc") else "there is no tc")


def why_no_slow_way():
    """Why one host's way to another cannot be slowed here, or nothing."""
    if why_no_hosts():
        return why_no_hosts()
    tried = run("unshare", "--net", "sh", "-ec",
                "tc qdisc add dev lo root handle 1: htb\n"
                "tc class add dev lo parent 1: classid 1:10 htb rate 10mbit\n"
                "tc filter add dev lo parent 1: protocol ip u32 match ip dst 10.0.0.1/32 "
                "flowid 1:10", environment=OWN)
    return None if tried.returncode == 0 else f"tc has no htb or u32: {tried.stderr.strip()}"


@unittest.skipIf(why_no_hosts(), f"no hosts can be made here: {why_no_hosts()}")
class Cables(unittest.TestCase):
    HOSTS = 4
    RATE, SLOW_RATE = "200mbit", "20mbit"

    def lay(self, kind):
        hosts = kind(f"link{os.getpid()}", self.HOSTS)
        self.addCleanup(hosts.end)
        return hosts

    def shape(self, hosts, slow=None):
        """All cables to the rate; the way from one host to another to a tenth of it."""
        for host in range(self.HOSTS):
            def tc(*words, on=host):
                hosts.call(hosts.on(on, ["tc", *words]))
            device = ["dev", two_hosts.INTERFACE]
            if slow is None or host != slow[0]:
                tc("qdisc", "replace", *device, "root", *shaping.bucket(self.RATE))
                continue
            tc("qdisc", "replace", *device, "root", "handle", "1:", "htb", "default", "10")
            for number, rate in ((10, self.RATE), (20, self.SLOW_RATE)):
                tc("class", "add", *device, "parent", "1:", "classid", f"1:{number}", "htb", "rate",
                   rate)
            tc("filter", "add", *device, "parent", "1:", "protocol", "ip", "prio", "1", "u32",
               "match", "ip", "dst", f"{hosts.addresses[slow[1]]}/32", "flowid", "1:20")

    def start(self, hosts, *options):
        report = os.path.join(hosts.folder, "links.json")
        common = {**OWN, "GYRE_SIZE": str(self.HOSTS), "GYRE_LOCAL_RANK": "0",
                  "GYRE_LOCAL_SIZE": "1", "GYRE_SOCKET_IFNAME": two_hosts.INTERFACE,
                  "GYRE_RENDEZVOUS_ADDRESS": f"{hosts.addresses[0]}:29771",
                  "GYRE_RENDEZVOUS_SECRET_FILE": hosts.secret}
        ranks = [subprocess.Popen(
            hosts.on(rank, [GYRE, "link", "--json", report, *options]), text=True,
            env={**common, "GYRE_RANK": str(rank)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(self.HOSTS)]
        self.addCleanup(lambda: [rank.communicate() for rank in ranks])
        self.addCleanup(lambda: [rank.kill() for rank in ranks])
        return ranks, report

    def find(self, hosts, *options):
        """What rank 0 says, its report and how long that took."""
        begun = time.monotonic()
        ranks, report = self.start(hosts, *options)
        said, errors = ranks[0].communicate(timeout=PATIENCE_S)
        took = time.monotonic() - begun
        self.assertEqual(ranks[0].returncode, EXIT_NAMED, said + errors)
        return said, load(report), took

    @unittest.skipIf(why_no_slow_way(), f"no way can be slowed here: {why_no_slow_way()}")
    def test_a_link_at_a_tenth_of_its_rate_is_named_in_a_minute(self):
        hosts = self.lay(two_hosts.SwitchedHosts)
        self.shape(hosts, slow=(2, 3))
        said, found, took = self.find(hosts)
        self.assertLessEqual(took, NAMED_WITHIN_S)
        named = [link for link in found["links"] if link["finding"] != "fine"]
        self.assertEqual([(link["ranks"], link["finding"]) for link in named], [([2, 3], "slow")],
                         said)
        self.assertTrue(named[0]["repeated"])
        up, down = named[0]["directions"]
        self.assertLess(up["share"], 0.2, said)
        self.assertGreater(down["share"], 0.5, said)
        self.assertRegex(one_line(said), r"The link between rank 2 \(\w+h2\) and rank 3 \(\w+h3\) "
                                         r"is slow: [\d.]+ GB/s from rank 2 to 3, ")

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "there are no TAP devices here")
    def test_a_link_that_changes_bytes_is_named_in_a_minute(self):
        hosts = self.lay(FlippingHosts)
        self.shape(hosts)
        said, found, took = self.find(hosts, *CALM)
        self.assertLessEqual(took, NAMED_WITHIN_S)
        named = [link for link in found["links"] if link["finding"] != "fine"]
        self.assertEqual([(link["ranks"], link["finding"]) for link in named],
                         [([1, 2], "corrupting")], said)
        up, down = named[0]["directions"]
        self.assertIsNone(down["damage"])
        damage = up["damage"]
        self.assertEqual(damage["bytes"], damage["bits"])
        self.assertEqual(damage["first"]["sent"] ^ damage["first"]["received"], 0x10)
        self.assertLess(damage["first"]["offset"], up["message_bytes"])
        self.assertRegex(one_line(said), r"rank 1 \(\w+h1\) and rank 2 \(\w+h2\) is corrupting: "
                                         r"rank 1 to 2 changed \d+ bytes")
        self.assertIn("do not start the job", said)

    def test_a_host_that_falls_silent_is_named_and_the_others_are_measured(self):
        hosts = self.lay(two_hosts.SwitchedHosts)
        self.shape(hosts)
        ranks, report = self.start(hosts, *CALM, "--seconds", "15")
        line = ""
        while "round 1" not in line:
            line = ranks[0].stderr.readline()
            self.assertTrue(line, "rank 0 ended before the first round")
        hosts.ip(self.HOSTS, "link", "set", hosts.port(2), "down")
        said, errors = ranks[0].communicate(timeout=PATIENCE_S)
        self.assertEqual(ranks[0].returncode, EXIT_NAMED, said + errors)
        found = load(report)
        self.assertEqual(found["silent_ranks"], [2], said)
        for link in found["links"]:
            self.assertEqual(link["finding"], "dead" if 2 in link["ranks"] else "fine", said)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    GYRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
