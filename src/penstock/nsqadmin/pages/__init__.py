"""What people see: NiceGUI pages at the official URLs, live over one websocket.

A page is a function that NiceGUI calls for each browser. It finds its caller by `layout.opened`,
draws itself inside `layout.page`, and follows the installation by `layout.follow`. What it changes
goes through `layout.change`, which asks the gate again, writes the audit log and shows the result.
"""
