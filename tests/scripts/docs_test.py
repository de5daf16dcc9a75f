#!/usr/bin/env python3
"""Links between the repository's documents lead to files and headings that exist, and files that documents, comments and messages name by
their path below docs/ exist. README.md has at most 150 lines. usage: docs_test.py SOURCE_FOLDER"""
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1]).resolve()
link = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
named = re.compile(r"(?<![\w/.])docs/[\w./-]*\w")


def tracked():
    try:
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, check=True).stdout
        return [root / name for name in listed.decode().split("\0") if name and (root / name).is_file()]
    except (OSError, subprocess.CalledProcessError):  # a source archive
        return [path for path in root.rglob("*") if path.is_file() and "build" not in path.relative_to(root).parts[0]]


def anchors(page):
    """The anchors that GitHub gives a page's headings."""
    found = set()
    for line in without_code(page.read_text()).splitlines():
        if line.startswith("#"):
            text = re.sub(r"[`*]", "", line.lstrip("#").strip().lower())
            found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def without_code(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


complaints, links = [], 0
for path in tracked():
    where = path.relative_to(root)
    if path.suffix in (".md", ".h", ".cpp", ".cu", ".py") or where.parts[0] == "scripts":
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        if where.parts[:2] != ("tests", "scripts"):
            for target in named.findall(text):
                if not (root / target).exists():
                    complaints.append(f"{where} names {target}, which is not there")
    if path.suffix != ".md":
        continue
    for target in link.findall(without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        links += 1
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        if not page.exists():
            complaints.append(f"{where} links to {target}, which is not there")
        elif anchor and page.suffix == ".md" and anchor not in anchors(page):
            complaints.append(f"{where} links to {target}: {page.relative_to(root)} has no such heading")

lines = len((root / "README.md").read_text().splitlines())
if lines > 150:
    complaints.append(f"README.md has {lines} lines: 150 are allowed, the rest belongs to docs/")
for complaint in complaints:
    print(complaint)
if links < 20:
    sys.exit("hardly a link was found: this test looks in the wrong place")
sys.exit(1 if complaints else 0)
