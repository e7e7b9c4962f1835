#!/usr/bin/env python3
"""Writes described machines as topology files: machines.py FOLDER, or machines.py NAME > FILE.

Machines with GPUs are NCCL's XML, those without are hwloc's. A comment beside each figure says
where it is from. Bandwidths of PCIe, NVLink and sockets follow from rates and models
(lib/topology/speeds.cc).

  [BasePOD]  docs.nvidia.com/dgx-basepod, Core Components: DGX H100, H200 and B200
  [SuperPOD] NVIDIA DGX SuperPOD Reference Architecture RA-09950-001: DGX A100
  [MNNVL]    docs.nvidia.com/multi-node-nvlink-systems, Multi-Node Tuning Guide, System
  [EFA]      aws/aws-ofi-nccl, topology/p5.48xl-topo.xml
  [NCCL]     NVIDIA/nccl 2.30, src/graph/topo.h
  [DGX-1]    NVIDIA/nccl, issue 671: the topology file of a DGX-1 with four of its GPUs
  [AMD]      AMD EPYC 9004 Series Architecture Overview, 58015
  [Intel]    ark.intel.com: Xeon Platinum 8480+; 4th Gen Xeon Scalable technical overview: SNC4
"""
import os
import sys
import xml.etree.ElementTree as xml

# Processors as NCCL's files name them: vendor, family, model (CPUID).
BROADWELL = ("GenuineIntel", 6, 79)
ROME = ("AuthenticAMD", 23, 49)
MILAN = ("AuthenticAMD", 25, 1)
GENOA = ("AuthenticAMD", 25, 17)
CASCADE_LAKE = ("GenuineIntel", 6, 85)
SAPPHIRE_RAPIDS = ("GenuineIntel", 6, 143)
EMERALD_RAPIDS = ("GenuineIntel", 6, 207)
GRACE = ("ARM", 0, 0)

# GT/s of a PCIe generation's lane (PCI Express Base Specification 6.0).
RATES = {3: "8.0", 4: "16.0", 5: "32.0"}
TO_SWITCH = ("ffff:ff:ff.0", "0x068000")


