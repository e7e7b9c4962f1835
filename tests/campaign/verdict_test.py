"""The verdict can fail: each promise is broken once in the ranks' output, and found. Errors' texts
are read as a person reads them, to find the named rank."""
import types
import unittest

from draw import Scenario, draw_scenario
from faults import BY_NAME
from phases import PHASES
from trial import Event
from verdict import Verdict, blamed, reporter

MS = 1_000_000
DIED = "rank 2 (host a, pid 7) died: its control connection closed"


def scenario_of(fault):
    """Three ranks in processes of their own; rank 2 is the victim, in errand 1 of 4."""
    phase = next(phase for phase in PHASES if phase.name == "all-reduce")
    errands = [{"verb": "init", "comm": 0}] + [{"verb": "all-reduce", "comm": 0}] * 4
    return Scenario(seed=0, fault=BY_NAME[fault], phase=phase, process_of_rank=[0, 1, 2],
                    host_of_process=[0, 0, 0], blocking=True, aftermath="linger", settings={},
                    errands=errands, comms={0: [0, 1, 2]}, at=1, closing=2,
                    victims=[] if fault == "none" else [2])


def lines_of(rank, *lines):
    """(when in ms, what)."""
    return [Event(when * MS, rank, *(text.split(" ", 1) + [""])[:2]) for when, text in lines]


def well(rank):
    return lines_of(rank, *((number, f"{word} {number}" + (" 0" if word == "end" else ""))
                            for number in range(6) for word in ("begin", "end")), (9, "idle"))


def told(rank, after_ms=10, code=6, text=DIED, errand=1):
    return lines_of(rank, (0, "begin 0"), (1, "end 0 0"), (2, f"begin {errand}"),
                    (20 + after_ms, f"end {errand} {code}"),
                    (20 + after_ms, f"told {errand} {code} {text}"), (40 + after_ms, "idle"))


def one_takes_from_any_rank():
    """Rank 2 leaves in errand 1; in errand 2 ranks may take from any rank."""
    scenario = scenario_of("leave")
    scenario.errands[1:3] = [{"verb": "all-reduce", "comm": 0, "leaver": 2},
                             {"verb": "anyone", "comm": 0}]
    return scenario


LEFT = lines_of(2, (0, "begin 0"), (1, "end 0 0"), (2, "begin 1"), (20, "left 1"))
VICTIM = lines_of(2, (0, "begin 0"), (1, "end 0 0"), (2, "begin 1"), (20, "fault kill"))


def verdict_of(scenario, events, ends=(0, 0, -9), texts=("", "", ""), left_behind=()):
    processes = [types.SimpleNamespace(number=rank, ranks=[rank], text=texts[rank], quiet={rank},
                                       is_done=lambda: True, ended_ns=30 * MS,
                                       popen=types.SimpleNamespace(returncode=ends[rank]))
                 for rank in range(3)]
    struck = next((event.ns for event in events if event.word == "fault"), None)
    trial = types.SimpleNamespace(scenario=scenario, events=events, processes=processes,
                                  struck_ns=struck, hung=False, left_behind=list(left_behind),
                                  victim_process=lambda: 2 if scenario.victims else None)
    return Verdict(trial)


