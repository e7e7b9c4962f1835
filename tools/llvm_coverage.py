"""Asks LLVM's tools about programs that were built with -fprofile-instr-generate and
-fcoverage-mapping, and about the profiles that their runs have left."""
import glob
import json
import os
import subprocess

RELEASE = 14


def tool(name):
    """What a tool of LLVM said, given its arguments."""
    def run(*arguments, text=None):
        return subprocess.run([f"{name}-{RELEASE}", *arguments], input=text, check=True,
                              capture_output=True, text=True).stdout
    return run


def merge_profiles(build):
    """All of BUILD/profiles, as one file."""
    merged = os.path.join(build, "all.profdata")
    tool("llvm-profdata")("merge", "-sparse", *glob.glob(f"{build}/profiles/*.profraw"), "-o",
                          merged)
    return merged


def export(programs, profile, *options):
    objects = [word for program in programs[1:] for word in ("-object", program)]
    return tool("llvm-cov")("export", *options, f"-instr-profile={profile}", programs[0], *objects)


def functions(programs, profile):
    """Each function with its regions: llvm-cov's own words."""
    return json.loads(export(programs, profile, "-skip-expansions"))["data"][0]["functions"]
