"""Hooks of `mkdocs build`. Pages link to tests, examples and sources; a site has none of them, so
there such a link is its text, with the path shown at the pointer. Those that lead nowhere stay
links, and fail the build."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\./[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    docs = Path(config.docs_dir)
    folder = Path(page.file.abs_src_path).parent

    def plain(link: re.Match[str]) -> str:
        place = (folder / link[2].partition("#")[0]).resolve()
        if place.is_relative_to(docs) or not place.exists():
            return link[0]
        return f'<span title="{place.relative_to(docs.parent)}">{link[1]}</span>'

    return LINK.sub(plain, markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """The sources of the pages beside them: `llms.txt` names those."""
    shutil.copytree(config.docs_dir, config.site_dir, dirs_exist_ok=True)
