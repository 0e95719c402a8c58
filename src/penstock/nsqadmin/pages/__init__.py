"""The web UI: NiceGUI pages at the official URLs, live over one websocket.

`site.py` has the table of pages. NiceGUI calls one for each browser: `layout.py` finds its caller
and draws its frame; the page draws itself, and follows the installation by `layout.follow`. What it
changes goes through `layout.change`, which asks the gate again, writes the audit log and shows the
result. `resource.py` is the frame of pages about one thing, `parts.py` what all are made of.
"""
