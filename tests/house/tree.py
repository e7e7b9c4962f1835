"""The project's files as the house checks see them: what git tracks or would track."""
import os
import re
import subprocess
import sys

SOURCE_ENDINGS = (".cc", ".c", ".h", ".cu", ".cuh")
HEADER_ENDINGS = (".h", ".cuh")


def root_from_arguments():
    """The project's folder: the first argument, or where this file lies."""
    if len(sys.argv) > 1:
        return sys.argv[1]
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def listed_by_git(root):
    if not os.path.exists(os.path.join(root, ".git")):
        return None
    try:
        done = subprocess.run(
            ["git", "-c", f"safe.directory={os.path.abspath(root)}", "-C", root, "ls-files",
             "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def walked(root):
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(("build", ".", "__"))]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return paths


def files(root):
    """Paths from the root, sorted; those that exist."""
    listed = listed_by_git(root)
    paths = walked(root) if listed is None else listed
    return sorted(p for p in paths if os.path.isfile(os.path.join(root, p)))


def sources(root):
    return [p for p in files(root) if p.endswith(SOURCE_ENDINGS)]


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def without_comments_and_texts(source):
    """C++ with comments, string and character literals blanked; lines stay where they were."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                         r"|'(?:\\.|[^'\\\n])+'", re.S)

    def blank(match):
        text = match.group(0)
        if text.startswith("'") and re.match(r"\w", source[match.start() - 1:match.start()]):
            return text  # a digit separator, as in 1'000
        return "\n" * text.count("\n") if text.startswith("/") else '""' + "\n" * text.count("\n")

    return pattern.sub(blank, source)


def report(violations):
    """Prints what was found and ends the process: 1 if anything was."""
    for violation in violations:
        print(violation)
    print(f"{len(violations)} violations")
    sys.exit(1 if violations else 0)
