"""Hooks of mkdocs: pages that are made from the code, and links that mean the same in the repository and there."""

from __future__ import annotations

import functools
import posixpath
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_site import api_pages, links, method_page, notebooks
from polopt import catalogue

ASSETS = Path(__file__).parent / "assets"


@functools.cache
def method_text(slug: str) -> str:
    """Returns the page of a method; made once, however often a server builds the site again."""
    files = [str(file.relative_to(links.REPOSITORY)) for file in catalogue.files_of(slug)]
    return method_page.page(slug, [(name, _from_methods(links.file_address(name))) for name in files])


def _from_methods(target: str) -> str:
    return target if target.startswith("https:") else posixpath.relpath(target, "methods")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of methods, names, notebooks and results, and the assets of the site."""

    def add(place: str, content: str) -> None:
        files.append(File.generated(config, place, content=content))

    for slug in catalogue.slugs():
        add(f"methods/{slug}.md", method_text(slug))
        for file in catalogue.files_of(slug):
            _add_file(files, config, str(file.relative_to(links.REPOSITORY)))
    for page in api_pages.PAGES:
        add(f"api/{page.stem}.md", api_pages.markdown(page))
    for origin, place in links.COPIED.items():
        add(place, (links.REPOSITORY / origin).read_text(encoding="utf-8"))
    for notebook in sorted((links.REPOSITORY / "docs").glob("*.ipynb")):
        add(f"notebooks/{notebook.stem}.md", notebooks.markdown(notebook))
        files.append(File.generated(config, f"notebooks/{notebook.name}", abs_src_path=str(notebook)))
    for asset in sorted(file for file in ASSETS.rglob("*") if file.is_file()):
        place = f"assets/{asset.relative_to(ASSETS).as_posix()}"
        files.append(File.generated(config, place, abs_src_path=str(asset)))
    return files


def _add_file(files: Files, config: MkDocsConfig, path: str) -> None:
    """Adds a file of the repository, as text, if the repository has no address."""
    place = links.file_address(path)
    if not place.startswith("https:") and files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, abs_src_path=str(links.REPOSITORY / path)))


def origin_of(place: str) -> str | None:
    """Returns a page's place in the repository; None for one that is made in its final form."""
    copied = {site: origin for origin, site in links.COPIED.items()}
    if place in copied:
        return copied[place]
    if place.startswith("methods/"):
        return f"docs/{posixpath.basename(place)}"
    if place.startswith("notebooks/"):
        return None
    return None if place.startswith("api/") else f"docs/{place}"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files, **_: Any) -> str:
    """Rewrites a page's links, and leaves out what stands beside the table of the methods, which needs the room."""
    place = page.file.src_uri
    if place == "methods.md":
        page.meta["hide"] = ["navigation", "toc"]
    origin = origin_of(place)
    if origin is None:
        return markdown
    text = links.rewritten(markdown, origin, place, lambda path: _add_file(files, config, path))
    return links.spaced(text)
