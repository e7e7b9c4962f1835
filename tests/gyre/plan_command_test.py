"""gyre plan: what it prints and writes, and the arguments that it refuses. plan_command_test.py
GYRE MACHINES, where MACHINES writes described machines."""
import json
import os
import subprocess
import sys
import tempfile

GYRE, MACHINES = sys.argv[1:]


def gyre_plan(*arguments):
    return subprocess.run([GYRE, "plan", *arguments], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def succeeds(*arguments):
    done = gyre_plan(*arguments)
    assert done.returncode == 0, (arguments, done)
    return done.stdout


def refused(word, *arguments):
    done = gyre_plan(*arguments)
    assert done.returncode == 2 and word in done.stderr, (arguments, done)


text = succeeds("--collective", "all_reduce", "--algorithm", "ring", "-n", "4", "--rank", "2")
assert "lane 0 step 0.0  send                            [] > [1] > [3]" in text, text
assert "rank 1\n" not in text, text
assert "verified for 5 ranks" in succeeds("-n", "5", "-a", "tree", "--verify")
assert "twoshot" in succeeds("--list")
listed = succeeds("--list", "-c", "AllToAll")
assert "pairwise" in listed and "bruck" in listed and "ring" not in listed, listed
listed = json.loads(succeeds("--list", "--json", "-c", "scatter"))
assert [(one["algorithm"], one["collectives"]) for one in listed] == \
    [("linear", ["gather", "scatter"])], listed
assert len(json.loads(succeeds("--list", "--json"))) > 10
refused("not --verify", "--list", "--verify")
refused("not --algorithm", "--list", "-a", "ring")

# However a collective is written, it is printed in one way, and a default algorithm does it.
for name in ("all_reduce", "allreduce", "AllReduce", "all-reduce"):
    assert succeeds(name) == succeeds("-c", name) == succeeds("--collective", "all_reduce"), name
for name, algorithm in (("all_reduce", "ring"), ("all_to_all", "pairwise"), ("gather", "linear")):
    assert succeeds(name).startswith(f"{algorithm} {name}, 4 ranks"), succeeds(name)

document = json.loads(succeeds("-n", "4", "--bytes", "1M", "--json"))
assert [link["bytes"] for link in document["links"]] == [3 << 19] * 4, document["links"]
assert [len(plan["lanes"][0]["steps"]) for plan in document["plans"]] == [5] * 4
assert "NVLS" not in text, text
assert "by multicast (NVLS)" in succeeds("-a", "twoshot", "--multicast")
wires = json.loads(succeeds("-n", "4", "-a", "twoshot", "--bytes", "4000", "--multicast", "--json"))
assert wires["wires"] == [{"sent": 5000, "received": 5000, "switch_moves": 2}] * 4, wires["wires"]
ordered = json.loads(succeeds("-n", "4", "--order", "0,2,1,3", "--json"))
assert [(link["from"], link["to"]) for link in ordered["links"]] == [(0, 2), (1, 3), (2, 1), (3, 0)]

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "ring.svg")
    succeeds("--draw", path)
    with open(path, encoding="utf-8") as file:
        assert file.read().startswith("<svg "), path
    refused("cannot write", "--draw", os.path.join(folder, "none", "ring.svg"))

# The rings over a machine, each of which has channels of its own.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "mesh.xml")
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([sys.executable, MACHINES, "dgx1_v100"], check=True, stdout=file)
    rings = []
    searched = subprocess.run([GYRE, "topo", "--file", path, "--rings"], capture_output=True,
                              text=True, check=True, timeout=60).stdout
    for line in searched.splitlines():
        if line.startswith("  ring "):
            rings.append([int(word) for word in line.split(": ")[1].split()])
    assert len(rings) > 1, searched
    for number, ring in enumerate(rings):
        shown = json.loads(succeeds("-a", "ring", "--file", path, "--ring", str(number), "--json"))
        hops = sorted((ring[i - 1], rank) for i, rank in enumerate(ring))
        assert sorted((link["from"], link["to"]) for link in shown["links"]) == hops, number
    proven = succeeds("-a", "ring", "--file", path, "--hosts", "2", "--verify")
    assert "verified for 16 ranks, along " in proven, proven
    chain = succeeds("broadcast", "-a", "chain", "--file", path, "--root", "5", "--verify")
    assert f"verified for 8 ranks, along {len(rings)} rings" in chain, chain
    refused("ring and chain", "-a", "twoshot", "--file", path)
    refused("not with --order", "-a", "ring", "--file", path, "--order", "0,1")
    refused("is not one of", "-a", "ring", "--file", path, "--ring", "99")
    refused("goes without -n", "-a", "ring", "--file", path, "-n", "8")
    refused("--ring and --channels go with --file", "-a", "ring", "--ring", "1")
    refused("--ring and --channels go with --file", "-a", "ring", "--channels", "2")
    refused("--channels", "-a", "ring", "--file", path, "--channels", "17")
    few = succeeds("-a", "ring", "--file", path, "--channels", "2", "--verify")
    assert "along 2 rings" in few, few
    refused("--rank 8 is not one of 8 ranks", "-a", "ring", "--file", path, "--rank", "8")

refused('"rnig"', "-a", "rnig")
refused("oneshot does no gather", "-a", "oneshot", "-c", "gather")
refused("oneshot does no gather", "-a", "oneshot", "gather")
refused("did you mean all_reduce?", "-c", "al_reduce")
refused("did you mean broadcast?", "brodcast")
refused("did you mean ring?", "-a", "rnig")
refused('"gather" is one word too many', "scatter", "gather")
refused("--rank 4", "-n", "4", "--rank", "4")
refused("order", "-n", "3", "--order", "0,1,1")
refused("--bytes", "--bytes", "many")

# What a model takes of each rank.
text = succeeds("memory", "--params", "7.5B", "--ranks", "64", "--bf16", "--units", "1000000")
totals = [float(line.split()[-1]) for line in text.splitlines()[2:]]  # bytes per parameter
for found, formula in zip(totals, (16, 4 + 12 / 64, 2 + 14 / 64, 16 / 64)):
    assert abs(found - formula) < 0.005 * formula + 1e-3, (found, formula, text)
text = succeeds("memory", "--params", "1B", "-n", "8", "--memory", "12G")
fits = [line.split()[-2] for line in text.splitlines()[2:]]
assert fits == ["no", "yes", "yes", "yes"], text
assert len(succeeds("memory", "--stage", "2").splitlines()) == 3
refused("many is not a number", "memory", "--params", "many")
refused("ends in K, M, B or T", "memory", "--params", "1X")
refused("does not divide", "memory", "-n", "8", "--factor", "3")
refused("--stage", "memory", "--stage", "4")
