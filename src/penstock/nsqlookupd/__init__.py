"""The discovery daemon: which nsqd has which topics and channels."""
