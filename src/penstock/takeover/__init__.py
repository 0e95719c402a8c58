"""The data of an official nsqd: reading it, taking it over into topics, and writing it back.

`diskqueue` and `diskrecords` know its files, `takeover` makes topics of them, `writeback` makes
them of topics. This package stands above the broker, which knows nothing of it.
"""
