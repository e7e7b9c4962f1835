"""bench/training/train: ranks learn the same as one rank with the whole batch, in every mode. A
checkpoint loads on another number of ranks; wrong arguments are refused. train_program_test.py GYRE
PROGRAM"""
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GYRE, PROGRAM = "", ""
SYNCHRONOUS = ["ddp", "zero1", "zero2", "zero3", "server"]
TOLERANCE = 1e-4
STEPS, WHOLE_BATCH = 8, 12
TINY = {"gpt": ["--layers", "2", "--width", "32", "--heads", "4", "--context", "24"],
        "digits": ["--layers", "1", "--width", "32"]}
# Where scikit-learn's digits may lie: Debian's, those that `tools/dev torch` unpacks, another
# Python's.
FOLDERS = ["/usr/lib/python3/dist-packages",
           os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")) +
           "/gyre-torch/*/root/usr/lib/python3/dist-packages", *sys.path]
DIGITS = [path for folder in FOLDERS
          for path in glob.glob(folder + "/sklearn/datasets/data/digits.csv.gz")]
ENVIRONMENT = {**os.environ, "GYRE_SOCKET_IFNAME": "lo"}


def start(command, expects_success=True):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=ENVIRONMENT)
    if expects_success and done.returncode != 0:
        raise AssertionError(f"{command}\n{done.stdout}\n{done.stderr}")
    return done


