#!/usr/bin/env python3
"""Links between the repository's documents lead to files and headings that exist, and files that documents, comments and messages name by
their path below docs/ exist. README.md has at most 150 lines. The code that documents show is checked as snippets.py says, docs/kernels.md has
every word of a config, and scripts/docs-site.yml every page.
usage: docs_test.py SOURCE_FOLDER BUILD_FOLDER C_COMPILER C++_COMPILER"""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import snippets

root, build = (pathlib.Path(folder).resolve() for folder in sys.argv[1:3])
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

shown = snippets.Snippets(root, build, sys.argv[3:5])
shown.check(["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in sorted((root / "docs").glob("*.md"))), "examples/README.md",
             "examples/ladder.md", "scripts/README.md", "tests/README.md"])
complaints += shown.complaints

site = (root / "scripts/docs-site.yml").read_text()
complaints += [f"scripts/docs-site.yml has no line for docs/{page.name}" for page in sorted((root / "docs").glob("*.md")) if f" docs/{page.name}\n" not in site]

fields = re.findall(r'<&C::\w+>\("([\w-]+)"', (root / "generator/families/config_fields.cpp").read_text())
explained = (root / "docs/kernels.md").read_text()
complaints += [f"docs/kernels.md has no `{word}` among the words of a config" for word in fields if not re.search(f"`{word}(N|=…)?`", explained)]
if len(fields) < 20:
    sys.exit("hardly a word of a config was found: this test looks in the wrong place")

for complaint in complaints:
    print(complaint)
if links < 20:
    sys.exit("hardly a link was found: this test looks in the wrong place")
sys.exit(1 if complaints else 0)
