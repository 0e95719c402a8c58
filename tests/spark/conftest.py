"""A broker that answers as a test wants; the Spark session is in tests/conftest.py."""

from e2e.answering import served

from .fakebroker import FakeBroker

broker = served(FakeBroker)
