"""A question to the SQL process (`console.py`), and the end of that process when it takes long."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from penstock import limits
from penstock.nsqadmin.console import Question, Reply


async def ask(question: Question) -> Reply:
    """What it gives, or the reason why not as `error`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock.nsqadmin.console",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = await asyncio.wait_for(
            process.communicate(msgspec.json.encode(question)), limits.ADMIN_SQL_S
        )
    except TimeoutError:
        return Reply(error=f"stopped: it took more than {limits.ADMIN_SQL_S:.0f} seconds")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Reply(error=f"the statement failed: {last or 'the process was ended'}")
    return msgspec.json.decode(out, type=Reply)
