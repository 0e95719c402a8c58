"""An object store on this machine, in a process of its own: delta-rs waits for it with Python's
lock held, so it can't be a thread of the test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.exceptions import EndpointConnectionError

from e2e.ports import kept_port

START_S_MAX = 60.0
KEY, SECRET, REGION = "akey", "averysecretone", "eu-west-1"
BUCKET = "lake"


@contextmanager
def store() -> Iterator[Store]:
    port = kept_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1"]
    process = subprocess.Popen(
        [*command, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield Store(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


class Store:
    def __init__(self, url: str) -> None:
        self.url = url
        given: dict[str, Any] = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        self._client = boto3.client("s3", endpoint_url=url, region_name=REGION, **given)
        deadline_s = time.monotonic() + START_S_MAX
        while True:
            try:
                where: Any = {"LocationConstraint": REGION}
                self._client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
                return
            except EndpointConnectionError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)

    @property
    def options(self) -> dict[str, str]:
        """As delta-rs takes them."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def pairs(self) -> tuple[str, ...]:
        """As the command line takes them."""
        return tuple(f"{name}={value}" for name, value in self.options.items())

    def table(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"
