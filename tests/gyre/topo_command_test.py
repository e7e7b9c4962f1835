#!/usr/bin/env python3
"""gyre topo: this host and described ones, as text and as files, and what it refuses."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

GYRE = sys.argv.pop(1)

SMALL = """<system version="1" name="small">
  <cpu numaid="0" affinity="3" vendor="AuthenticAMD" familyid="25">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90"><nvlink target="0000:03:00.0" count="18"/></gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90"><nvlink target="0000:02:00.0" count="18"/></gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" speed="400000" port="1" guid="0x1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
"""

# The kernel knows no speed of eth0, UCX does.
UCX = """<topology version="2.0">
  <object type="Machine" cpuset="0x1">
    <info name="HostName" value="one"/>
    <info name="GyreUcx" value="transport=self device=memory dedicated_gigabytes_per_s=19"/>
    <object type="Core" os_index="0" cpuset="0x1"/>
    <object type="OSDev" name="eth0" osdev_type="2">
      <info name="GyrePort" value="protocol=ethernet up=1"/>
      <info name="GyreUcx"
    value="transport=tcp device=eth0 shared_gigabytes_per_s=2.9 latency_us=5.3 overhead_us=50"/>
    </object>
  </object>
</topology>
"""


def gyre(*words):
    done = subprocess.run([GYRE, "topo", *words], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class Topo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, text):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".xml", delete=False,
                                         dir=self.folder.name) as file:
            file.write(text)
        return file.name

    def test_this_host_has_processors_and_a_loopback(self):
        code, text, error = gyre()
        self.assertEqual((code, error), (0, ""))
        self.assertRegex(text, r"^host .*: processors \d")
        self.assertRegex(text, r"cores? \d")
        self.assertIn("port lo: loopback", text)

    def test_an_exported_host_is_described_alike(self):
        here = [line for line in gyre()[1].split("\n") if not line.startswith("  no PCI")]
        there = gyre("--file", self.file(gyre("--export", "hwloc")[1]))
        self.assertEqual(there[0], 0, there[2])
        self.assertEqual([line for line in there[1].split("\n") if line in here],
                         there[1].split("\n"))

    def test_a_file_of_nccls_is_described_and_comes_back(self):
        path = self.file(SMALL)
        text = gyre("--file", path)[1]
        for line in ("host small", "GPU 0000:02:00.0 (device 0): 31.5 GB/s, sm_90",
                     "port mlx5_0: protocol not known, up, verbs, 50 GB/s",
                     "18 x NVLink, 371 GB/s"):
            self.assertIn(line, text)
        again = self.file(gyre("--file", path, "--export", "nccl")[1])
        self.assertEqual(gyre("--file", again)[1], text)

    def test_why_says_which_transport_is_taken(self):
        path = self.file(SMALL)
        code, text, error = gyre("--file", path, "--why", "gpu0", "gpu1")
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(text.split("\n")[0], "gpu0 to gpu1: p2p")
        self.assertRegex(text, r"(?m)^  p2p +taken +NVL, 371 GB/s$")
        self.assertRegex(text, r"(?m)^  shm +possible by the memory of NUMA node 0, 31.5 GB/s$")
        code, text, error = gyre("--file", path, "--hosts", "2", "--why", "gpu0", "1/gpu1")
        self.assertEqual((code, error), (0, ""))
        self.assertRegex(text, r"(?m)^  p2p +no +another host$")
        self.assertRegex(text, r"(?m)^  rdma +taken +by mlx5_0 to mlx5_0, 31.5 GB/s$")
        self.assertRegex(text, r"(?m)^  tcp +possible +by mlx5_0 to mlx5_0, 31.5 GB/s$")

    def test_the_file_of_the_variable_stands_for_this_host(self):
        os.environ["GYRE_TOPO_FILE"] = self.file(SMALL)
        self.addCleanup(os.environ.pop, "GYRE_TOPO_FILE")
        self.assertTrue(gyre()[1].startswith("host small"))
        os.environ["GYRE_P2P_DISABLE"] = "1"
        self.addCleanup(os.environ.pop, "GYRE_P2P_DISABLE")
        self.assertRegex(gyre("--why", "gpu0", "gpu1")[1],
                         r"(?m)^  p2p +no +GYRE_P2P_DISABLE leaves it out$")

    def test_this_host_has_ucxs_transports_or_says_why_not(self):
        code, text, error = gyre("--json")
        self.assertEqual((code, error), (0, ""))
        made = json.loads(text)
        known = [one["transport"] for node in made["nodes"] for one in node.get("ucx", [])]
        if "self" not in known:
            why = [one for one in made["missed"] if one.startswith("UCX's transports: ")]
            self.assertEqual(len(why), 1, made["missed"])
            self.assertRegex(why[0], r"was not found|is installed, and its layout is not known")

    def test_ucxs_transports_are_shown_and_their_speed_counts(self):
        path = self.file(UCX)
        code, text, error = gyre("--file", path)
        self.assertEqual((code, error), (0, ""))
        self.assertIn("\n  UCX self on memory: 19 GB/s for each process\n", text)
        self.assertIn("port eth0: Ethernet, up, 2.9 GB/s (by UCX)\n", text)
        self.assertIn("UCX tcp on eth0: 2.9 GB/s, latency 5.3 us, overhead 50 us\n", text)
        why = gyre("--file", path, "--hosts", "2", "--why", "core0", "1/core0")[1]
        self.assertRegex(why, r"(?m)^  tcp +taken +by eth0 to eth0, 2.9 GB/s \(by UCX\)$")
        nodes = json.loads(gyre("--file", path, "--json")[1])["nodes"]
        tcp = [one for node in nodes for one in node.get("ucx", []) if node["kind"] == "port"]
        self.assertEqual(tcp, [{"transport": "tcp", "device": "eth0",
                                "dedicated_gigabytes_per_s": 0.0, "shared_gigabytes_per_s": 2.9,
                                "latency_us": 5.3, "latency_per_endpoint_us": None,
                                "overhead_us": 50.0}])
        again = self.file(gyre("--file", path, "--export", "hwloc")[1])
        self.assertEqual(gyre("--diff", path, again), (0, "", ""))
        self.assertEqual(gyre("--file", again)[1], text)

    def test_paths_say_what_lies_between(self):
        path = self.file(SMALL)
        for ends, first in ((("gpu0", "gpu1"), "NVL, 371 GB/s"),
                            (("gpu0", "mlx5_0"), "PIX, 31.5 GB/s"),
                            (("0000:03:00.0", "numa0"), "PHB, 31.5 GB/s")):
            code, text, error = gyre("--file", path, "--path", *ends)
            self.assertEqual((code, error, text.split("\n")[0]), (0, "", first))

    def test_rings_and_trees_are_shown_with_their_reason(self):
        path = self.file(SMALL)
        code, text, error = gyre("--file", path, "--rings", "--trees")
        self.assertEqual((code, error), (0, ""))
        lines = text.split("\n")
        self.assertEqual(lines[0], "ranks 0 to 1: gpu0 gpu1")
        self.assertRegex(lines[1], r"^7 rings of 52\.97 GB/s, 370\.8 GB/s in all; "
                                   r"GPU 0000:02:00\.0 to GPU 0000:03:00\.0 is passed 7 times")
        self.assertEqual(lines[2], "  ring 0: 0 1")
        self.assertIn("  tree 0: 0 1", lines)
        few = gyre("--file", path, "--rings", "--channels", "3")[1].split("\n")
        self.assertEqual(sum(line.startswith("  ring ") for line in few), 3)
        two = gyre("--file", path, "--rings", "--trees", "--hosts", "2")[1]
        self.assertIn("2 hosts, ranks 0 to 1 on the first: gpu0 gpu1\n", two)
        self.assertRegex(two, r"  ring 0: \d \d \(mlx5_0 to mlx5_0\) \d \d \(mlx5_0 to mlx5_0\)\n")
        self.assertRegex(two, r"  tree 0: \d \d; under \d \(mlx5_0 to mlx5_0\): \d \d\n")

    def test_json_has_the_machine_and_the_searches(self):
        path = self.file(SMALL)
        made = json.loads(gyre("--file", path, "--json", "--rings", "--trees", "--hosts", "2")[1])
        self.assertEqual(made["schema"], "gyre-topo-1")
        kinds = [node["kind"] for node in made["nodes"]]
        self.assertEqual(kinds, ["host", "NUMA node", "PCIe switch", "GPU", "GPU", "NIC", "port"])
        self.assertEqual([node["parent"] for node in made["nodes"]], [-1, 0, 1, 2, 2, 2, 5])
        self.assertEqual(made["links"][0]["lanes"], 18)
        self.assertEqual([one["rank"] for one in made["hosts"][1]["ranks"]], [2, 3])
        for pattern in ("rings", "trees"):
            found = made[pattern]
            self.assertLessEqual(found["gigabytes_per_s"], found["bound_gigabytes_per_s"])
            for channel in found["channels"]:
                self.assertEqual(sorted(channel["order"]), [0, 1, 2, 3])
                self.assertEqual(channel["crossings"][0]["from_port"], 6)
        self.assertEqual(made["trees"]["channels"][0]["parents"].count(-1), 1)
        alone = json.loads(gyre("--file", path, "--json")[1])
        self.assertNotIn("rings", alone)
        self.assertNotIn("hosts", alone)

    def test_a_picture_is_written(self):
        picture = os.path.join(self.folder.name, "machine.svg")
        done = gyre("--file", self.file(SMALL), "--rings", "--svg", picture)
        self.assertEqual(done, (0, "", ""))
        root = xml.parse(picture).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        classes = [part.get("class") for part in root]
        self.assertEqual((classes.count("GPU"), classes.count("ring")), (2, 1))
        self.assertEqual(gyre("--svg", picture), (0, "", ""))

    def test_the_difference_of_two_files_is_shown(self):
        path = self.file(SMALL)
        self.assertEqual(gyre("--diff", path, path), (0, "", ""))
        other = os.path.join(self.folder.name, "other.xml")
        with open(other, "w", encoding="utf-8") as file:
            file.write(SMALL.replace("400000", "200000"))
        code, text, error = gyre("--diff", path, other)
        self.assertEqual((code, error), (0, ""))
        self.assertEqual([line for line in text.split("\n") if line[:1] in "+-" and line],
                         ["-         port mlx5_0: protocol not known, up, verbs, 50 GB/s",
                          "+         port mlx5_0: protocol not known, up, verbs, 25 GB/s"])

    def test_wrong_words_and_files_are_refused(self):
        path = self.file(SMALL)
        broken = os.path.join(self.folder.name, "broken.xml")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("<system version=\"1\">\n<cpu affinity=\"xyz\"/></system>")
        for words, code, said in (
                (("--file", "/nowhere"), 1, "/nowhere"),
                (("--file", broken), 2, "line 2, <cpu>: \"xyz\" is no mask"),
                (("--file", path, "--path", "gpu0", "gpu9"), 2, "there is no \"gpu9\" here"),
                (("--file", path, "--why", "gpu0"), 2, "--why takes the places of two ranks"),
                (("--file", path, "--why", "gpu0", "1/gpu1"), 2, "hosts are 0 to 0"),
                (("--file", path, "--why", "gpu0", "mlx5_0"), 2, "computes nothing"),
                (("--file", path, "--path", "gpu0"), 2, "--path takes two ends"),
                (("--diff", path), 2, "--diff takes two files"),
                (("--diff", path, "/nowhere"), 1, "/nowhere"),
                (("--file", path, "--hosts", "0"), 2, "--hosts"),
                (("--file", path, "--rings", "--channels", "65"), 2, "--channels"),
                (("--file", path, "--trees", "--hosts", "2", "--channels", "1"), 2, "in pairs"),
                (("--file", path, "--svg", "/nowhere/a.svg"), 2, "cannot write /nowhere/a.svg"),
                (("--file", self.file(SMALL.replace("<net ", "<nut ")), "--rings", "--hosts", "2"),
                 2, "has no port that is up"),
                (("--export", "json"), 2, "json"), (("--flie", path), 2, "did you mean --file?")):
            with self.subTest(words=words):
                found, text, error = gyre(*words)
                self.assertEqual((found, text), (code, ""))
                self.assertIn(said, error)


if __name__ == "__main__":
    unittest.main()
