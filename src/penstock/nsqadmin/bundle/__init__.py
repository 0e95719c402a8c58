"""The diagnostic bundle: gathered (`gather.py`), written and read (`files.py`), judged."""
