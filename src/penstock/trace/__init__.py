"""Events of traced messages: the bytes of a chunk of them, and the search for a message's.

The kernel writes them (`kernel/trace.pxi`), `broker/trace.py` stores them in the topic
`_trace`; what reads that topic (nsqadmin, the command line, Spark) decodes them here.
"""
