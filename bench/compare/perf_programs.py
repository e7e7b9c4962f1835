"""Gyre's perf programs: how one is started on so many ranks over a given transport, and how its
results are read."""
import json
import os

NO_LIMIT = 1 << 62


class Gyre:
    """A perf program, with settings of its own. Its buffers come from malloc, or are registered:
    from gyreMemAlloc."""

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
