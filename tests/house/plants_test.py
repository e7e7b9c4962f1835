"""Planted bugs (tests/campaign/plants) apply to the sources as they are now: one that does not
proves nothing any more. tests/campaign/plants.py builds and runs them."""
import os
import shutil
import subprocess
import sys

import tree

FOLDER = "tests/campaign/plants/"


def strayed(root):
    found = []
    top = os.path.abspath(root)
    # No repository that the tree may lie in is meant.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(top)}
    for path in tree.files(root):
        if not (path.startswith(FOLDER) and path.endswith(".patch")):
            continue
        done = subprocess.run(["git", "-c", f"safe.directory={top}", "apply", "--check", path],
                              cwd=root, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            why = done.stderr.strip().splitlines() or ["git apply gave no reason"]
            found.append(f"{path}: does not apply ({why[0]}); make it again: plants.py --take, or "
                         "by hand")
    return found


def main():
    root = tree.root_from_arguments()
    if shutil.which("git") is None:
        print("git is not installed")
        sys.exit(77)
    tree.report(strayed(root))


main()
