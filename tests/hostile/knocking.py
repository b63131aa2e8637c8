"""Strangers without a certificate who knock: `python -m tests.hostile.knocking PORT SECONDS`.

They come from 180 addresses of the loopback network. One third connects and closes at once, one
third connects and says nothing until it is cut off, one third shakes hands without a certificate.
Says at its end how many of each there were, as JSON.
"""

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections import Counter

ADDRESSES = [f"127.0.1.{number}" for number in range(1, 181)]
_A_SECOND = 1043
_MOST_SILENT = 4000
_HOLD_SECONDS = 10.0


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def knock_from(address: str, port: int, until: float, done: "Counter[str]") -> None:
    """One stranger, until the time is up."""
    own, context = (address, 0), _context()
    silent: set[asyncio.Task[None]] = set()
    turn, pause = 0, len(ADDRESSES) / _A_SECOND

    async def hold() -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=own)
            async with asyncio.timeout(_HOLD_SECONDS):
                await reader.read(1)
            writer.close()

    while time.monotonic() < until:
        began, turn = time.monotonic(), turn + 1
        kind = ("connects", "silent", "handshakes")[turn % 3]
        try:
            if kind == "silent":
                if len(silent) < _MOST_SILENT // len(ADDRESSES):
                    silent.add(task := asyncio.create_task(hold()))
                    task.add_done_callback(silent.discard)
            else:
                guard = context if kind == "handshakes" else None
                _, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=own, ssl=guard
                )
                writer.close()
            done[kind] += 1
        except OSError:
            done["failed"] += 1
        await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))
    for task in silent:
        task.cancel()


async def main(port: int, seconds: float) -> None:
    """All of them at once."""
    done: Counter[str] = Counter()
    began = time.monotonic()
    await asyncio.gather(
        *(knock_from(address, port, began + seconds, done) for address in ADDRESSES)
    )
    rate = sum(done.values()) / (time.monotonic() - began)
    print(json.dumps({**done, "a second": round(rate)}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
