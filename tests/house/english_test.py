"""Plain English at the top of sources: no sentence is long, and none has a clause such as "What
waits ..." as its subject. english_test.py ROOT"""
import re

import docs_test
import tree

ROOMS = ("lib/", "transports/", "kernels/", "tools/")
MAX_SENTENCE_WORDS = docs_test.MAX_SENTENCE_WORDS
CLAUSE = re.compile(r"(?:What|Who|Whom|Whoever|Whatever)\b(?!.*\?$)")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')]*\s+")


def top_comment(path, source):
    """[(line number, text)] of the comment that a file opens with. For Python it is the docstring's
    first paragraph, since tables of arguments follow."""
    if path.endswith(".py"):
        opened = re.match(r'(?:#[^\n]*\n)*"""(.*?)(?:\n\n|""")', source, re.S)
        first = source.count("\n", 0, opened.start(1)) + 1 if opened else 0
        return list(enumerate(opened.group(1).split("\n"), first)) if opened else []
    found = []
    for number, line in enumerate(source.split("\n"), 1):
        if not line.startswith("//"):
            break
        found.append((number, line[2:]))
    return found


def sentences(lines):
    """[(line number, sentence)]; an indented line is one of a table, and ends a paragraph."""
    found, paragraph, first = [], [], 0
    for number, line in [*lines, (0, "")]:
        if line.strip() and not line.startswith("  "):
            first = first if paragraph else number
            paragraph.append(line.strip())
            continue
        found += [(first, one) for one in SENTENCE_END.split(" ".join(paragraph)) if one]
        paragraph = []
    return found


def hard_to_read(path, source):
    found = []
    for number, sentence in sentences(top_comment(path, source)):
        words = len(sentence.split())
        if words > MAX_SENTENCE_WORDS:
            found.append(f"{path}:{number}: a sentence of {words} words; at most "
                         f"{MAX_SENTENCE_WORDS}: {sentence[:60]}...")
        if CLAUSE.match(sentence):
            found.append(f"{path}:{number}: a clause as the subject; name the thing: "
                         f"{sentence[:60]}")
    return found


if __name__ == "__main__":
    top = tree.root_from_arguments()
    tree.report([line for path in tree.files(top)
                 if path.startswith(ROOMS) and path.endswith(tree.SOURCE_ENDINGS + (".py",))
                 for line in hard_to_read(path, tree.read(top, path))])
