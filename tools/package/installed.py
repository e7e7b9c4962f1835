"""Prints what Ninja has to make for `meson install`, and nothing that stays in the build folder.
installed.py BUILD_FOLDER"""

import json
import os
import subprocess
import sys


def targets(build_folder):
    said = subprocess.run(["meson", "introspect", "--targets", str(build_folder)], text=True,
                          check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
    return [os.path.relpath(name, os.path.realpath(build_folder)) for target in json.loads(said)
            if target["installed"] for name in target["filename"]]


if __name__ == "__main__":
    print(*targets(sys.argv[1]))
