"""Questions whose answers are in a text: SQuAD's format (v1.1, v2.0), made-up data in it, words and
their numbers, windows of a fixed length, and the scores of an answer."""

import collections
import dataclasses
import json
import random
import re
import string

PADDING, START, BREAK, UNKNOWN = range(4)  # numbers of what are no words
SPECIAL = 4


@dataclasses.dataclass
class Question:
    """An answer is words first..last of the context; None where the context has none."""
    words: list
    context: str
    context_words: list  # (word, where it begins, where it ends)
    answers: list
    first: int = None
    last: int = None


def words_of(text):
    """[(word or sign, where it begins, where it ends)]"""
    return [(found.group().lower(), found.start(), found.end())
            for found in re.finditer(r"\w+|[^\w\s]", text)]


def question_of(entry, context, context_words):
    name, answers = entry["id"], [] if entry.get("is_impossible") else entry["answers"]
    question = Question([word for word, _, _ in words_of(entry["question"])], context,
                        context_words, [answer["text"] for answer in answers])
    if answers:
        begin = answers[0]["answer_start"]
        end = begin + len(answers[0]["text"])
        if begin < 0 or context[begin:end] != answers[0]["text"]:
            raise ValueError(f"question {name}: its answer is not where answer_start says")
        inside = [number for number, (_, word_begin, word_end) in enumerate(context_words)
                  if word_begin < end and word_end > begin]
        if not inside:
            raise ValueError(f"question {name}: its answer has no words")
        question.first, question.last = inside[0], inside[-1]
    return question


def questions_of(data):
    """The questions of what a file in SQuAD's format holds."""
    questions = []
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                context_words = words_of(context)
                questions += [question_of(entry, context, context_words)
                              for entry in paragraph["qas"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not in SQuAD's format: {type(error).__name__} {error}") from error
    return questions


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return questions_of(json.load(file))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def made_up(seed, paragraphs, words=24, length=16):
    """Data in SQuAD's format: "from B to D" asks for the words B C D of a context that has no word
    twice. One in eight asks for words that its context has not."""
    draw, known = random.Random(seed), [f"w{number}" for number in range(words)]
    made = []
    for number in range(paragraphs):
        context = draw.sample(known, length)
        first = draw.randrange(length)
        last = min(first + draw.randrange(4), length - 1)
        named = [context[first], context[last]]
        answer = " ".join(context[first:last + 1])
        entry = {"id": str(number), "answers": [
            {"text": answer, "answer_start": len("".join(f"{one} " for one in context[:first]))}]}
        if number % 8 == 7:
            named = draw.sample(sorted(set(known) - set(context)), 2)
            entry = {"id": str(number), "answers": [], "is_impossible": True}
        entry["question"] = f"from {named[0]} to {named[1]}"
        made.append({"context": " ".join(context), "qas": [entry]})
    return {"version": "made up", "data": [{"title": "words", "paragraphs": made}]}


class Vocabulary:
    """The most frequent words of the questions and their contexts."""

    def __init__(self, questions, most):
        seen, contexts = collections.Counter(), {}
        for question in questions:
            seen.update(question.words)
            contexts[question.context] = question.context_words
        for context_words in contexts.values():
            seen.update(word for word, _, _ in context_words)
        ordered = sorted(seen, key=lambda word: (-seen[word], word))[:most]
        self.number_of = {word: SPECIAL + number for number, word in enumerate(ordered)}

    def __len__(self):
        return SPECIAL + len(self.number_of)

    def numbers(self, words):
        return [self.number_of.get(word, UNKNOWN) for word in words]


@dataclasses.dataclass
class Window:
    """A question and a part of its context, as numbers: START question BREAK context BREAK. Word i
    of the context stands at `place` + i."""
    question: int
    tokens: list
    place: int
    begin: int  # of the context's words
    end: int
    first: int = 0  # where the answer stands; START where it is not in this part
    last: int = 0


def windows_of(number, question, vocabulary, length):
    """Parts of the context that overlap by half."""
    asked = vocabulary.numbers(question.words)[:length // 2]
    room = length - len(asked) - 3
    words = [word for word, _, _ in question.context_words]
    windows, begin = [], 0
    while True:
        end = min(begin + room, len(words))
        tokens = [START, *asked, BREAK, *vocabulary.numbers(words[begin:end]), BREAK]
        place = len(asked) + 2 - begin
        window = Window(number, tokens + [PADDING] * (length - len(tokens)), place, begin, end)
        if question.first is not None and begin <= question.first and question.last < end:
            window.first, window.last = place + question.first, place + question.last
        windows.append(window)
        if end == len(words):
            return windows
        begin += max(room // 2, 1)


def normalized(answer):
    """As SQuAD's own evaluation: no capitals, signs or articles."""
    answer = "".join(one for one in answer.lower() if one not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", answer).split()


def overlap(answer, wanted):
    """F1 of the words of two answers."""
    answer, wanted = normalized(answer), normalized(wanted)
    if not answer or not wanted:
        return float(answer == wanted)
    common = sum((collections.Counter(answer) & collections.Counter(wanted)).values())
    return 2 * common / (len(answer) + len(wanted))


def graded(answer, question):
    """(exact match, F1) against the best of the question's answers; "" says that there is none."""
    wanted = question.answers or [""]
    return (max(float(normalized(answer) == normalized(one)) for one in wanted),
            max(overlap(answer, one) for one in wanted))
