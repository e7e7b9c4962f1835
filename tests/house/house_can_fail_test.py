"""The house checks can fail: each one runs on a small tree that breaks one rule, and on one that
breaks none."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import docs_run_test  # noqa: E402
import english_test  # noqa: E402

TABLE = """# Architecture

| room | namespace | holds | may include |
|---|---|---|---|
| `include/gyre/` | – | the API | – |
| `lib/base/` | `gyre` | the ground | – |
| `lib/plan/` | `gyre::plan` | plans | – |
| `kernels/cpu/` | – | loops | `lib/plan/step.h` |
| `transports/*/` | – | ways | `lib/plan/` |
| `docs/examples/` | – | examples | `include/gyre/` alone |
| `tests/` | any | tests | any |
"""
GOOD = {
    "ARCHITECTURE.md": TABLE,
    "meson.build": "project('x')\n",
    "include/gyre/gyre.h": "/* api */\n#ifndef X\n#define X\nint gyre(void);\n#endif\n",
    "lib/base/units.h": "// units\n#pragma once\n#include <vector>\nnamespace gyre {}\n",
    "lib/plan/step.h": '// steps\n#pragma once\n#include "lib/base/units.h"\n',
    "lib/plan/plan.h": "// plans\n#pragma once\n",
    "lib/plan/plan.cc": '#include "lib/plan/plan.h"\nnamespace gyre::plan {}\n',
    "kernels/cpu/loop.cc": '// loops\n#include "lib/plan/step.h"\n',
    "transports/shm/shm.h": '// shm\n#pragma once\n#include "lib/plan/plan.h"\n',
    "docs/examples/job.h": "// job\n#pragma once\n#include <gyre/gyre.h>\n",
    "docs/examples/mesh.cc": '// mesh\n#include "job.h"\n',
    "tests/plan_test.cc": '// plans\n#include "transports/shm/shm.h"\n',
}


def function_of(lines):
    return "// f\nvoid f() {\n" + "  g();\n" * (lines - 2) + "}\n"


class House(unittest.TestCase):
    def run_check(self, check, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**GOOD, **changes}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w") as file:
                    file.write(text)
            done = subprocess.run([sys.executable, os.path.join(HERE, check), root],
                                  capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def accepted(self, check, changes):
        code, said = self.run_check(check, changes)
        if code == 77:
            self.skipTest(said)  # what it needs is not installed
        self.assertEqual(code, 0, said)

    def refused(self, check, changes, *texts):
        code, said = self.run_check(check, changes)
        self.assertEqual(code, 1, said)
        for text in texts:
            self.assertIn(text, said)

    def test_a_tree_in_order_passes(self):
        for check in ("rooms_test.py", "namespaces_test.py", "circles_test.py", "seams_test.py",
                      "shape_test.py", "names_test.py", "headers_test.py", "docs_test.py",
                      "english_test.py", "plants_test.py"):
            with self.subTest(check):
                self.accepted(check, {})

    def test_a_planted_bug_that_does_not_apply_is_found(self):
        path = "tests/campaign/plants/wrong.patch"
        plant = ("A bug.\ntests: plan_test\n\ndiff --git a/lib/plan/step.h b/lib/plan/step.h\n"
                 "--- a/lib/plan/step.h\n+++ b/lib/plan/step.h\n@@ -1,2 +1,2 @@\n-// {}\n"
                 "+// bugs\n #pragma once\n")
        self.accepted("plants_test.py", {path: plant.format("steps")})
        self.refused("plants_test.py", {path: plant.format("stairs")}, f"{path}:", "does not apply")

    def test_an_include_that_the_table_does_not_allow_is_found(self):
        def includes(path, target):
            self.refused("rooms_test.py", {path: f'// x\n#pragma once\n#include "{target}"\n'},
                         f"{path}:", target)

        includes("lib/base/units.h", "lib/plan/plan.h")
        includes("kernels/cpu/wide.h", "lib/plan/plan.h")
        includes("transports/tcp/tcp.h", "transports/shm/shm.h")
        includes("lib/plan/print.h", "include/gyre/gyre.h")
        includes("lib/plan/print.h", "plan.h")
        includes("docs/examples/x.h", "lib/base/units.h")
        self.refused("rooms_test.py", {"lib/plan/x.cc": "// x\n#include <gyre/gyre.h>\n"}, "x.cc")
        self.refused("rooms_test.py", {"lib/new/x.h": "// x\n#pragma once\n"}, "lies in no room")
        self.refused("rooms_test.py", {"ARCHITECTURE.md": TABLE + "| `lib/sim/` | – | x | – |\n"},
                     "there is no file in lib/sim/")
        self.refused("rooms_test.py", {"ARCHITECTURE.md": "no table\n"}, "no rooms table")

    def test_a_namespace_of_another_room_is_found(self):
        def opens(path, text):
            return {path: "// x\n#pragma once\n" + text}

        def holding_x(name):
            return f"namespace {name} {{\nint x;\n}}\n"

        for good in ("namespace gyre::plan {\nnamespace flag {\nint x;\n}\n}\n",
                     "namespace {\nint x;\n}\n", "namespace x = gyre;\nusing namespace gyre;\n",
                     "// namespace other {\n", "namespace gyre {\nclass Clock;\n}\n",
                     "namespace gyre::loops {\nstruct A;\nenum class B : int;\n}\n"):
            self.accepted("namespaces_test.py", opens("lib/plan/x.h", good))
        for bad, name in ((holding_x("gyre"), "gyre"),
                          ("namespace gyre::loops {\nclass A;\nint x;\n}\n", "gyre::loops"),
                          (holding_x("gyre::planned"), "gyre::planned"),
                          ("namespace gyre::plan {}\n" + holding_x("std"), "std")):
            self.refused("namespaces_test.py", opens("lib/plan/x.h", bad),
                         f"namespace {name} is not for lib/plan/")
        # The ground's namespace holds all others; each is its own row's.
        self.accepted("namespaces_test.py", opens("lib/base/x.h", holding_x("gyre::log")))
        self.refused("namespaces_test.py", opens("lib/base/x.h", holding_x("gyre::plan")),
                     "lib/base/x.h:3: namespace gyre::plan")
        self.accepted("namespaces_test.py", opens("tests/x.h", holding_x("any")))
        test = "// x\nnamespace x_test {\n\nint x;\n\n}  // namespace x_test\n"
        self.accepted("namespaces_test.py", {"tests/plan/x_test.cc": test})
        self.refused("namespaces_test.py", {"tests/plan/x_test.cc": test + "int y;\n"},
                     "tests/plan/x_test.cc: its code does not lie in namespace x_test")
        self.refused("namespaces_test.py", {"lib/plan/plan.cc": "// x\n"},
                     "no file of lib/plan/ opens gyre::plan")
        self.refused("namespaces_test.py", {"ARCHITECTURE.md": TABLE.replace("namespace", "space")},
                     "no column")

    def test_an_include_circle_is_found(self):
        self.refused("rooms_test.py",
                     {"lib/plan/step.h": '// a\n#pragma once\n#include "lib/plan/plan.h"\n',
                      "lib/plan/plan.h": '// b\n#pragma once\n#include "lib/plan/step.h"\n'},
                     "include circle")

    def test_a_circle_through_a_body_is_found(self):
        def header_of(name):
            return f"// {name}\n#pragma once\nclass {name.capitalize()} {{\n  void go();\n}};\n"

        ring = {"lib/plan/ring.h": header_of("ring"),
                "lib/plan/tree.h": header_of("tree") + '#include "lib/plan/ring.h"\n',
                "lib/plan/ring.cc": '#include "lib/plan/ring.h"\n#include "lib/plan/tree.h"\n'}
        self.refused("circles_test.py", ring, "circle of lib/plan/ring, lib/plan/tree",
                     "lib/plan/ring.cc to lib/plan/tree", "lib/plan/tree.h to lib/plan/ring")
        # Functions of its class in another file are the unit's as well.
        moved = {**ring, "lib/plan/ring.cc": "// ring\n",
                 "lib/plan/ring_step.cc": ring["lib/plan/ring.cc"] + "void Ring::go() {}\n"}
        self.refused("circles_test.py", moved, "lib/plan/ring_step.cc to lib/plan/tree")
        moved["lib/plan/ring_step.cc"] = moved["lib/plan/ring_step.cc"].replace("Ring::", "")
        self.accepted("circles_test.py", moved)
        # Through three files, and from room to room.
        wide = {"lib/plan/a.h": "// a\n#pragma once\n",
                "lib/plan/a.cc": '#include "lib/plan/a.h"\n#include "kernels/cpu/b.h"\n',
                "kernels/cpu/b.h": '// b\n#pragma once\n#include "bench/c.h"\n',
                "bench/c.h": '// c\n#pragma once\n#include "lib/plan/a.h"\n'}
        self.refused("circles_test.py", wide, "circle of bench/c, kernels/cpu/b, lib/plan/a")
        del wide["lib/plan/a.cc"]
        self.accepted("circles_test.py", wide)

    def test_what_includes_cannot_show_is_found(self):
        def f_with(statement):
            return "// x\nvoid f() { " + statement + "; }\n"

        self.accepted("seams_test.py", {"lib/api/x.cc": f_with("process().worker.run()")})
        self.refused("seams_test.py", {"lib/comm/x.cc": f_with("process().worker.run()")},
                     "lib/comm/x.cc: process() is for lib/api")
        asks = {f"lib/comm/x{n}.cc": f_with("if (options.device != nullptr) g()") for n in range(4)}
        self.refused("seams_test.py", asks, "in 4 places", "lib/comm/x0.cc:2")
        del asks["lib/comm/x0.cc"]
        self.accepted("seams_test.py", asks)
        catch = "// x\n#include <catch2/catch.hpp>\n"
        self.accepted("seams_test.py", {"tests/support/catch.h": catch})
        self.refused("seams_test.py", {"tests/plan/x_test.cc": catch},
                     "tests/plan/x_test.cc: tests include tests/support/catch.h")
        self.refused("seams_test.py", {"tests/plan/x_test.cc": f_with("Catch::rngSeed()")},
                     "tests/plan/x_test.cc: what the versions of Catch2 name differently")
        self.refused("seams_test.py", {"lib/comm/x.cc": "// x\n#include <ranges>\n"},
                     "lib/comm/x.cc: clang 14")
        self.refused("seams_test.py", {"lib/comm/x.cc": f_with("std::ranges::unique(all)")},
                     "lib/comm/x.cc: clang 14")
        self.accepted("seams_test.py", {"lib/comm/x.cc": f_with("std::ranges::sort(all)")})
        middle = "lib/comm/communicator.h"
        self.accepted("seams_test.py", {middle: "// x\n" * 200})
        self.refused("seams_test.py", {middle: "// x\n" * 201}, "201 lines")
        own = "".join(f'#include "lib/plan/p{n}.h"\n' for n in range(11))
        self.refused("seams_test.py", {middle: own}, "includes 11 of our headers")

    def test_a_function_of_71_lines_is_found_and_one_of_70_is_not(self):
        self.accepted("shape_test.py", {"lib/plan/f.cc": function_of(70)})
        self.refused("shape_test.py", {"lib/plan/f.cc": function_of(71)},
                     "f.cc:2: a function of 71")
        nested = "namespace a {\nclass B {\n" + function_of(71) + "};\n}\n"
        self.refused("shape_test.py", {"lib/plan/f.cc": "// x\n" + nested}, "a function of 71")
        data = "// x\nint a[] = {\n" + "  1,\n" * 90 + "};\n"
        self.accepted("shape_test.py", {"lib/plan/f.cc": data})

    def test_long_files_and_lines_are_found(self):
        self.accepted("shape_test.py", {"lib/plan/f.cc": "// x\n" * 600})
        self.refused("shape_test.py", {"lib/plan/f.cc": "// x\n" * 601}, "601 lines")
        self.accepted("shape_test.py", {"lib/plan/f.cc": "// " + "x" * 97 + "\n"})
        self.refused("shape_test.py", {"lib/plan/f.cc": "// " + "x" * 98 + "\n"}, "101 columns")

    def test_names_and_openings_are_checked(self):
        self.refused("shape_test.py", {"lib/plan/plan_util.cc": "// x\n"}, '"util"')
        self.refused("shape_test.py", {"src/x.cc": "// x\n"}, '"src" does not belong')
        self.refused("shape_test.py", {"lib/plan/x.h": "#pragma once\n"}, "does not open")
        self.refused("shape_test.py", {"lib/plan/x.h": "// x\n"}, "no #pragma once")
        self.refused("shape_test.py", {"lib/plan/x.cc": "// x\n// TO" + "DO: y\n"},
                     "x.cc:2: marked")

    def test_a_type_of_two_rooms_is_found(self):
        def two(first, second):
            return {"lib/plan/x.h": "// x\n#pragma once\n" + first,
                    "transports/shm/y.cc": "// y\n" + second}

        nested = "namespace a {\nclass B final : public C {\n  enum class Lane { one };\n};\n}\n"
        for second in ("struct Lane {};\n", "using Lane = int;\n", "namespace {\n" + nested + "}\n",
                       "template <typename T>\nclass alignas(64) Lane {};\n",
                       "struct Outer::Lane : Base<int> {};\n"):
            self.refused("names_test.py", two("struct Lane {};\n", second),
                         "Lane is a type of 2 rooms: lib/plan/x.h:3, transports/shm/y.cc:")
        for second in ("struct Lane;\n", "// struct Lane {};\n", "void f() { struct Lane {}; }\n",
                       "Lane f() { return {}; }\n", "enum class Key { Lane };\n"):
            self.accepted("names_test.py", two("struct Lane {};\nstruct Key {};\n", second))
        self.accepted("names_test.py", {"lib/plan/x.h": "// x\n#pragma once\nstruct Lane {};\n",
                                        "lib/plan/y.h": "// y\n#pragma once\nstruct Lane {};\n",
                                        "tests/x_test.cc": "// x\nstruct Lane {};\n"})

    def test_a_limit_that_does_not_begin_with_max_or_min_is_found(self):
        for name in ("ranks_most", "sleep_least_ns", "blocks_most_", "most_bytes"):
            self.refused("names_test.py", {"lib/plan/x.h": f"// x\n#pragma once\nint {name};\n"},
                         f"x.h:3: {name}")
        self.accepted("names_test.py", {"lib/plan/x.cc": "// ranks_most\nint max_ranks, most;\n",
                                        "tests/x_test.cc": "// x\nint ranks_most;\n"})

    def test_a_header_that_leans_on_another_is_found(self):
        self.refused("headers_test.py",
                     {"lib/plan/x.h": "// x\n#pragma once\ninline std::string s;\n"},
                     "lib/plan/x.h: does not compile alone")
        self.refused("headers_test.py",
                     {"lib/plan/x.h": "// x\n#pragma once\ninline std::string s;\n",
                      "lib/plan/x.cc": '#include <string>\n#include "lib/plan/x.h"\n'},
                     "lib/plan/x.h: does not compile alone")
        # Nor does a header that includes it, after what it lacks, hide that.
        lacking = "// x\n#pragma once\ninline std::string s;\n"
        around = '// y\n#pragma once\n#include <string>\n#include "lib/plan/x.h"\n'
        for files in ({}, {"lib/plan/y.cc": '#include "lib/plan/y.h"\n'}):
            self.refused("headers_test.py",
                         {"lib/plan/x.h": lacking, "lib/plan/y.h": around, **files},
                         "lib/plan/x.h: does not compile alone")
        self.refused("headers_test.py", {"include/gyre/gyre.h": "/* x */\nbool x(void);\n"},
                     "does not compile alone (-std=c99)")

    def test_a_link_that_leads_nowhere_is_found(self):
        page = {"docs/a page.md": "# A page\n\n## What's `x` for?\n\n## What's x for?\n"}
        for good in ("[r](ARCHITECTURE.md)", "[r](docs/)", "[r](#top)", "[r](https://x.org/a#b)",
                     "[a\nb](ARCHITECTURE.md#architecture)", "`[r](nowhere.md)`",
                     "    [r](nowhere.md)", "```\n[r](nowhere.md)\n```"):
            self.accepted("docs_test.py", {"docs/x.md": "x\n", "README.md": f"# Top\n\n{good}\n"})
        for bad in ("[r](nowhere.md)", "![r](nowhere.svg)", "[r](#bottom)", "[a\nb](nowhere.md)",
                    "[r](ARCHITECTURE.md#nothing)", '<img src="nowhere.svg">',
                    "- a\n    [r](nowhere.md) in a list"):
            self.refused("docs_test.py", {"README.md": f"# Top\n\n{bad}\n"}, "README.md:")
        self.accepted("docs_test.py", {"docs/b.md": "[r](a.md#whats-x-for-1)\n",
                                       "docs/a.md": page["docs/a page.md"]})
        self.refused("docs_test.py", {"docs/b.md": "[r](a.md#whats-x-for-2)\n",
                                      "docs/a.md": page["docs/a page.md"]},
                     "docs/a.md has no heading #whats-x-for-2")

    def test_a_long_readme_and_a_long_sentence_are_found(self):
        def readme(text):
            return {"README.md": f"# Top\n\n{text}\n"}

        self.accepted("docs_test.py", readme("x.\n" * 148))
        self.refused("docs_test.py", readme("x.\n" * 149), "151 lines; at most 150")
        self.accepted("docs_test.py", readme("word " * 34 + "end."))
        self.refused("docs_test.py", readme("A b.\n" + "word\n" * 35 + "end."),
                     "README.md:3: a sentence of 36 words")
        self.refused("docs_test.py", readme("- " + "word " * 35 + "[an end](#top)."), "37 words")
        for spared in ("    " + "word " * 40, "| " + "word " * 40 + "|", "`" + "word " * 40 + "`",
                       "- " + "word " * 30 + "\n- " + "word " * 30):
            self.accepted("docs_test.py", readme(spared))

    def test_a_top_comment_that_is_hard_to_read_is_found(self):
        def found(*lines, path="x.h"):
            return "\n".join(english_test.hard_to_read(path, "\n".join(lines) + "\n"))

        long = ["// " + "word " * 20, "// " + "word " * 15 + "end."]
        self.assertIn("x.h:3: a sentence of 36 words", found("// A b.", "//", *long))
        for clause in ("What waits is a lane.", "Whoever waits sleeps.", "Who waits sleeps."):
            self.assertIn("x.h:1: a clause", found("// A b. " + clause))
            self.assertIn("x.py:2: a clause", found("#!x", f'"""A b.\n{clause}"""', path="x.py"))
        for spared in (["// A b.", "// " + "word " * 34 + "end."], ["// Who waits for whom?"],
                       ["// A:", "//   what    " + "w " * 40], ["// A.", "", *long]):
            self.assertEqual(found(*spared), "")
        self.assertEqual(found('"""A b.', "", 'What waits is a lane."""', path="x.py"), "")
        self.refused("english_test.py", {"lib/plan/x.h": "// What waits is a lane.\n"}, "x.h:1:")
        self.accepted("english_test.py", {"tests/x.h": "// What waits is a lane.\n"})

    def test_a_shell_block_that_fails_is_found(self):
        def found(text):
            with tempfile.TemporaryDirectory() as root:
                with open(os.path.join(root, "a.md"), "w") as file:
                    file.write(text)
                return docs_run_test.failures(root, root, dict(os.environ))

        self.assertEqual(found("a\n\n    false\n"), (0, []))
        self.assertEqual(found("<!-- runs -->\n\n    true\n\n    cat a.md\n\nb\n"), (1, []))
        listed = "- a\n\n   <!-- runs -->\n\n       true\n       false | true\n"
        for bad, where in (("<!-- runs -->\n\n    false\n    true\n", "a.md:3: false"),
                           (listed, "a.md:5: true"),
                           ("<!-- runs -->\n\nno block\n", "no indented block"),
                           ("<!-- runs -->\n    nosuchprogram\n", "exit code 127")):
            count, problems = found(bad)
            self.assertEqual(count, 1)
            self.assertIn(where, "\n".join(problems))


if __name__ == "__main__":
    unittest.main()
