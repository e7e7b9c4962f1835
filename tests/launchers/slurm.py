"""A Slurm of two nodes, on the hosts of a site: its daemons, key, socket and settings are in the
site's folder, and end with it."""
import os
import subprocess
import time

import sites
import two_hosts

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
START_S = 20
SETTINGS = """
ClusterName=gyre
SlurmctldHost={names[0]}({addresses[0]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MailProg=/bin/true
TmpFS={folder}/tmp-%n
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/linear
SlurmdParameters=config_overrides
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    def __init__(self, site, cpus):
        self.site = site
        self.daemons = []
        nodes = "\n".join(f"NodeName={name} NodeAddr={address} CPUs={cpus}" for
                          name, address in zip(sites.NAMES, two_hosts.ADDRESSES))
        self.settings = site.write("slurm.conf", SETTINGS.format(
            names=sites.NAMES, addresses=two_hosts.ADDRESSES, folder=site.folder, nodes=nodes))
        self.environment = {**os.environ, "SLURM_CONF": self.settings}
        try:
            self.start()
        except BaseException:
            self.end()
            raise

    def start(self):
        for name in sites.NAMES:
            os.mkdir(os.path.join(self.site.folder, f"tmp-{name}"))
        key = self.site.write("munge.key", os.urandom(64).hex(), 0o600)
        socket = os.path.join(self.site.folder, "munge")
        # One for both hosts: a socket of the file system, which both see.
        self.daemon(0, "munged", "--foreground", "--force", f"--socket={socket}",
                    f"--key-file={key}", *(f"--{name}-file={socket}.{name}"
                                           for name in ("pid", "log", "seed")))
        self.wait_until(lambda: os.path.exists(socket), "munged opens its socket")
        self.daemon(0, "slurmctld", "-D")
        for host, name in enumerate(sites.NAMES):
            self.daemon(host, "slurmd", "-D", "-N", name)
        self.wait_until(lambda: self.call(["sinfo", "-h", "-o", "%D %T"]) == "2 idle",
                        "both nodes are idle")

    def daemon(self, host, name, *arguments):
        with open(os.path.join(self.site.folder, f"{name}-{host}.log"), "wb") as log:
            self.daemons.append(subprocess.Popen(
                self.site.on(host, [name, *arguments]), env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def call(self, command):
        return subprocess.run(self.site.on(0, command), env=self.environment, text=True,
                              capture_output=True, check=False, timeout=START_S).stdout.strip()

    def wait_until(self, holds, what):
        end = time.monotonic() + START_S
        while not holds():
            if time.monotonic() > end:
                raise OSError(f"not after {START_S} s: {what}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self, most=2000):
        texts = []
        for name in sorted(os.listdir(self.site.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.site.folder, name), encoding="utf-8",
                          errors="replace") as file:
                    texts.append(f"-- {name}\n{file.read()[-most:]}")
        return "\n".join(texts)

    def end(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
