"""The libraries' ABI is the one of the record in the tree, and tools/package/abi.py finds each
kind of change. abi_test.py SOURCE_ROOT LIBRARY..."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT, LIBRARIES = "", []

HEADER = """#include <stddef.h>
#define GYRE_API __attribute__((visibility("default")))
#define GYRE_ANY (-1)
/* A comment with a word; and { braces. */
typedef struct gyreThing* gyreThing_t;
typedef enum { gyreFew = 0, gyreMany = 1, gyreNumKinds = 2 } gyreKind_t;
typedef struct {
  size_t size; /* of the caller's */
  int low, high;
  void (*tell)(void* user, int rank);
} gyreGrows_t;
typedef struct {
  int fixed;
} gyreFixed_t;
typedef int (*gyreCall_t)(void* user, const gyreFixed_t* one);
GYRE_API int gyreDo(gyreThing_t thing, const int counts[],
                    gyreKind_t kind);
GYRE_API const char* gyreSay(void);
"""
SOURCE = """#include "gyre/made.h"
int gyreDo(gyreThing_t a, const int b[], gyreKind_t c) { (void)a; (void)b; return (int)c; }
const char* gyreSay(void) { return ""; }
"""
# What is replaced by what, in the header or the source, and whether that breaks programs.
CHANGES = [
    ("gyreMany = 1", "gyreMany = 3", True),
    ("gyreMany = 1, ", "", True),
    ("gyreNumKinds = 2", "gyreSome = 2, gyreNumKinds = 3", False),
    ("gyreNumKinds = 2", "gyreNumKinds = 1", True),
    ("int low, high;", "int high, low;", True),
    ("int low, high;", "long low, high;", True),
    ("int low, high;", "int low;", True),
    ("int rank);\n}", "int rank);\n  int more;\n}", False),
    ("(void* user, int rank)", "(void* user, long rank)", True),
    ("int low, high;", "int low, high, wide;", True),  # moves what follows
    ("int fixed;", "int fixed; int more;", True),
    ("int fixed;", "unsigned fixed;", True),
    ("} gyreFixed_t;", "} gyreFixed_t;\ntypedef struct { int one; } gyreNew_t;", False),
    ("(void* user, const gyreFixed_t* one)", "(void* user, gyreFixed_t* one)", True),
    ("struct gyreThing*", "struct gyreOther*", True),
    ("GYRE_ANY (-1)", "GYRE_ANY (-2)", True),
    ("GYRE_ANY (-1)", "GYRE_ANY (-1)\n#define GYRE_NONE (-2)", False),
    ("const char* gyreSay(", "char* gyreSay(", True),
    ("GYRE_API const char* gyreSay(void)", "GYRE_API const char* gyreTell(void)", True),
    ("GYRE_API const", "GYRE_API int gyreMore(int);\nGYRE_API const", False),
]


def called(command, record, headers, *libraries):
    program = os.path.join(ROOT, "tools", "package", "abi.py")
    return subprocess.run([sys.executable, program, command, record, headers, *libraries],
                          capture_output=True, text=True, timeout=60, check=False)


class Ours(unittest.TestCase):
    def test_the_abi_is_the_one_of_the_record(self):
        done = called("check", os.path.join(ROOT, "tools", "package", "abi.txt"),
                      os.path.join(ROOT, "include", "gyre"), *LIBRARIES)
        self.assertEqual(done.returncode, 0, "\n" + done.stderr)

    def test_the_record_has_all_kinds_of_things(self):
        with open(os.path.join(ROOT, "tools", "package", "abi.txt"), encoding="utf-8") as file:
            lines = set(file.read().splitlines())
        for line in ("enumerator gyreRedOp_t.gyreAvg = 4", "soname libgyre.so.0",
                     "member gyreConfig_t.size at 0, 8 bytes: size_t",
                     "constant GYRE_UNIQUE_ID_BYTES = 128",
                     "symbol libgyre_gradsync gyreResult_t gyreGradWait(gyreGrad_t)",
                     "type gyreStreamCallback_t: void(*)(gyreStream_t,gyreResult_t,void*)"):
            self.assertIn(line, lines)


class Changes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.headers = os.path.join(self.folder.name, "gyre")
        os.mkdir(self.headers)
        self.record = os.path.join(self.folder.name, "abi.txt")
        self.soversion = 0
        self.make(HEADER)
        self.assertEqual(self.call("write").returncode, 0)

    def make(self, header, source=SOURCE):
        with open(os.path.join(self.headers, "made.h"), "w", encoding="utf-8") as file:
            file.write(header)
        self.library = os.path.join(self.folder.name, "libmade.so")
        subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,libmade.so.{self.soversion}", "-x",
                        "c", "-", f"-I{self.folder.name}", "-o", self.library], input=source,
                       text=True, check=True, timeout=60)

    def call(self, command):
        return called(command, self.record, self.headers, self.library)

    def test_what_did_not_change_is_right(self):
        self.assertEqual(self.call("check").returncode, 0)

    def test_each_change_is_found_and_judged(self):
        for old, new, breaks in CHANGES:
            with self.subTest(old=old, new=new):
                changed = HEADER.replace(old, new)
                self.assertNotEqual(changed, HEADER)
                source = SOURCE.replace("const char* gyreSay", "char* gyreSay") \
                    if new.startswith("char*") else SOURCE
                if "gyreTell" in new:
                    source = source.replace("gyreSay", "gyreTell")
                if "gyreMore" in new:
                    source += "int gyreMore(int a) { return a; }"
                self.make(changed, source)
                done = self.call("check")
                self.assertEqual(done.returncode, 1)
                self.assertIn("is broken" if breaks else "has grown", done.stderr)
                self.assertEqual("SOVERSION" in done.stderr, breaks, done.stderr)

    def test_a_member_within_the_old_size_breaks(self):
        # A caller's size cannot tell whether it knows a member in what was padding.
        padded = HEADER.replace("void (*tell)(void* user, int rank);", "void* user; char end;")
        self.make(padded)
        os.unlink(self.record)
        self.assertEqual(self.call("write").returncode, 0)
        self.make(padded.replace("char end;", "char end; char more;"))
        self.assertIn("is broken", self.call("check").stderr)

    def test_only_what_breaks_nothing_can_be_recorded(self):
        self.make(HEADER.replace("gyreMany = 1", "gyreMany = 3"))
        self.assertIn("is broken", self.call("write").stderr)
        self.make(HEADER.replace("int rank);\n}", "int rank);\n  int more;\n}"))
        self.assertEqual(self.call("write").returncode, 0)
        self.assertEqual(self.call("check").returncode, 0)

    def test_a_new_soversion_may_break_and_is_recorded(self):
        self.soversion = 1
        self.make(HEADER.replace("gyreMany = 1", "gyreMany = 3"))
        self.assertIn("new SOVERSION", self.call("check").stderr)
        self.assertEqual(self.call("write").returncode, 0)
        self.assertEqual(self.call("check").returncode, 0)


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    while len(sys.argv) > 1 and ".so" in sys.argv[1]:
        LIBRARIES.append(sys.argv.pop(1))
    unittest.main()
