#!/usr/bin/env python3
"""Lays out what scripts/docs-site makes pages of: the repository's Markdown files, and the files that they link to, at their own places. A link to a folder leads to
its README, or is plain text where it has none; source files are shown as they are. With --check, says which links of the site's pages lead nowhere, or to
another machine for what the page itself needs. usage: docs-site.py SOURCE_FOLDER OUT | docs-site.py --check SITE"""
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

link = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append((tag, value))


def check(site):
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}  # whose links begin at the server's root
    complaints = []
    for path, page in pages.items():
        for tag, target in page.links:
            url = urllib.parse.urlsplit(target)
            if url.scheme or url.netloc:
                if tag != "a":
                    complaints.append(f"{path.relative_to(site)} loads {target} from the network")
                continue
            file = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if not file.is_file():
                complaints.append(f"{path.relative_to(site)} links to {target}, which is not there")
            elif file in pages and urllib.parse.unquote(url.fragment) not in pages[file].anchors:
                complaints.append(f"{path.relative_to(site)} links to {target}: that page has no such heading")
    for complaint in complaints:
        print(complaint)
    if len(pages) < 10:
        sys.exit(f"only {len(pages)} pages were made")
    sys.exit(1 if complaints else 0)


# Where GitHub and Python-Markdown read text otherwise: a table within a list, a list right after a line of text.
def as_python_markdown(text):
    text = re.sub(r"^   (?=\|)", "    ", text, flags=re.MULTILINE)
    return re.sub(r"^(?!\s|[-*] |\d+\. |$)(.*\n)(?=[-*] )", r"\1\n", text, flags=re.MULTILINE)


def lay_out(root, out):
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"], capture_output=True, check=True)
    pages = sorted(name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file())
    copied = set()

    def place(page, target):
        """The target of a link, as the site has it."""
        file, mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not file:
            return target
        path = (root / page).parent / file
        if path.is_dir():
            if not (path / "README.md").is_file():
                return None
            return f"{file.rstrip('/')}/README.md{mark}{anchor}"
        if path.suffix == ".md" or not path.is_file():  # what is missing MkDocs tells
            return target
        name = path.resolve().relative_to(root)
        shown = name if path.suffix in (".svg", ".png") else name.with_name(name.name + ".txt")
        if name not in copied:
            copied.add(name)
            (out / shown).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / shown)
        return file if shown == name else f"{file}.txt{mark}{anchor}"

    for page in pages:
        def placed(found, page=page):
            image, text, target = found.groups()
            target = place(page, target)
            return text if target is None else f"{image}[{text}]({target})"

        parts = re.split(r"(^```.*?^```)", (root / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        parts[::2] = [link.sub(placed, as_python_markdown(part)) for part in parts[::2]]
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        (out / page).write_text("".join(parts))


if sys.argv[1] == "--check":
    check(pathlib.Path(sys.argv[2]).resolve())
lay_out(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
