"""How it looks: one small sheet over Quasar's. Colours are variables, so that dark is a few lines.

Dark or light is what the browser is set to, until somebody chooses by hand: then a cookie has it,
so that the very first paint of a page has the right colour (`first_paint`). Charts are drawn as SVG
in the light colours; the sheet puts the variables in their place, so they follow without being
drawn anew. Meaning is never carried by colour alone: a state has a word beside its colour.
"""

from __future__ import annotations

from collections.abc import Mapping

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

SHEET = (
    f"""
body.body--light {{ {_LIGHT} }}
body.body--dark {{ {_DARK} }}
{_CURVES}"""
    + """
/* --- text and colours --- */
body { background: var(--paper); color: var(--ink); font-size: 15px; line-height: 1.45;
  font-family: Roboto, system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
body { --q-primary: #0b6fa4 !important; --q-negative: #b3261e !important; }
body.body--dark { --q-primary: #5ab8e8 !important; --q-negative: #ff8a80 !important; }
a { color: var(--water); text-decoration: none; }
a:hover, a:focus-visible { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--water); outline-offset: 2px; }
h1 { font-size: 1.4rem; line-height: 1.3; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.02rem; line-height: 1.3; font-weight: 600; margin: 0; letter-spacing: 0; }
.soft { color: var(--soft); } .good { color: var(--good); } .warn { color: var(--warn); }
.bad { color: var(--bad); } .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
.small { font-size: .85rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.q-btn, .q-tab { text-transform: none; letter-spacing: 0; }
.q-btn { border-radius: 7px; } .q-btn-group { border-radius: 7px; }
.q-btn-group.q-btn-toggle { border: 1px solid var(--line); width: fit-content; max-width: 100%;
  flex-wrap: wrap; }
.q-btn-group.q-btn-toggle .q-btn { padding: .1rem .7rem; min-height: 30px; font-weight: 500; }
body.body--dark .q-btn.text-white .q-btn__content { color: #10181f; }
.q-dialog .q-card { background: var(--card); color: var(--ink); border-radius: 12px; }
.skip { position: absolute; left: -999px; } .skip:focus { left: 1rem; top: 1rem; z-index: 9999;
  background: var(--card); padding: .5rem 1rem; }

/* --- the bar --- */
.bar { background: var(--card) !important; color: var(--ink) !important; box-shadow: none;
  border-bottom: 1px solid var(--line); padding: 0 1rem; gap: .35rem; min-height: 52px;
  display: flex; align-items: center; position: sticky; top: 0; z-index: 100; width: 100%; }
.bar a, .bar .opener, .bar .find { color: var(--ink); padding: .45rem .6rem; border-radius: 7px;
  white-space: nowrap; }
.bar a:hover, .opener:hover { background: var(--paper); text-decoration: none; }
.bar a[aria-current], .opener.at { color: var(--water); font-weight: 600; }
.bar .brand { font-weight: 700; letter-spacing: .02em; margin-left: -.6rem; }
.grow { flex: 1; } .split { justify-content: space-between; }
.bar nav { display: flex; align-items: center; gap: .1rem; }
.opener, .find { font: inherit; background: none; border: 0; cursor: pointer; }
.opener::after { content: ""; display: inline-block; margin-left: .4rem; vertical-align: .15em;
  border: solid currentColor; border-width: 0 1.5px 1.5px 0; width: 6px; height: 6px;
  transform: rotate(45deg); }
.drop { position: relative; } .drop.main > .opener { display: none; }
.dropped { display: none; position: absolute; top: calc(100% + 6px); left: 0; z-index: 200;
  flex-direction: column; min-width: 12rem; padding: .4rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; box-shadow: 0 8px 24px rgb(0 0 0 / .16); }
.opener[aria-expanded=true] ~ .dropped { display: flex; }
.who .dropped { left: auto; right: 0; gap: .6rem; padding: .8rem; align-items: flex-start;
  min-width: 15rem; }
.who p { margin: 0; }
.who > .opener { max-width: 11rem; overflow: hidden; text-overflow: ellipsis; }
.bar .where > .opener { border: 1px solid var(--line); padding: .3rem .6rem; max-width: 12rem;
  overflow: hidden; text-overflow: ellipsis; font-weight: 600; }
.bar .where .dropped { align-items: stretch; max-height: 70vh; overflow: auto; }
.where .all { border-top: 1px solid var(--line); border-radius: 0; }
.sites { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); }
.bar .find { border: 1px solid var(--line); display: flex; align-items: center; gap: .4rem;
  padding: .3rem .6rem; color: var(--soft); background: var(--paper); }
.find .q-icon { font-size: 1.15rem; }
kbd { font: inherit; font-size: .75rem; border: 1px solid var(--line); border-radius: 4px;
  padding: 0 .3rem; background: var(--card); }
.finder { width: min(38rem, calc(100vw - 2rem)); margin: 12vh auto auto; padding: .6rem;
  border: 1px solid var(--line); border-radius: 12px; background: var(--card); color: var(--ink);
  box-shadow: 0 16px 48px rgb(0 0 0 / .3); }
.finder::backdrop { background: rgb(0 0 0 / .35); }
.finder input { width: 100%; font: inherit; font-size: 1.1rem; padding: .55rem .7rem; border: 0;
  border-radius: 7px; background: var(--paper); color: var(--ink); box-sizing: border-box; }
.finder ul { list-style: none; margin: .5rem 0; padding: 0; max-height: 55vh; overflow: auto; }
.finder li { display: flex; justify-content: space-between; gap: 1rem; padding: .4rem .7rem;
  border-radius: 7px; cursor: pointer; overflow-wrap: anywhere; }
.finder li[aria-selected=true], .finder li:hover { background: var(--paper); }
.finder li[aria-selected=true] { box-shadow: inset 3px 0 var(--water); }
.finder p { margin: 0 .7rem; font-size: .8rem; }

/* --- the content --- */
.nicegui-content { padding: 0; gap: 0; align-items: stretch; width: 100%; }
.content { width: 100%; max-width: 1500px; margin: 0 auto; padding: 1rem; gap: 1rem;
  display: flex; flex-direction: column; align-items: stretch; outline: 0; }
.below { display: flex; flex-direction: column; gap: 1rem; align-items: stretch; min-width: 0; }
.heading { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem .8rem; }
.trail { display: flex; flex-wrap: wrap; gap: .5rem; margin-right: -.3rem; }
.trail span::after { content: "/"; content: "/" / ""; color: var(--soft); margin-left: .5rem; }
.trail a { color: var(--soft); overflow-wrap: anywhere; }
.tabs { display: flex; flex-wrap: wrap; gap: 0 1.2rem; border-bottom: 1px solid var(--line);
  margin-top: -.5rem; }
.tabs a { padding: .35rem 0; color: var(--soft); border-bottom: 2px solid transparent;
  margin-bottom: -1px; }
.tabs a[aria-current] { color: var(--ink); font-weight: 600; border-color: var(--water); }
.panel { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem;
  display: flex; flex-direction: column; gap: .7rem; align-items: stretch; min-width: 0; }
.two { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
.tiles { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .65rem .9rem; position: relative; overflow: hidden; min-width: 0; }
.tile .label { color: var(--soft); font-size: .82rem; }
.tile .number { font-size: 1.4rem; font-weight: 600; white-space: nowrap; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
.tile .note { color: var(--soft); font-size: .8rem; min-height: 1.1em; overflow-wrap: anywhere; }
.tile.warn, .tile.bad { border-color: currentColor; box-shadow: inset 3px 0 currentColor; }
@media (min-width: 1200px) { .tiles.row { grid-auto-flow: column; grid-auto-columns: 1fr;
  grid-template-columns: none; gap: .6rem; } .tiles.row .tile { padding: .65rem .75rem; }
  .tiles.row .number { font-size: 1.22rem; } }
.tile .curve { position: absolute; right: .6rem; top: .7rem; width: 38%; max-width: 5.5rem; }
.tiles.facts-row { gap: 0; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; overflow: hidden;
  grid-template-columns: repeat(auto-fit, minmax(125px, 1fr)); }
.facts-row .tile { border: 0; border-radius: 0; box-shadow: -1px -1px var(--line); }
.facts-row .tile .number { font-size: 1.05rem; }
.facts-row .tile.warn, .facts-row .tile.bad { box-shadow: inset 3px 0 currentColor; }
.curve { height: 24px; } .curve svg { width: 100%; height: 100%; display: block; }
.curve polyline { fill: none; stroke: var(--water); stroke-width: 1.4;
  vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.curve polygon { fill: var(--water); opacity: .13; }
.curve .good polyline { stroke: var(--good); } .curve .good polygon { fill: var(--good); }
.curve .amber polyline { stroke: var(--amber); } .curve .amber polygon { fill: var(--amber); }
.badge { border: 1px solid currentColor; border-radius: 99px; padding: 0 .55rem; font-size: .8rem;
  background: none; line-height: 1.5; font-weight: 400; white-space: nowrap; }
.banner { border: 1px solid var(--line); border-left: 4px solid var(--warn);
  background: var(--card); padding: .6rem .9rem; border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.empty { text-align: center; color: var(--soft); padding: 2rem 1rem; }
.empty.panel { padding: 2.5rem 1rem; align-items: center; }
.finding { display: flex; gap: .7rem; align-items: flex-start; padding: .45rem 0;
  border-top: 1px solid var(--line); } .finding:first-child { border-top: 0; }
.finding .level { display: flex; align-items: center; gap: .3rem; min-width: 6.2rem;
  font-weight: 500; } .level .q-icon { font-size: 1.2rem; }
.counter { font-size: clamp(2.5rem, 9vw, 6rem); font-weight: 700;
  font-variant-numeric: tabular-nums; line-height: 1.1; }

/* --- tables and charts --- */
.grid { width: 100%; height: 100%; }
.grid .ag-root-wrapper { border-radius: 8px; --ag-background-color: var(--card);
  --ag-foreground-color: var(--ink); --ag-header-background-color: var(--card);
  --ag-header-text-color: var(--soft); --ag-border-color: var(--line);
  --ag-chrome-background-color: var(--paper); --ag-odd-row-background-color: var(--card);
  --ag-cell-horizontal-padding: 12px; --ag-font-family: inherit;
  --ag-header-column-resize-handle-color: transparent; --ag-font-size: 14px;
  --ag-row-border: solid 1px var(--line); --ag-wrapper-border: solid 1px var(--line);
  --ag-header-row-border: solid 1px var(--line); --ag-row-hover-color: var(--hover);
  --ag-value-change-value-highlight-background-color: var(--flash); }
.panel .grid .ag-root-wrapper { border-width: 1px 0 0; border-radius: 0; }
.ag-header-cell:hover { --ag-header-column-resize-handle-color: var(--line); }
.ag-header-cell-text { font-weight: 500; }
.ag-right-aligned-cell { font-variant-numeric: tabular-nums; }
.ag-layout-auto-height .ag-center-cols-viewport { min-height: 3rem !important; }
.ag-cell .curve { height: 35px; display: flex; align-items: center; } .zero { color: var(--soft); }
.ag-cell .curve svg { height: 22px; }
.share { display: flex; gap: .5rem; align-items: center; height: 100%; }
.share progress { flex: 1; min-width: 2rem; } .share span { min-width: 3em; text-align: right; }
progress.full { accent-color: var(--bad); }
progress { width: 100%; height: .55rem; accent-color: var(--water); }
.chart text { fill: var(--soft); }
.tip { background: var(--card) !important; border-color: var(--line) !important; }
.tip, .tip * { color: var(--ink) !important; }

/* --- single pages --- */
.ranks { display: grid; grid-template-columns: minmax(0, 1fr) 5.5rem max-content; gap: .3rem .9rem;
  align-items: center; }
.ranks a { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.ranks .amount { text-align: right; font-variant-numeric: tabular-nums; }
.nodes { display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fit, minmax(min(270px, 100%), 1fr)); }
.node { border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem; display: flex;
  flex-direction: column; gap: .3rem; min-width: 0; }
.node .heading { gap: .3rem .6rem; } .node a { overflow-wrap: anywhere; }
.saying { margin: 0; max-width: 110ch; }
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
.report { width: 100%; height: 75vh; border: 1px solid var(--line); border-radius: 10px; }

/* --- small screens, and those who want nothing to move --- */
@media (max-width: 1000px) {
  .drop.main { order: 9; }
  .drop.main > .opener { display: block; font-size: 1.3rem; line-height: 1; }
  .drop.main > .opener::after { content: none; }
  .drop.main > nav { display: none; position: absolute; right: 0; top: calc(100% + 6px);
    flex-direction: column; align-items: stretch; min-width: 13rem; padding: .4rem; z-index: 200;
    background: var(--card); border: 1px solid var(--line); border-radius: 10px;
    box-shadow: 0 8px 24px rgb(0 0 0 / .16); max-height: calc(100vh - 70px); overflow: auto; }
  .drop.main > .opener[aria-expanded=true] ~ nav { display: flex; }
  .drop.main nav .opener { display: none; }
  .drop.main nav .dropped { display: flex; position: static; border: 0; box-shadow: none;
    padding: 0; border-top: 1px solid var(--line); border-radius: 0; }
}
@media (max-width: 640px) { .content { padding: .6rem; gap: .8rem; } .bar { padding: 0 .6rem; }
  .find kbd, .find span { display: none; } .who > .opener { max-width: 7rem; }
  .bar .where > .opener { max-width: 6.5rem; } .bar .brand { padding: .45rem .3rem; }
  .settings { grid-template-columns: 1fr; } .panel { padding: .8rem; }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: .6rem; }
  .tile { padding: .5rem .7rem; } .tile .number { font-size: 1.2rem; }
  .ranks { grid-template-columns: minmax(0, 1fr) 4rem max-content; } }
@media (prefers-reduced-motion: reduce) {
  * { transition: none !important; animation: none !important; }
  .ag-cell-data-changed { background: none !important; } }
"""
)