class Promises(unittest.TestCase):
    def promises(self, *arguments, **more):
        return {escape.promise for escape in verdict_of(*arguments, **more).escapes}

    def killed(self, events, **more):
        return self.promises(scenario_of("kill"), VICTIM + events, **more)

    def peaceful(self, events, **more):
        return self.promises(scenario_of("none"), events, **{"ends": (0, 0, 0), **more})

    def test_survivors_recover_unless_they_were_told_far_apart(self):
        late = "unrecovered 8 rank 1 did not join within 5.0 s"
        for apart_ms, promises in ((200, {"W"}), (5100, {"L1"})):
            with self.subTest(apart_ms=apart_ms):
                events = told(0) + told(1, after_ms=10 + apart_ms)
                self.assertEqual(self.killed(events + lines_of(0, (6000, late))), promises)

    def test_what_ends_as_it_has_to_is_no_escape(self):
        self.assertEqual(self.killed(told(0) + told(1)), set())
        self.assertEqual(self.peaceful(well(0) + well(1) + well(2)), set())

    def test_what_is_on_its_way_passes_a_cut(self):
        cut = [event._replace(rest="cue") if event.word == "fault" else event for event in VICTIM]
        for after_ms, promises in ((60, set()), (9000, {"L1"})):
            with self.subTest(after_ms=after_ms):
                late = lines_of(1, (after_ms, "end 2 0"))
                events = cut + lines_of(2, (25, "end 1 0")) + well(0) + well(1) + late
                self.assertEqual(self.promises(scenario_of("one-way"), events, ends=(0, 0, 0)),
                                 promises)

    def test_who_stops_itself_may_go_on_for_a_while(self):
        stop = [event._replace(rest="stop") if event.word == "fault" else event
                for event in VICTIM]
        others = well(0) + well(1)
        for more, promises in (((), {"L1"}), (((25, "begin 4"),), set())):
            with self.subTest(more=more):
                events = stop + lines_of(2, *more) + others
                self.assertEqual(self.promises(scenario_of("freeze"), events, ends=(0, 0, 0)),
                                 promises)

    def test_wrong_data_and_late_writes_are_found(self):
        all_well = well(0) + well(1) + well(2)
        self.assertEqual(self.peaceful(all_well + lines_of(0, (3, "wrong 1 element 0"))), {"S1"})
        self.assertEqual(self.peaceful(all_well + lines_of(0, (9, "touched -1 element 0"))), {"S4"})

    def test_who_is_told_late_or_never_is_found(self):
        self.assertEqual(self.killed(told(0) + told(1, after_ms=400)), {"L1"})
        self.assertEqual(self.killed(told(0) + well(1)), {"L1"})

    def test_who_takes_from_any_rank_misses_who_left_at_its_deadline(self):
        scenario = one_takes_from_any_rank()
        text = "rank 2 left the communicator; rank 0 waits for a message of any rank"
        for words, promises in ((text, set()), (text.replace("any rank", "rank 2"), {"L1", "W"})):
            with self.subTest(words=words):
                events = LEFT + [event for rank in (0, 1)
                                 for event in told(rank, 8000, 8, words, errand=2)]
                self.assertEqual(self.promises(scenario, events, ends=(0, 0, 0)), promises)

    def test_who_waits_for_such_a_rank_elsewhere_hears_of_it_with_that_rank(self):
        scenario = one_takes_from_any_rank()
        scenario.comms[1] = [0, 1, 2]
        scenario.errands[3] = {"verb": "all-reduce", "comm": 1}
        missed = "rank 2 left the communicator; rank 0 waits for a message of any rank"
        aborted = "rank 0 aborted: rank 0 called gyreCommAbort (another rank failed)"
        for after_ms, promises in ((1, set()), (1500, {"L1"})):
            with self.subTest(after_ms=after_ms):
                events = LEFT + told(0, 8000, 8, missed, errand=2) + told(1, 8000 + after_ms, 6,
                                                                          aborted, errand=3)
                self.assertEqual(self.promises(scenario, events, ends=(0, 0, 0)), promises)

    def test_whose_deadline_is_first_tells_who_takes_from_any_rank(self):
        scenario = one_takes_from_any_rank()
        scenario.comms[1] = [0, 1, 2]
        scenario.errands[3] = {"verb": "all-reduce", "comm": 1}
        waited = "gyreReduce number 4 waited 8 s for data from rank 0: rank 0 has not begun it"
        aborted = "rank 1 aborted: rank 1 called gyreCommAbort (another rank failed)"
        for after_ms, promises in ((8050, set()), (5000, {"L1", "W"})):
            with self.subTest(after_ms=after_ms):
                events = (LEFT + told(0, after_ms, 6, aborted, errand=2) +
                          told(1, after_ms, 8, waited, errand=3))
                self.assertEqual(self.promises(scenario, events, ends=(0, 0, 0)), promises)

    def test_an_abort_that_takes_long_is_found(self):
        slow = lines_of(0, (60, f"aborted 0 {1500 * MS}"))
        self.assertEqual(self.killed(told(0) + told(1) + slow), {"L2"})

    def test_an_innocent_that_is_named_is_found(self):
        innocent = DIED.replace("rank 2", "rank 1")
        self.assertEqual(self.killed(told(0, text=innocent) + told(1)), {"L3"})
        self.assertEqual(self.killed(told(0, text="something broke") + told(1)), {"L3"})

    def test_codes_that_do_not_fit_are_found(self):
        self.assertEqual(self.killed(told(0, code=4) + told(1)), {"W"})
        self.assertEqual(self.killed(told(0, code=3) + told(1)), {"W"})

    def test_crashes_and_leftovers_are_found(self):
        events = told(0) + told(1)
        self.assertEqual(self.killed(events, ends=(-11, 0, -9)), {"R"})
        self.assertEqual(self.killed(events, texts=("AddressSanitizer: x", "", "")), {"R"})
        self.assertEqual(self.killed(events, left_behind=["process 9"]), {"R"})

    def test_an_error_or_a_word_without_a_fault_is_found(self):
        self.assertEqual(self.peaceful(well(0) + well(1) + told(2)), {"W"})
        self.assertEqual(self.peaceful(well(0) + well(1) + well(2), texts=("WARN", "", "")), {"W"})


class Blame(unittest.TestCase):
    def test_the_first_that_is_named_is_to_blame(self):
        for text, due in ((DIED, {2}),
                          ("ranks 6-8 (host a, pid 1) does not answer", {6, 7, 8}),
                          ("gyreCommSplit: ranks 1, 4 (host a, pid 1) died", {1, 4}),
                          ("waited 8 s for data from rank 3 (reported by rank 5)", {3}),
                          ("gyreReduce number 4 of 9 elements waited 2 s for data from rank 0: "
                           "rank 2 has not begun number 4; ranks 0, 1 wait for it", {2}),
                          ("the process that made the unique id (usually rank 0's) ended", {0}),
                          ("the way from rank 1 to rank 2 went through the process that made the "
                           "unique id", {0}),
                          ("the first for data from any rank", set())):
            self.assertEqual(blamed(text, 0), due, text)

    def test_whose_word_it_is_is_told(self):
        for who, due in (("rank 5", {5}), ("the process that made the unique id", {0})):
            self.assertEqual(reporter(f"rank 3 died (reported by {who}) (what to do)", 0), due)
        self.assertEqual(reporter("rank 3 died", 0), set())


class Drawing(unittest.TestCase):
    def test_a_seed_is_always_the_same_scenario(self):
        for seed in range(50):
            self.assertEqual(draw_scenario(seed).shown(), draw_scenario(seed).shown())

    def test_every_fault_and_phase_is_drawn(self):
        drawn = [draw_scenario(seed) for seed in range(3000)]
        self.assertEqual({one.fault.name for one in drawn},
                         {name for name, fault in BY_NAME.items() if fault.weight > 0})
        self.assertEqual({one.phase.name for one in drawn}, {phase.name for phase in PHASES})


if __name__ == "__main__":
    unittest.main()
