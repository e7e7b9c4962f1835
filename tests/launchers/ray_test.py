"""docs/examples/ray_job.py on a Ray cluster of two nodes: its line in docs/operations.md trains,
and a program that fails ends the job."""
import os
import signal
import subprocess
import time
import unittest

import jobs
import two_hosts

START_S = 60
PORT = 6379


class Ray(jobs.Jobs):
    @classmethod
    def setUpClass(cls):
        cls.bin = os.path.join(jobs.wheels("ray"), "bin")
        super().setUpClass()
        cls.variables.update(PATH=f"{cls.bin}:{cls.variables['PATH']}", RAY_USAGE_STATS_ENABLED="0",
                             RAY_TMPDIR=cls.site.folder, PYTHONUNBUFFERED="1")
        cls.nodes = []
        cls.addClassCleanup(cls.end)
        for host, address in enumerate(two_hosts.ADDRESSES):
            first = ["--head", f"--port={PORT}", "--include-dashboard=false"]
            other = [f"--address={two_hosts.ADDRESSES[0]}:{PORT}"]
            cls.start(host, ["ray", "start", "--block", "--disable-usage-stats",
                             f"--node-ip-address={address}", f"--num-cpus={jobs.RANKS // 2}",
                             "--object-store-memory=100000000", *(other if host else first)])
            cls.wait_for_nodes(host + 1)

    @classmethod
    def start(cls, host, command):
        with open(os.path.join(cls.site.folder, f"ray-{host}.log"), "wb") as log:
            cls.nodes.append(subprocess.Popen(
                cls.site.on(host, command), env=cls.variables, cwd=cls.site.folder,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    @classmethod
    def wait_for_nodes(cls, count):
        script = "import ray; ray.init('auto', logging_level='ERROR'); print(len(ray.nodes()))"
        end = time.monotonic() + START_S
        said = ""
        while time.monotonic() < end:
            done = subprocess.run(cls.site.on(0, ["timeout", "30", "python", "-c", script]),
                                  env=cls.variables, capture_output=True, text=True, check=False)
            said = done.stdout + done.stderr
            if done.stdout.split()[-1:] == [str(count)]:
                return
            time.sleep(0.5)
        raise OSError(f"no {count} nodes of Ray after {START_S} s: {said}")

    @classmethod
    def end(cls):
        for node in cls.nodes:
            node.send_signal(signal.SIGTERM)
        for node in cls.nodes:
            try:
                node.wait(10)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()

    def submit(self, line, succeeds=True):
        return self.run_by(self.site.on(0, ["sh", "-ec", f"cd $HOME\n{line}"]), succeeds=succeeds)

    def test_the_line_of_the_page_trains(self):
        with open(os.path.join(jobs.ROOT, "docs", "examples", "ray_job.py"),
                  encoding="utf-8") as file:
            self.site.write("ray_job.py", file.read())
        self.check(self.submit(jobs.documented("Ray")))
        text = self.submit("python ray_job.py 2 sh -c 'exit $((GYRE_RANK * 3))'", succeeds=False)
        self.assertIn("rank 1 ended with 3", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
