"""The pages of the documentation site, for docs/build.sh.

site.py lay OUT    copies the pages of docs/SUMMARY.md, and the files that they link to, to OUT as mdBook wants them
site.py check OUT  ends with 1 if a link of the built site leads nowhere
"""

import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINK = re.compile(r"\]\(([^)\s]+)\)")
# A browser opens index.html of a directory.
INDEX = re.compile(r"\bREADME\.md(?=[)#])")


def local(link):
    """The path of a link inside the tree or the site, or nothing."""
    parts = urlsplit(link)
    return "" if parts.scheme or parts.netloc else unquote(parts.path)


def lay(out):
    """Pages keep their places in the tree, so that a link between two of them is the same on the site."""
    tree = Path.cwd()
    pages = out / "src"
    pages.mkdir(parents=True)
    shutil.copy("docs/book.toml", out)
    summary = Path("docs/SUMMARY.md")

    def moved(match):
        return f"]({(summary.parent / match[1]).resolve().relative_to(tree)})"

    listed = LINK.sub(moved, summary.read_text())
    (pages / "SUMMARY.md").write_text(INDEX.sub("index.md", listed))
    left, done = [Path(link) for link in LINK.findall(listed)], set()
    while left:
        file = left.pop()
        if file in done:
            continue
        done.add(file)
        (pages / file).parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copy(file, pages / file)
            continue
        text = file.read_text()
        (pages / file).with_name(file.name.replace("README", "index")).write_text(INDEX.sub("index.md", text))
        for link in filter(None, map(local, LINK.findall(text))):
            target = (tree / file.parent / link).resolve()
            # A page that the summary lacks is not copied, and the check finds the link to it.
            if target.suffix != ".md" and target.is_file():
                left.append(target.relative_to(tree))


class Page(HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.update(filter(None, [found.get("id"), found.get("name") if tag == "a" else None]))
        self.links += filter(None, [found.get("href"), found.get("src")])


def check(site):
    pages = {file: Page(file) for file in sorted(site.rglob("*.html"))}
    seen, wrong = 0, []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            seen += 1
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.ids):
                wrong.append(f"{file.relative_to(site)}: {link} leads nowhere")
    print(f"{len(pages)} pages, {seen} links")
    if wrong or seen < 1000:
        sys.exit("\n".join(wrong or ["these are too few links"]))


command, path = sys.argv[1:]
{"lay": lay, "check": check}[command](Path(path).resolve())
