"""The numbers of `interface.py`: events, and what they say."""

cdef enum:  # Verb
    PUB = 1
    MPUB = 2
    PUB_EXT = 4
    MPUB_EXT = 5

cdef enum:  # Event
    LINE = 1
    BODY = 2
    BODY_SIZE = 3
    BAD_PUB = 4
    TOPIC = 5
    REFUSED = 6
    PUB_FAILED = 7
    FIN_FAILED = 8
    BAD_MAGIC = 10
    CUT = 12
    TRACED = 13
    SPREAD_REFUSED = 14
    CROWDED = 15

cdef enum:  # Cut
    CUT_SIZE = 1
    CUT_BODY = 2
    CUT_COUNT = 3
    CUT_MESSAGE_SIZE = 4
    CUT_MESSAGE = 5

cdef enum:  # BadPub
    TOPIC_NAME = 1
    SIZE_INVALID = 2
    SIZE_TOO_BIG = 3
    BODY_INVALID = 4
    BODY_TOO_BIG = 5
    COUNT_INVALID = 6
    MESSAGE_INVALID = 7
    MESSAGE_TOO_BIG = 8
    PARAMS = 9
    PARTITION = 10
    HEADER_SIZE = 11
    HEADER_INVALID = 12
    HEADER_REFUSED = 13