class NcclFile:
    """A machine with GPUs. Bus ids are made up: a number for each device in order."""

    def __init__(self, name):
        self.root = xml.Element("system", version="1", name=name)
        self.buses = self.gpus = self.ports = self.processors = 0

    def cpu(self, model, cores):
        mask = ((1 << cores) - 1) << self.processors
        digits = f"{mask:x}".zfill(-(-(self.processors + cores) // 32) * 8)
        number = len(self.root)
        self.processors += cores
        return xml.SubElement(self.root, "cpu", numaid=str(number), vendor=model[0],
                              affinity=",".join(digits[i:i + 8] for i in range(0, len(digits), 8)),
                              familyid=str(model[1]), modelid=str(model[2]))

    def pci(self, parent, kind, generation, lanes=16):
        self.buses += 1
        bus_id = f"{self.buses >> 8:04x}:{self.buses & 255:02x}:00.0"
        return xml.SubElement(parent, "pci", {"busid": bus_id, "class": kind,
                                              "link_speed": f"{RATES[generation]} GT/s PCIe",
                                              "link_width": str(lanes)})

    def switch(self, parent, generation):
        return self.pci(parent, "0x060400", generation)

    def gpu(self, parent, generation, capability, nvlinks=(), c2c=None):
        """nvlinks: (bus id, class of the other end, links); c2c: 10^6 B/s."""
        device = self.pci(parent, "0x030200", generation)
        gpu = xml.SubElement(device, "gpu", dev=str(self.gpus), sm=str(capability), gdr="1")
        self.gpus += 1
        for target, target_class, count in nvlinks:
            xml.SubElement(gpu, "nvlink", target=target, count=str(count), tclass=target_class)
        if c2c:
            xml.SubElement(gpu, "c2c", bw=str(c2c), count="1")
        return device

    def nic(self, parent, generation, megabits, lanes=16, ports=1, direct=1):
        nic = xml.SubElement(self.pci(parent, "0x020000", generation, lanes), "nic")
        for port in range(ports):
            xml.SubElement(nic, "net", name=f"mlx5_{self.ports}", dev=str(self.ports),
                           speed=str(megabits), port=str(port + 1), guid=hex(self.ports + 1),
                           gdr=str(direct))
            self.ports += 1

    def skip_nic(self):
        """The next devices are named as if there were one."""
        self.buses += 1
        self.ports += 1

    def text(self):
        xml.indent(self.root)
        return xml.tostring(self.root, encoding="unicode") + "\n"


class HwlocFile:
    """A machine of processors. packages: model, and NUMA nodes as lists of cores in each L3."""

    def __init__(self, name, packages, model, l3_bytes, nics=()):
        """nics: 10^9 B/s of a port on each of the first packages."""
        self.cores = self.caches = self.numa = 0
        total = sum(cores for package in packages for numa in package for cores in numa)
        root = xml.Element("topology", version="2.0")
        machine = self.place(root, "Machine", 0, total)
        xml.SubElement(machine, "info", name="HostName", value=name)
        for number, numa_nodes in enumerate(packages):
            size = sum(map(sum, numa_nodes))
            package = self.place(machine, "Package", self.cores, size, number)
            for key, value in zip(("CPUVendor", "CPUFamilyNumber", "CPUModelNumber"), model):
                xml.SubElement(package, "info", name=key, value=str(value))
            for caches in numa_nodes:
                self.numa_node(package, caches, l3_bytes, grouped=len(numa_nodes) > 1)
            if number < len(nics):
                self.nic(package, number, nics[number])
        self.root = root

    @staticmethod
    def mask(first, count):
        digits = f"{((1 << count) - 1) << first:x}".zfill(-(-(first + count) // 32) * 8)
        return ",".join("0x" + digits[i:i + 8] for i in range(0, len(digits), 8))

    def place(self, parent, kind, first, count, number=None):
        element = xml.SubElement(parent, "object", type=kind, cpuset=self.mask(first, count))
        if number is not None:
            element.set("os_index", str(number))
        return element

    def numa_node(self, package, caches, l3_bytes, grouped):
        size = sum(caches)
        inside = self.place(package, "Group", self.cores, size) if grouped else package
        self.place(inside, "NUMANode", self.cores, size, self.numa)
        self.numa += 1
        for cores in caches:
            cache = self.place(inside, "L3Cache", self.cores, cores)
            cache.set("depth", "3")
            cache.set("cache_size", str(l3_bytes))
            for _ in range(cores):
                self.place(cache, "Core", self.cores, 1, self.cores)
                self.cores += 1

    @staticmethod
    def nic(package, number, gigabytes_per_s):
        device = xml.SubElement(package, "object", type="PCIDev", pci_type="0200 [15b3:1021]",
                                pci_busid=f"0000:{number + 1:02x}:00.0",
                                pci_link_speed="31.508")  # PCIe 4.0, 16 lanes
        port = xml.SubElement(device, "object", type="OSDev", name=f"eth{number}", osdev_type="2")
        xml.SubElement(port, "info", name="GyrePort",
                       value=f"protocol=ethernet up=1 mtu=9000 gigabytes_per_s={gigabytes_per_s}")

    text = NcclFile.text


def with_nv_switches(name, model, cores, capability, links, generation, megabits):
    """Two sockets, and below each four switches with a GPU and its NIC [BasePOD]."""
    file = NcclFile(name)
    for _ in range(2):
        cpu = file.cpu(model, cores)
        for _ in range(4):
            switch = file.switch(cpu, generation)
            file.gpu(switch, generation, capability, [(*TO_SWITCH, links)])
            file.nic(switch, generation, megabits)
    return file


def dgx_a100():
    # [SuperPOD]: 2 EPYC 7742 (64 cores), of 4 NUMA nodes each; 8 GPUs, in pairs on 4 NUMA nodes; 8
    # ConnectX-6 of 200 Gb/s; 12 NVLinks of each GPU to 6 NVSwitches. NCCL's files show one switch.
    file = NcclFile("dgx_a100")
    for numa in range(8):
        cpu = file.cpu(ROME, 16)
        if numa % 2 == 0:
            continue
        switch = file.switch(cpu, 4)
        for _ in range(2):
            file.gpu(switch, 4, 80, [(*TO_SWITCH, 12)])
            file.nic(switch, 4, 200_000)
    return file


def dgx1_v100():
    # [DGX-1]: 2 Xeon E5-2698 v4 (20 cores), below each two switches of PCIe 3.0 with two GPUs and a
    # NIC of 100 Gb/s. Six NVLinks of each GPU to others, one or two to each: two rings over four
    # GPUs, and a link between GPUs of the same place in both.
    four = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    others = {(a + 4, b + 4): count for (a, b), count in four.items()}
    between = {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
    nvlinks = four | others | between
    nvlinks |= {(b, a): count for (a, b), count in nvlinks.items()}
    file = NcclFile("dgx1_v100")
    buses = [f"0000:{4 * (gpu // 2) + gpu % 2 + 2:02x}:00.0" for gpu in range(8)]
    for gpu in range(8):
        if gpu % 4 == 0:
            cpu = file.cpu(BROADWELL, 20)
        if gpu % 2 == 0:
            switch = file.switch(cpu, 3)
        file.gpu(switch, 3, 70, [(buses[other], "0x030200", nvlinks[gpu, other])
                                 for other in range(8) if (gpu, other) in nvlinks])
        if gpu % 2 == 1:
            file.nic(switch, 3, 100_000)
    return file


def hgx_h100():
    # [BasePOD]: 2 Xeon 8480C (56 cores), 4 NVSwitches, 8 ConnectX-7 of 400 Gb/s. 18 NVLinks [NCCL].
    return with_nv_switches("hgx_h100", SAPPHIRE_RAPIDS, 56, 90, 18, 5, 400_000)


def hgx_h200():
    # [BasePOD]: as with H100, but for the memory of the GPUs.
    return with_nv_switches("hgx_h200", SAPPHIRE_RAPIDS, 56, 90, 18, 5, 400_000)


def hgx_b200():
    # [BasePOD]: 2 Xeon 8570 (56 cores), 8 ConnectX-7 of 400 Gb/s. 18 NVLinks, twice as fast [NCCL].
    return with_nv_switches("hgx_b200", EMERALD_RAPIDS, 56, 100, 18, 5, 400_000)


def gb200_nvl72():
    # [MNNVL]: 18 trays of 2 Grace (72 cores) and 4 GPUs, one NVLink domain; a ConnectX-7 of 400
    # Gb/s for each GPU. A Grace has 900 GB/s by C2C in both directions together, for two GPUs.
    file = NcclFile("gb200_nvl72")
    for _ in range(36):
        cpu = file.cpu(GRACE, 72)
        for _ in range(2):
            file.gpu(cpu, 5, 100, [(*TO_SWITCH, 18)], c2c=225_000)
            file.nic(cpu, 5, 400_000)
    return file


def pcie_8():
    # A server of 8 GPUs on PCIe 4.0 without NVLink: 2 Xeon 8280, below each two switches with two
    # GPUs, and a NIC of 100 Gb/s on one of them (as NVIDIA's qualified systems for A40).
    file = NcclFile("pcie_8")
    for _ in range(2):
        cpu = file.cpu(CASCADE_LAKE, 28)
        for switch_number in range(2):
            switch = file.switch(cpu, 4)
            for _ in range(2):
                file.gpu(switch, 4, 86)
            if switch_number == 0:
                file.nic(switch, 4, 100_000)
    return file


def cloud_32_nics():
    # [EFA]: below each of 2 sockets four switches, with a GPU and four NICs. The instance has 8
    # H100 and 32 NICs of 100 Gb/s, and EPYC 7R13 (Milan, 48 cores).
    file = NcclFile("cloud_32_nics")
    for _ in range(2):
        cpu = file.cpu(MILAN, 48)
        for _ in range(4):
            switch = file.switch(cpu, 5)
            file.gpu(switch, 5, 90, [(*TO_SWITCH, 18)])
            for _ in range(4):
                file.nic(switch, 4, 100_000)
    return file


def workstation_2():
    # Two RTX 3090 (sm_86) with an NVLink bridge of 4 links (NVIDIA Ampere GA102 whitepaper), each
    # in a slot of PCIe 4.0; a NIC of 10 Gb/s on 4 lanes of PCIe 3.0.
    file = NcclFile("workstation_2")
    cpu = file.cpu(MILAN, 32)
    buses = [f"0000:{bus:02x}:00.0" for bus in (1, 2)]
    for other in reversed(buses):
        file.gpu(cpu, 4, 86, [(other, "0x030200", 4)])
    file.nic(cpu, 3, 10_000, lanes=4, direct=0)
    return file


def broken_nic():
    # hgx_h100 with two faults: the NIC beside GPU 2 is not there, and the one beside GPU 5 came up
    # with 200 Gb/s on 8 lanes.
    file = NcclFile("broken_nic")
    for number in range(8):
        if number % 4 == 0:
            cpu = file.cpu(SAPPHIRE_RAPIDS, 56)
        switch = file.switch(cpu, 5)
        file.gpu(switch, 5, 90, [(*TO_SWITCH, 18)])
        if number == 5:
            file.nic(switch, 5, 200_000, lanes=8)
        elif number != 2:
            file.nic(switch, 5, 400_000)
        else:
            file.skip_nic()
    return file


def epyc_9654():
    # [AMD]: 12 CCDs of 8 cores with an L3 of 32 MiB; one NUMA node (NPS1). A NIC of 100 Gb/s.
    return HwlocFile("epyc_9654", [[[8] * 12]], GENOA, 32 << 20, [12.5])


def xeon_8480_pair():
    # [Intel]: 56 cores and an L3 of 105 MiB in each of two sockets. A NIC of 100 Gb/s.
    return HwlocFile("xeon_8480_pair", [[[56]]] * 2, SAPPHIRE_RAPIDS, 105 << 20, [12.5])


def xeon_8480_snc4():
    # [Intel]: the same in four clusters each, of 14 cores and a quarter of the L3; a NIC a socket.
    return HwlocFile("xeon_8480_snc4", [[[14]] * 4] * 2, SAPPHIRE_RAPIDS, 105 << 18, [12.5, 12.5])


def epyc_9654_nps4():
    # [AMD]: two sockets with four NUMA nodes each, of three CCDs (NPS4); a NIC of 200 Gb/s on each.
    return HwlocFile("epyc_9654_nps4", [[[8] * 3] * 4] * 2, GENOA, 32 << 20, [25, 25])


MACHINES = {make.__name__: make for make in (
    broken_nic, cloud_32_nics, dgx1_v100, dgx_a100, epyc_9654, epyc_9654_nps4, gb200_nvl72,
    hgx_b200, hgx_h100, hgx_h200, pcie_8, workstation_2, xeon_8480_pair, xeon_8480_snc4)}

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] in MACHINES:
        sys.stdout.write(MACHINES[sys.argv[1]]().text())
    else:
        for machine, make in MACHINES.items():
            with open(os.path.join(sys.argv[1], machine + ".xml"), "w", encoding="utf-8") as out:
                out.write(make().text())
