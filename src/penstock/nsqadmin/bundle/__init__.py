"""The diagnostic bundle: one file with what an installation says of itself, and what is wrong.

`gather.py` asks the daemons, `machine.py` looks at this machine, `files.py` writes the zip, and
reads one that may come from anybody; `judge.py` finds what is wrong in it. `hiding.py` is why it
can be given away: secrets never get in. Bodies of messages are never asked for. docs/formats.md has
the list of its files.
"""
