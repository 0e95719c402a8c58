"""Pages without a websocket: the log-in, and what stands where a page does not."""

from __future__ import annotations

from html import escape

from fastapi import Request
from fastapi.responses import HTMLResponse

from penstock.nsqadmin.pages.style import SHEET, first_paint, theme_of

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Penstock</title><style>{colours}{sheet}
body {{ margin: 0; }} main {{ max-width: 22rem; margin: 12vh auto; padding: 0 1rem; }}
form {{ display: flex; flex-direction: column; gap: .8rem; }}
input, button {{ font: inherit; padding: .55rem .7rem; border-radius: 6px; color: inherit;
  border: 1px solid var(--line); background: var(--paper); width: 100%; box-sizing: border-box; }}
button, .way {{ background: #0b6fa4; color: #fff; border: 0; cursor: pointer; }}
.way {{ display: block; padding: .55rem .7rem; border-radius: 6px; text-align: center; }}
</style></head><body><main><section class="panel"><h1>{heading}</h1>{inside}</section></main></body>
</html>"""


def page(
    request: Request, title: str, heading: str, inside: str, status: int = 200
) -> HTMLResponse:
    """`inside` is HTML, the others are text."""
    text = _PAGE.format(
        colours=first_paint(theme_of(request.cookies)), sheet=SHEET, title=escape(title),
        heading=escape(heading), inside=inside,
    )  # fmt: skip
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})


def instead(request: Request, home: str, heading: str, words: str, status: int) -> HTMLResponse:
    """Of a page that can't be shown; `words` say why, and what to do."""
    inside = f'<p>{escape(words)}</p><p><a href="{escape(home)}/">To the overview</a></p>'
    return page(request, heading, heading, inside, status)
