"""The sources are formatted by clang-format. Skipped (exit code 77) unless the project's version of
clang-format is installed: other versions differ in details."""
import re
import shutil
import subprocess
import sys

import tree

VERSION = "14"


def right_clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
            if re.search(rf"version {VERSION}\.", said):
                return name
    return None


if __name__ == "__main__":
    top = tree.root_from_arguments()
    program = right_clang_format()
    if program is None:
        print(f"no clang-format {VERSION} here")
        sys.exit(77)
    done = subprocess.run([program, "--dry-run", "-Werror", "--ferror-limit=1", *tree.sources(top)],
                          cwd=top, capture_output=True, text=True)
    named = sorted(set(re.findall(r"^([^\s:]+):\d+:\d+: error", done.stderr, re.M)))
    tree.report([f"{path}: not as clang-format leaves it (tools/dev format)" for path in named] or
                ([done.stderr] if done.returncode != 0 else []))
