"""Brings PyPI's training frameworks, in a virtual environment on top of the Python that runs this,
which has PyTorch. Prints the environment's bin folder. If pip cannot bring a package, a file of its
name in the folder `absent` says why, and its tests skip themselves."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

PACKAGES = ("accelerate", "transformers", "lightning", "deepspeed", "ray[train]")
DONE = "complete"
MINUTES = 15


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def make(folder):
    """The environment, which has all that this Python has."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    # Of a Python that lies elsewhere than it was built for, venv takes the link to it for its home.
    home = pathlib.Path(sys.executable).resolve().parent
    config = folder / "pyvenv.cfg"
    config.write_text("".join(f"home = {home}\n" if line.startswith("home") else line
                              for line in config.read_text().splitlines(keepends=True)))
    (site,) = folder.glob("lib/python*/site-packages")
    below = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site / "below.pth").write_text("\n".join(below or [sysconfig.get_path("purelib")]) + "\n")


def bring(folder):
    (folder / "absent").mkdir()
    for package in PACKAGES:
        say(f"PyPI: installing {package}")
        # DeepSpeed comes as sources, and asks for PyTorch while it is installed.
        done = subprocess.run(
            [folder / "bin/python", "-m", "pip", "install", "--quiet", "--no-build-isolation",
             "--disable-pip-version-check", "--root-user-action=ignore", package],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=60 * MINUTES)
        if done.returncode != 0:
            name = package.split("[", maxsplit=1)[0]
            (folder / "absent" / name).write_text(done.stderr[-2000:])
            say(f"pip could not install {package}: {done.stderr[-400:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder.absolute()
    if not (folder / DONE).exists():
        make(folder)
        bring(folder)
        # What was absent may be there next time.
        if not os.listdir(folder / "absent"):
            (folder / DONE).touch()
    print(folder / "bin")


if __name__ == "__main__":
    main()
