"""Pages of the project: each relative link leads to a file, and each #anchor to a heading. Each
picture exists, and generated pictures are up to date. README and its sentences are short.
docs_test.py ROOT"""
import os
import re
import subprocess
import sys
import tempfile

import tree

MAX_README_LINES = 150
MAX_SENTENCE_WORDS = 35

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
HTML_LINK = re.compile(r'<(?:img|a)\b[^>]*\b(?:src|href)="([^"]+)"')
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")  # https:, mailto:
BULLET = re.compile(r"([-*]|\d+\.) ")


def without_code(text):
    """Markdown with code blocks and code spans blanked; lines stay where they were."""
    lines, fence, in_block, after_blank = [], "", False, True
    for line in text.split("\n"):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence or mark:
            fence = "" if fence and mark and mark.group(1).startswith(fence) else \
                fence or mark.group(1)
            line = ""
        elif re.match(r" {4}|\t", line) and (in_block or after_blank) and \
                not BULLET.match(line.strip()):
            in_block, line = True, ""
        elif line.strip():
            in_block = False
        after_blank = not line.strip()
        lines.append(line)
    # A span may go on in the next line, but not in the next paragraph.
    return re.sub(r"(`+)((?:(?!\n\n).)+?)\1(?!`)",
                  lambda span: "`x`" + "\n" * span.group(0).count("\n"), "\n".join(lines),
                  flags=re.S)


def anchor_of(heading):
    """As GitHub makes it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    found, seen, fence = set(), {}, False
    for line in text.split("\n"):
        fence ^= line.lstrip().startswith("```")
        heading = re.match(r"#{1,6} (.*)", line)
        if heading and not fence:
            name = anchor_of(heading.group(1))
            count = seen.get(name, 0)
            seen[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
    return found


def broken_links(root, page):
    found, text = [], tree.read(root, page)
    for number, line in enumerate(joined_links(without_code(text)), 1):
        for target in LINK.findall(line) + HTML_LINK.findall(line):
            if ELSEWHERE.match(target):
                continue
            path, _, anchor = target.partition("#")
            place = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not os.path.exists(os.path.join(root, place)):
                found.append(f"{page}:{number}: {target}: there is no {place}")
            elif anchor and place.endswith(".md") and \
                    anchor not in anchors(tree.read(root, place)):
                found.append(f"{page}:{number}: {target}: {place} has no heading #{anchor}")
    return found


def joined_links(text):
    """Lines, but a link whose text goes on in the next line stands whole in its first one."""
    def join(match):
        return match.group(0).replace("\n", " ") + "\n" * match.group(0).count("\n")
    return re.sub(r"\[[^\[\]]*\]\([^()\s]+\)", join, text).split("\n")


def sentences(text):
    """(line, sentence) of the prose: no code, no tables, no headings."""
    found, paragraph, first = [], [], 0

    def end():
        whole = " ".join(paragraph)
        whole = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", whole)
        found.extend((first, one) for one in re.split(r"(?<=[.!?])[\"*)]*\s+", whole) if one)
        paragraph.clear()

    for number, line in enumerate(without_code(text).split("\n"), 1):
        bare = line.strip()
        if not bare or bare.startswith(("#", "|", "<!--")) or BULLET.match(bare):
            end()
        if bare and not bare.startswith(("#", "|", "<!--")):
            first = first if paragraph else number
            paragraph.append(BULLET.sub("", bare, count=1) if BULLET.match(bare) else bare)
    end()
    return found


def check_readme(root):
    if not os.path.exists(os.path.join(root, "README.md")):
        return []
    text = tree.read(root, "README.md")
    lines = text.rstrip("\n").count("\n") + 1
    found = [] if lines <= MAX_README_LINES else \
        [f"README.md: {lines} lines; at most {MAX_README_LINES}"]
    for number, sentence in sentences(text):
        words = len(sentence.split())
        if words > MAX_SENTENCE_WORDS:
            found.append(f"README.md:{number}: a sentence of {words} words; at most "
                         f"{MAX_SENTENCE_WORDS}: {sentence[:60]}...")
    return found


def stale_pictures(root):
    folder = os.path.join(root, "docs", "pictures")
    script = os.path.join(folder, "draw.py")
    if not os.path.exists(script):
        return []
    with tempfile.TemporaryDirectory() as drawn:
        subprocess.run([sys.executable, script, drawn], check=True, timeout=60)
        return [f"docs/pictures/{name}: not as docs/pictures/draw.py draws it; run that script"
                for name in sorted(os.listdir(drawn))
                if not os.path.exists(os.path.join(folder, name)) or
                tree.read(drawn, name) != tree.read(folder, name)]


if __name__ == "__main__":
    top = tree.root_from_arguments()
    pages = [path for path in tree.files(top) if path.endswith(".md")]
    tree.report([line for page in pages for line in broken_links(top, page)] + check_readme(top) +
                stale_pictures(top))
