#!/usr/bin/env python3
"""gyre topo: this host and described ones, as text and as files, and what it refuses."""
import os
import subprocess
import sys
import tempfile
import unittest

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


def gyre(*words):
    done = subprocess.run([GYRE, "topo", *words], capture_output=True, text=True, timeout=60,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class Topo(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, text):
        path = os.path.join(self.folder.name, "machine.xml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

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

    def test_paths_say_what_lies_between(self):
        path = self.file(SMALL)
        for ends, first in ((("gpu0", "gpu1"), "NVL, 371 GB/s"),
                            (("gpu0", "mlx5_0"), "PIX, 31.5 GB/s"),
                            (("0000:03:00.0", "numa0"), "PHB, 31.5 GB/s")):
            code, text, error = gyre("--file", path, "--path", *ends)
            self.assertEqual((code, error, text.split("\n")[0]), (0, "", first))

    def test_wrong_words_and_files_are_refused(self):
        path = self.file(SMALL)
        broken = os.path.join(self.folder.name, "broken.xml")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("<system version=\"1\">\n<cpu affinity=\"xyz\"/></system>")
        for words, code, said in (
                (("--file", "/nowhere"), 1, "/nowhere"),
                (("--file", broken), 2, "line 2, <cpu>: \"xyz\" is no mask"),
                (("--file", path, "--path", "gpu0", "gpu9"), 2, "there is no \"gpu9\" here"),
                (("--file", path, "--path", "gpu0"), 2, "--path takes two ends"),
                (("--export", "json"), 2, "json"), (("--flie", path), 2, "did you mean --file?")):
            with self.subTest(words=words):
                found, text, error = gyre(*words)
                self.assertEqual((found, text), (code, ""))
                self.assertIn(said, error)


if __name__ == "__main__":
    unittest.main()
