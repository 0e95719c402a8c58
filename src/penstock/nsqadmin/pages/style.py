"""How it looks: one small sheet over Quasar's. Colours are variables, so that dark is a few lines.

Dark or light is what the browser is set to, until somebody chooses by hand: then a cookie has it,
so that the very first paint of a page has the right colour (`first_paint`). Charts are drawn as SVG
in the light colours; the sheet puts the variables in their place, so they follow without being
drawn anew. Meaning is never carried by colour alone: a state has a word beside its colour.
"""

from __future__ import annotations

from collections.abc import Mapping

THEMES = {"auto": None, "dark": True, "light": False}  # by its name: whether it is dark
COOKIE = "penstock_theme"

_LIGHT = """--ink: #16212b; --soft: #5a6b78; --line: #d9e1e7; --paper: #f5f7f9; --card: #ffffff;
  --water: #0b6fa4; --good: #1b7f4b; --warn: #9a5b00; --bad: #b3261e; --amber: #c77700;"""
_DARK = """--ink: #e6edf3; --soft: #9fb0bd; --line: #2c3a45; --paper: #10181f; --card: #18232c;
  --water: #5ab8e8; --good: #58c98c; --warn: #f0b35b; --bad: #ff8a80; --amber: #f0b35b;"""
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

SHEET = (
    f"""
body.body--light {{ {_LIGHT} }}
body.body--dark {{ {_DARK} }}
{_CURVES}"""
    + """
.chart text { fill: var(--soft); }
.tip { background: var(--card) !important; border-color: var(--line) !important; }
.tip, .tip * { color: var(--ink) !important; }
.theme { min-width: 6.4rem; } .theme .q-field__native { color: var(--soft); font-size: .9rem; }
.ag-root-wrapper { --ag-background-color: var(--card); --ag-foreground-color: var(--ink);
  --ag-header-background-color: var(--paper); --ag-border-color: var(--line);
  --ag-chrome-background-color: var(--paper); --ag-odd-row-background-color: var(--card); }
body { background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
a { color: var(--water); text-decoration: none; }
a:hover, a:focus-visible { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--water); outline-offset: 2px; }
.nicegui-content { padding: 0; gap: 0; align-items: stretch; width: 100%; }
.bar { background: var(--card) !important; color: var(--ink) !important;
  border-bottom: 1px solid var(--line); padding: 0 1rem; gap: .25rem; min-height: 52px;
  display: flex; flex-wrap: wrap; align-items: center; box-shadow: none; }
.bar a { color: var(--ink); padding: .6rem .55rem; border-radius: 6px; }
.bar a[aria-current] { color: var(--water); font-weight: 600; }
.brand { font-weight: 700; letter-spacing: .02em; } .grow { flex: 1; }
.bar nav { display: flex; flex-wrap: wrap; align-items: center; }
.content { width: 100%; max-width: 1500px; margin: 0 auto; padding: 1rem; gap: 1rem;
  display: flex; flex-direction: column; align-items: stretch; }
.heading { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem 1rem; }
h1 { font-size: 1.45rem; line-height: 1.3; font-weight: 650; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; line-height: 1.3; font-weight: 650; margin: 0; }
.panel { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem;
  display: flex; flex-direction: column; gap: .6rem; align-items: stretch; min-width: 0; }
.tiles { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .7rem .9rem; }
.tile .label { color: var(--soft); font-size: .82rem; }
.tile .number { font-size: 1.4rem; font-weight: 650; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.tile .note { color: var(--soft); font-size: .8rem; min-height: 1.1em; }
.two { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
.soft { color: var(--soft); } .good { color: var(--good); } .warn { color: var(--warn); }
.bad { color: var(--bad); } .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
.badge { border: 1px solid currentColor; border-radius: 99px; padding: 0 .55rem; font-size: .8rem; }
.banner { border-left: 4px solid var(--warn); background: var(--card); padding: .6rem .9rem;
  border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
.grid { width: 100%; } .ag-root-wrapper { border-radius: 10px; }
.ag-layout-auto-height .ag-center-cols-viewport { min-height: 3rem !important; }
body { --q-primary: #0b6fa4 !important; --q-negative: #b3261e !important; }
body.body--dark { --q-primary: #5ab8e8 !important; --q-negative: #ff8a80 !important; }
.q-dialog .q-card { background: var(--card); color: var(--ink); }
body.body--dark .q-btn.text-white .q-btn__content { color: #10181f; }
.finding { display: flex; gap: .8rem; align-items: flex-start; padding: .35rem 0; }
.finding .badge { min-width: 5.2em; text-align: center; }
.counter { font-size: clamp(2.5rem, 9vw, 6rem); font-weight: 700;
  font-variant-numeric: tabular-nums; line-height: 1.1; }
.settings { display: grid; gap: .5rem 1rem; align-items: center;
  grid-template-columns: minmax(9rem, 16rem) 1fr; } .settings .note { font-size: .8rem; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.body { max-height: 50vh; overflow: auto; background: var(--paper); padding: .7rem;
  border-radius: 6px; }
.body > div { white-space: pre-wrap; }
.lives { display: flex; flex-direction: column; gap: 1rem; }
.life { margin: 0; padding-left: 1.4rem; }
.life li > * { display: inline-block; margin-right: .7rem; } .life li { padding: .2rem 0; }
.command { user-select: all; background: var(--paper); padding: .7rem; border-radius: 6px; }
progress { width: 100%; height: .6rem; accent-color: var(--water); }
.share { display: flex; gap: .5rem; align-items: center; height: 100%; }
.share progress { flex: 1; } .share span { min-width: 3em; text-align: right; }
.report { width: 100%; height: 75vh; border: 1px solid var(--line); border-radius: 10px; }
.empty { text-align: center; color: var(--soft); padding: 2rem 1rem; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 1rem; top: 1rem; z-index: 9999;
  background: var(--card); padding: .5rem 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
@media (max-width: 640px) { .content { padding: .6rem; } .bar { padding: 0 .3rem; }
  .bar a { padding: .6rem .45rem; } .settings { grid-template-columns: 1fr; }
  .tile .number { font-size: 1.2rem; } }
@media (prefers-reduced-motion: reduce) {
  * { transition: none !important; animation: none !important; } }
"""
)