class Trains(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = str(self.folder / "text")
        words = ["light", "day", "night", "earth", "the", "and", "was", "called"]
        pathlib.Path(self.text).write_text(
            " ".join(words[i * i % 8] + ",." [i % 3:i % 3 + 1] for i in range(400)))

    def train(self, model, ranks, way, *more, steps=STEPS, threads=True):
        out = self.folder / "json"
        command = [PROGRAM, "--model", model, "--parallel", way, *TINY[model], "--steps",
                   str(steps), "--batch", str(WHOLE_BATCH // ranks), "--every", "3",
                   "--bucket-mb", "0.01", "--json", str(out), *more]
        if model == "gpt":
            command += ["--data", self.text]
        if threads:
            command += ["--threads", str(ranks)]
        elif ranks > 1:
            command = [GYRE, "run", "-n", str(ranks), "--timeout", "60", *command]
        start(command)
        found = json.loads(out.read_text())
        self.assertEqual(found["ranks"], ranks)
        self.assertEqual(len(found["losses"]), len(found["seconds"]))
        return found

    def check_same(self, losses, expected, what):
        self.assertEqual(len(losses), len(expected), what)
        for step, (loss, wanted) in enumerate(zip(losses, expected)):
            self.assertLessEqual(abs(loss - wanted), TOLERANCE, (what, step, losses, expected))

    def check_ways(self, model, *more):
        one = self.train(model, 1, "ddp", *more, threads=False)["losses"]
        self.assertEqual(len(one), STEPS)
        self.assertLess(one[-1], 0.9 * one[0])
        for way in SYNCHRONOUS:
            for ranks in (2, 3):
                self.check_same(self.train(model, ranks, way, *more)["losses"], one,
                                (model, way, ranks, more))

    def test_a_transformer_on_2_and_3_ranks_learns_as_on_one(self):
        self.check_ways("gpt", "--rate", "0.01")

    def test_a_perceptron_on_2_and_3_ranks_learns_as_on_one(self):
        self.check_ways("digits", "--rate", "0.01", "--warmup", "3")

    def test_so_does_sgd(self):
        self.check_ways("digits", "--optimizer", "sgd")

    def test_ranks_that_a_launcher_starts_learn_as_threads_do(self):
        one = self.train("gpt", 1, "ddp")["losses"]
        for way in ("ddp", "zero3"):
            self.check_same(self.train("gpt", 2, way, threads=False)["losses"], one, way)

    def test_local_steps_of_sgd_averaged_each_time_are_those_of_one_rank(self):
        more = ["--optimizer", "sgd", "--momentum", "0", "--decay", "0"]
        one = self.train("digits", 1, "ddp", *more)["losses"]
        each = self.train("digits", 3, "local", "--local-steps", "1", *more)["losses"]
        self.check_same(each, one, "local")
        # Averaged less often it is another way, that learns too.
        fewer = self.train("digits", 3, "local", "--local-steps", "4", *more, steps=60)
        self.assertGreater(max(abs(a - b) for a, b in zip(fewer["losses"], one)), TOLERANCE)
        self.assertLess(fewer["losses"][-1], 0.5 * fewer["losses"][0])

    def test_groups_of_ranks_with_a_model_each_learn_as_one_rank(self):
        one = self.train("gpt", 1, "ddp", "--rate", "0.01")["losses"]
        for way, ranks, *factor in (("hybrid", 4), ("hybrid", 2), ("hybrid", 3, "--factor", "1"),
                                    ("hybrid", 3, "--factor", "3"), ("zero1", 4, "--factor", "2"),
                                    ("zero2", 4, "--factor", "2")):
            found = self.train("gpt", ranks, way, "--rate", "0.01", *factor)["losses"]
            self.check_same(found, one, (way, ranks, factor))

    def test_rounds_that_all_ranks_are_in_are_steps_of_one_rank(self):
        for more in (["--rate", "0.01", "--warmup", "3"], ["--optimizer", "sgd"]):
            one = self.train("digits", 1, "ddp", *more)["losses"]
            for ranks in (2, 3):
                found = self.train("digits", ranks, "stale", "--staleness", "0", *more)["losses"]
                self.check_same(found, one, (ranks, more))

    def test_rounds_without_all_ranks_learn_too_and_all_ranks_end(self):
        for staleness, threads in (("1", True), ("5", True), ("3", False)):
            found = self.train("digits", 3, "stale", "--staleness", staleness, "--rate", "0.01",
                               steps=100, threads=threads)["losses"]
            self.assertEqual(len(found), 100)
            self.assertLess(sum(found[-10:]) / 10, 0.5 * found[0], (staleness, found))

    def test_what_3_ranks_saved_2_go_on_with(self):
        saved = str(self.folder / "saved")
        whole = self.train("gpt", 1, "ddp")["losses"]
        for way, other in (("zero3", "zero3"), ("zero1", "zero2"), ("ddp", "zero3"),
                           ("zero2", "server"), ("server", "hybrid"), ("hybrid", "ddp")):
            self.train("gpt", 4 if way == "hybrid" else 3, way, "--checkpoint", saved, steps=5)
            rest = self.train("gpt", 2, other, "--resume", saved)["losses"]
            self.check_same(rest, whole[5:], (way, other))
            self.assertFalse(os.path.exists(saved + ".new"))

    def test_a_checkpoint_is_replaced_and_goes_on_from_its_step(self):
        saved, link = str(self.folder / "saved"), str(self.folder / "before")
        whole = self.train("digits", 3, "zero2", "--checkpoint", saved, "--checkpoint-every", "2")
        os.link(saved, link)
        self.train("digits", 3, "zero2", "--checkpoint", saved, "--resume", saved, steps=10)
        self.assertFalse(os.path.samefile(saved, link))
        longer = self.train("digits", 1, "ddp", steps=12)["losses"]
        self.check_same(longer[:STEPS], whole["losses"], "zero2")
        for path, done in ((link, 8), (saved, 10)):
            rest = self.train("digits", 2, "zero3", "--resume", path, steps=12)["losses"]
            self.check_same(rest, longer[done:], path)
        # All steps are made: nothing is left to do but to test.
        self.assertEqual(self.train("digits", 2, "ddp", "--resume", saved)["losses"], [])

    def test_it_ends_below_a_loss(self):
        found = self.train("digits", 2, "ddp", "--until-loss", "1.0", steps=400)["losses"]
        self.assertLess(sum(found[-10:]) / 10, 1.0)
        self.assertLess(len(found), 400)
        self.assertEqual(len(found) % 3, 0)  # looked at every third step

    def test_real_digits_are_told_apart(self):
        if not DIGITS:
            self.skipTest("no digits.csv.gz of scikit-learn here (Debian: python3-sklearn)")
        out = self.folder / "json"
        start([PROGRAM, "--data", DIGITS[0], "--threads", "2", "--batch", "8", "--steps",
               "2000", "--json", str(out)])
        self.assertGreaterEqual(json.loads(out.read_text())["accuracy"], 0.97)

    def test_made_up_digits_are_said_to_be_made_up(self):
        if DIGITS and DIGITS[0].startswith("/usr/lib/python3/"):
            self.skipTest("real ones are here")
        said = start([PROGRAM, "--steps", "200"]).stdout
        self.assertIn("MADE-UP digits", said)
        self.assertIn("test accuracy", said)


class Refuses(unittest.TestCase):
    def check(self, text, *options, code=1, command=()):
        done = start([*command, PROGRAM, *options], expects_success=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)

    def test_mistaken_options(self):
        for text, *options in (("--stpes", "--stpes", "3"), ("gtp", "--model", "gtp"),
                               ("zero4", "--parallel", "zero4"), ("--steps", "--steps", "-1"),
                               ("--batch", "--batch", "0"), ("--rate", "--rate", "0"),
                               ("--rate", "--rate", "nan"), ("--seed", "--seed", "-3"),
                               ("does not divide", "--model", "gpt", "--heads", "7"),
                               ("local:", "--parallel", "local", "--checkpoint", "x"),
                               ("stale:", "--parallel", "stale", "--resume", "x"),
                               ("stale:", "--parallel", "stale", "--until-loss", "1"),
                               ("--staleness", "--parallel", "stale", "--staleness", "-1"),
                               ("--factor is for", "--factor", "2"),
                               ("needs --checkpoint", "--checkpoint-every", "3")):
            with self.subTest(options):
                self.check(text, *options, code=2)

    def test_groups_that_do_not_fit_the_ranks(self):
        self.check("config.factor = 2 does not divide the 3 ranks", "--parallel", "hybrid",
                   "--threads", "3")

    def test_data_that_is_none(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong"
            self.check("No such file", "--data", str(wrong))
            wrong.write_text("")
            self.check("it is empty", "--data", str(wrong))
            wrong.write_text("1,2,3\n")
            self.check("line 1 is not 64 numbers", "--data", str(wrong))
            self.check("too few", "--model", "gpt", "--data", str(wrong))
            self.check("a step takes 80000 examples", "--batch", "80000")

    def test_checkpoints_that_are_none_or_of_another_model(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder) / "saved"
            self.check("No such file", "--resume", str(saved))
            saved.write_text("this is none\n")
            self.check("it is no checkpoint of this program", "--resume", str(saved))
            start([PROGRAM, "--steps", "2", "--checkpoint", str(saved), "--threads", "2"])
            self.check("other tensors", "--resume", str(saved), "--width", "64")
            self.check("its optimizer is adamw", "--resume", str(saved), "--optimizer", "sgd")
            os.truncate(saved, saved.stat().st_size - 4)
            self.check("bytes long, not", "--resume", str(saved), "--threads", "3")
            for option in ("--checkpoint", "--json"):
                self.check("cannot write", option, folder + "/none/x")

    def test_ranks_that_were_told_different_things(self):
        script = 'exec "$0" --steps 3 --batch $((4 + GYRE_RANK))'
        done = start([GYRE, "run", "-n", "2", "--timeout", "60", "sh", "-c", script, PROGRAM],
                     expects_success=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 was given other options than rank 0", done.stderr + done.stdout)


if __name__ == "__main__":
    GYRE, PROGRAM = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
