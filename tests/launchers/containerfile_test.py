"""The steps of docs/examples/Containerfile, read from it and run in roots that debootstrap makes.
The last stage's command trains. An instruction that is not known here fails."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import jobs

sys.path[:0] = [os.path.join(jobs.ROOT, "tools"), os.path.join(jobs.ROOT, "tests", "house")]
import distributions  # noqa: E402
import tree  # noqa: E402

PATH = os.path.join("docs", "examples", "Containerfile")
FOLDER = os.path.join(os.path.dirname(distributions.ROOTS), "containers")
SUITES = {"debian:12-slim": "bookworm"}
MINUTES = 30


def instructions(text):
    """[(instruction, the rest)], with continued lines joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [tuple(line.split(None, 1)) for line in lines.replace("\\\n", " ").splitlines() if line]


class Stage:
    """A root in which instructions are followed."""

    def __init__(self, image, name):
        self.root = os.path.join(FOLDER, f"stage-{name}")
        self.variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                          "DEBIAN_FRONTEND": "noninteractive", **distributions.proxies()}
        self.workdir = "/"
        self.command = None
        shutil.rmtree(self.root, ignore_errors=True)
        subprocess.run(["cp", "-a", base(image), self.root], check=True)

    def path(self, inside):
        return os.path.join(self.root, os.path.normpath(
            os.path.join(self.workdir, inside)).lstrip("/"))

    def run(self, command):
        """What it says; fails with that if it fails."""
        enter = distributions.ENTER.replace("cd /gyre", f"cd {self.workdir}")
        assert enter != distributions.ENTER or self.workdir == "/gyre"
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", enter, self.root,
             *command], env=self.variables, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60 * MINUTES, check=False)
        if done.returncode != 0:
            raise AssertionError(f"exit code {done.returncode}: {command}\n{done.stdout[-4000:]}")
        return done.stdout

    def follow(self, word, rest, stages):
        if word == "RUN":
            self.run(["sh", "-c", rest])
        elif word == "WORKDIR":
            self.workdir = rest
            os.makedirs(self.path("."), exist_ok=True)
        elif word == "ENV":
            name, value = rest.split("=", 1)
            self.variables[name] = value.replace("$PATH", self.variables["PATH"])
        elif word == "CMD":
            self.command = json.loads(rest)
        elif word == "COPY" and rest.startswith("--from="):
            stage, source, target = rest.removeprefix("--from=").split()
            os.makedirs(os.path.dirname(self.path(target)), exist_ok=True)
            shutil.copytree(stages[stage].path(source), self.path(target), symlinks=True)
        elif (word, rest) == ("COPY", ". ."):
            for path in tree.files(jobs.ROOT):
                os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
                shutil.copy2(os.path.join(jobs.ROOT, path), self.path(path))
        else:
            raise ValueError(f"{PATH}: {word} {rest} is not known here")


def base(image):
    """A root as the image is, made once."""
    place = os.path.join(FOLDER, image.replace(":", "-"))
    if os.path.isdir(place):
        return place
    part = place + ".part"
    shutil.rmtree(part, ignore_errors=True)
    mirror = distributions.mirror_of_apt(distributions.asked(
        "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"))
    subprocess.run(["debootstrap", "--variant=minbase", SUITES[image], part, mirror], check=True,
                   env={**os.environ, **distributions.proxies()}, timeout=60 * MINUTES,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(part, "etc", "apt", "apt.conf.d", "90-as-outside"), "w",
              encoding="utf-8") as settings:
        settings.write(distributions.dates_of_apt(distributions.asked("apt-config", "dump")))
    os.rename(part, place)
    return place


@unittest.skipIf(distributions.why_not(), distributions.why_not())
class Containerfile(unittest.TestCase):
    def test_its_steps_make_an_image_whose_command_trains(self):
        os.makedirs(FOLDER, exist_ok=True)
        stages = {}
        for word, rest in instructions(jobs.page(PATH)):
            print(f"{word} {' '.join(rest.split())[:80]}", flush=True)
            if word == "FROM":
                image, *name = re.split(r"\s+AS\s+", rest)
                stage = Stage(image, name[0] if name else "last")
                stages[name[0] if name else "last"] = stage
                self.addCleanup(shutil.rmtree, stage.root, ignore_errors=True)
            else:
                stage.follow(word, rest, stages)
        last = stages["last"]
        self.assertIn("parameters: ", last.run(last.command))
        # What Kubernetes' manifest starts is in the image.
        command = re.search(r'command: \["(.*)"\]', jobs.page("docs/examples/kubernetes/job.yaml"))
        self.assertTrue(os.access(last.path(command[1]), os.X_OK), command[1])

    def test_unknown_instructions_are_errors(self):
        self.assertEqual(instructions("# a\nRUN a \\\n  b\n\nCMD []\n"),
                         [("RUN", "a    b"), ("CMD", "[]")])
        stage = Stage.__new__(Stage)
        for word, rest in (("ADD", "a b"), ("COPY", "a b"), ("VOLUME", "/a")):
            with self.assertRaises(ValueError):
                stage.follow(word, rest, {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
