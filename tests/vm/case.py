"""The cases of a guest: a file in cases/ each, which a guest's bash reads after functions.sh. It
opens with a comment that says what it shows; a line "#: WORD VALUE" says what it takes."""
import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
WORDS = {"seconds", "hosts", "short", "programs", "rows"}


class Case:
    """seconds: its limit. hosts: 2 if it runs on each of two machines at once. is_short: it is of
    the set for every change. programs: of the build folder. rows: a table of covering.py."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        lines = re.findall(r"^#: (\w+) *(.*)$", text, re.M)
        said = dict(lines)
        if unknown := set(said) - WORDS:
            raise ValueError(f"case {name}: there is no {', '.join(sorted(unknown))}")
        self.seconds = int(said["seconds"])
        self.hosts = int(said.get("hosts", "1"))
        self.is_short = "short" in said
        self.programs = [path for word, value in lines if word == "programs"
                         for path in value.split()]
        self.rows = said.get("rows")

    def about(self):
        """Its first sentence."""
        lines = re.match(r"(?:# .*\n)+", self.text)[0].splitlines()
        return " ".join(line[2:] for line in lines).split(". ")[0].rstrip(".")


def all_cases(folder=FOLDER):
    found = []
    for entry in sorted(os.listdir(folder)):
        with open(os.path.join(folder, entry), encoding="utf-8") as file:
            found.append(Case(entry.removesuffix(".sh"), file.read()))
    return found


def command(text, seconds, hosts, programs):
    """A shell's command as a case."""
    return Case("command", f"# A command.\n#: seconds {seconds}\n#: hosts {hosts}\n"
                           f"#: programs {' '.join(programs)}\n{text}\n")
