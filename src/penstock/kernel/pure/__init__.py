"""The kernel in plain Python: the readable specification, and the form without a C compiler."""
