"""bench/training/question_data.py reads SQuAD's format and refuses other input, finds answers'
words in every window, and grades like SQuAD."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/training"))

import question_data  # noqa: E402  pylint: disable=wrong-import-position

CONTEXT = "In 1911, Ada (then 30) built \"the ring\". It had four nodes; all agreed."


def question(text, answer=None, name="q", **more):
    answers = [] if answer is None else [{"text": answer, "answer_start": CONTEXT.index(answer)}]
    return {"id": name, "question": text, "answers": answers, **more}


def file_of(*entries):
    return {"version": "v2.0", "data": [
        {"title": "rings", "paragraphs": [{"context": CONTEXT, "qas": list(entries)}]}]}


def test_a_file_is_read(tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(file_of(
        question("When?", "1911"), question("What was built?", "the ring"),
        question("How many?", "four nodes"), question("Who left?", is_impossible=True))))
    found = question_data.read(path)
    assert found[1].words == ["what", "was", "built", "?"]
    answers = [[word for word, _, _ in one.context_words[one.first:one.last + 1]]
               for one in found[:3]]
    assert answers == [["1911"], ["the", "ring"], ["four", "nodes"]]
    assert found[3].first is None and found[3].answers == []


@pytest.mark.parametrize("data, complaint", [
    ([], "not in SQuAD's format"),
    ({}, "not in SQuAD's format: KeyError 'data'"),
    (file_of({"id": "a", "question": "Who?"}), "KeyError 'answers'"),
    (file_of({**question("Who?"), "answers": [{"text": "Ada", "answer_start": 3}]}),
     "question q: its answer is not where answer_start says"),
    (file_of({**question("Who?"), "answers": [{"text": "Ada", "answer_start": "9"}]}), "TypeError"),
    (file_of({**question("Who?"), "answers": [{"text": " ", "answer_start": 2}]}), "has no words"),
])
def test_what_is_not_in_the_format_is_refused(data, complaint, tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError) as refused:
        question_data.read(path)
    assert complaint in str(refused.value) and str(path) in str(refused.value)


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "data.json"
    path.write_text("questions")
    with pytest.raises(ValueError, match="data.json"):
        question_data.read(path)


@pytest.mark.parametrize("length", [12, 16, 64])
def test_windows_have_every_word_and_say_where_answers_stand(length):
    asked, = question_data.questions_of(file_of(question("How many?", "four nodes")))
    known = question_data.Vocabulary([asked], 1000)
    windows = question_data.windows_of(0, asked, known, length)
    assert (len(windows) > 1) == (length < 32)
    words = known.numbers([word for word, _, _ in asked.context_words])
    seen = set()
    for window in windows:
        assert len(window.tokens) == length
        begin = window.place + window.begin
        assert window.tokens[begin:begin + window.end - window.begin] == \
            words[window.begin:window.end]
        seen.update(range(window.begin, window.end))
        if window.first:
            assert window.tokens[window.first:window.last + 1] == known.numbers(["four", "nodes"])
    assert seen == set(range(len(words)))
    assert any(window.first for window in windows)


def test_rare_words_are_left_out_of_a_small_vocabulary():
    asked, = question_data.questions_of(file_of(question("Who built the ring, the first?", "Ada")))
    known = question_data.Vocabulary([asked], 1)
    assert len(known) == question_data.SPECIAL + 1
    assert known.numbers(["the", "ring"]) == [question_data.SPECIAL, question_data.UNKNOWN]


@pytest.mark.parametrize("answer, wanted, exact, words", [
    ("The ring.", ["ring"], 1, 1), ("ring of four", ["the ring"], 0, 0.5),
    ("four", ["nodes", "four nodes"], 0, 2 / 3), ("", [], 1, 1), ("ring", [], 0, 0),
    ("", ["ring"], 0, 0),
])
def test_grades(answer, wanted, exact, words):
    asked = question_data.Question([], "", [], wanted)
    assert question_data.graded(answer, asked) == pytest.approx((exact, words))


def test_made_up_data_are_in_the_format_and_one_in_eight_has_no_answer():
    made = json.loads(json.dumps(question_data.made_up(3, 80)))
    found = question_data.questions_of(made)
    assert sum(one.first is None for one in found) == 10
    for one in found:
        words = [word for word, _, _ in one.context_words]
        named = [one.words[1], one.words[3]]
        if one.first is None:
            assert not set(named) & set(words)
        else:
            assert named == [words[one.first], words[one.last]]
            assert one.answers == [" ".join(words[one.first:one.last + 1])]
    assert question_data.made_up(3, 80) == made != question_data.made_up(4, 80)
