"""The style: one small sheet over Quasar's. Colours are variables, so that dark is a few lines.

Dark or light is what the browser is set to, until somebody chooses by hand: then a cookie has it,
so that the very first paint of a page has the right colour (`first_paint`). Charts are drawn as SVG
in the light colours; the sheet puts the variables in their place, so they follow without being
drawn anew. Meaning is never carried by colour alone: a state has a word beside its colour.

Pages without a websocket (`plain`) are the log-in, and what stands where a page does not.
"""

from collections.abc import Mapping
from html import escape

from fastapi import Request
from fastapi.responses import HTMLResponse

from penstock.nsqadmin.pages import static

FONT = 'Roboto, system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif'
THEMES = {"auto": None, "dark": True, "light": False}  # by its name: whether it is dark
COOKIE = "penstock_theme"

_LIGHT = """--ink: #16212b; --soft: #5a6b78; --line: #d9e1e7; --paper: #f5f7f9; --card: #ffffff;
  --water: #0b6fa4; --good: #1b7f4b; --warn: #9a5b00; --bad: #b3261e; --amber: #c77700;
  --hover: #f2f6f9; --flash: #e3f1fa;"""
_DARK = """--ink: #e6edf3; --soft: #9fb0bd; --line: #2c3a45; --paper: #10181f; --card: #18232c;
  --water: #5ab8e8; --good: #58c98c; --warn: #f0b35b; --bad: #ff8a80; --amber: #f0b35b;
  --hover: #1e2b35; --flash: #1d4257;"""
CURVES = {"#0b6fa4": "water", "#1b7f4b": "good", "#c77700": "amber", "#b3261e": "bad"}


def theme_of(cookies: Mapping[str, str]) -> str:
    chosen = cookies.get(COOKIE, "")
    return chosen if chosen in THEMES else "auto"


def first_paint(theme: str) -> str:
    """The colours before any script has run; those of a page without scripts, too."""
    light = f":root {{ color-scheme: light; {_LIGHT} }} html {{ background: var(--paper); }}"
    dark = f":root {{ color-scheme: dark; {_DARK} }} html {{ background: var(--paper); }}"
    if theme == "auto":
        return f"{light} @media (prefers-color-scheme: dark) {{ {dark} }}"
    return dark if THEMES[theme] else light


_CURVES = "".join(
    f""".chart path[stroke="{colour}"] {{ stroke: var(--{name}); }}
.chart path[fill="{colour}"] {{ fill: var(--{name}); }}\n"""
    for colour, name in CURVES.items()
)

SHEET = f"""
body.body--light {{ {_LIGHT} }}
body.body--dark {{ {_DARK} }}
{_CURVES}""" + static.text("sheet.css")

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Penstock</title><style>{colours}{sheet}</style></head>
<body><main><section class="panel"><h1>{heading}</h1>{inside}</section></main></body></html>"""


def plain(
    request: Request, title: str, heading: str, inside: str, status: int = 200
) -> HTMLResponse:
    """`inside` is HTML, the others are text."""
    text = _PAGE.format(
        colours=first_paint(theme_of(request.cookies)), sheet=SHEET + static.text("plain.css"),
        title=escape(title), heading=escape(heading), inside=inside,
    )  # fmt: skip
    return HTMLResponse(text, status, {"Cache-Control": "no-store"})
