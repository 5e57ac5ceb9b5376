"""Links of Markdown pages: from what they mean in the repository to what they mean on the site."""

from __future__ import annotations

import functools
import posixpath
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from polopt import catalogue

REPOSITORY = Path(__file__).resolve().parents[1]
# Pages outside docs/ that the site has, too: place in the repository -> place on the site.
COPIED = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
} | {
    f"benchmarks/results/{file.name}": f"results/{file.name}"
    for file in sorted((REPOSITORY / "benchmarks" / "results").glob("*.md"))
}
# Folder of the site for other files of the repository, as plain text, where no address of the repository is known.
FILES = "files"
_LINK = re.compile(r"(?P<head>\]\()(?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


@functools.cache
def repository_url() -> str | None:
    """Returns the repository's address, if pyproject.toml has one."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = {key.lower(): value for key, value in project.get("urls", {}).items()}
    return urls.get("repository") or urls.get("source")


def on_site(path: str) -> str:
    """Returns the place on the site, or the address, of a file of the repository.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not (REPOSITORY / path).exists():
        raise FileNotFoundError(path)
    if path in COPIED:
        return COPIED[path]
    folder, _, name = path.rpartition("/")
    if folder == "polopt/methods" and name != "__init__.py" and name.endswith(".py"):
        return f"methods/{catalogue.slug_of(name.removesuffix('.py'))}.md"
    if folder == "docs" and name.endswith(".ipynb"):
        return f"notebooks/{name.removesuffix('.ipynb')}.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return file_address(path)


def file_address(path: str) -> str:
    """Returns where a file of the repository can be read: its address there, or a copy on the site, as text."""
    url = repository_url()
    if url is not None:
        return f"{url.rstrip('/')}/blob/main/{path}"
    is_page = path.endswith((".html", ".png", ".json"))
    return f"{FILES}/{path}" if is_page else f"{FILES}/{path}.txt"


def rewritten(text: str, origin: str, place: str, wanted: Callable[[str], None]) -> str:
    """Returns a page with its links as the site needs them.

    origin: the page's place in the repository. place: its place on the site. wanted: called with each file of the
    repository that the page links to and the site does not have as a page.
    """

    def replaced(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match["path"]))
        if (REPOSITORY / path).is_dir():
            return match["head"] + match["path"] + (match["anchor"] or "")
        target = on_site(path)
        if target.startswith(f"{FILES}/"):
            wanted(path)
        if not target.startswith(("http:", "https:")):
            target = posixpath.relpath(target, posixpath.dirname(place) or ".")
        return match["head"] + target + (match["anchor"] or "")

    pieces, at = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(replaced, text[at : fence.start()]), fence.group()]
        at = fence.end()
    return "".join([*pieces, _LINK.sub(replaced, text[at:])])


def spaced(text: str) -> str:
    """Returns Markdown as GitHub reads it in the form that the site's reader needs: a blank line before each list and
    table that follows a line of text."""
    out: list[str] = []
    fenced = False
    for line in text.split("\n"):
        before = out[-1] if out else ""
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        begins = re.match(r"(?:[-*] |\d+\. |\|)", line)
        plain = before.strip() and not re.match(r"\s|[-*] |\d+\. |\||#|>", before)
        if not fenced and begins and plain:
            out.append("")
        out.append(line)
    return "\n".join(out)
