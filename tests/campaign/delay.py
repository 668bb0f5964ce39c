"""`python delay.py MILLISECONDS`: leads connections to port 2022 on to sshd's, each piece up to so much later (standard
library)."""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress


async def lead(source: asyncio.StreamReader, target: asyncio.StreamWriter, most: float) -> None:
    """Pieces in their order, each after its delay."""
    with suppress(OSError):
        while piece := await source.read(65536):
            await asyncio.sleep(random.uniform(0, most))
            target.write(piece)
            await target.drain()
    with suppress(OSError):
        target.close()


async def listen(most: float, port: int = 2022, target: int = 22) -> asyncio.Server:
    """Port 0: one that is free."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(lead(reader, forth, most), lead(back, writer, most))

    return await asyncio.start_server(connected, "0.0.0.0", port)


async def serve(most: float) -> None:
    """Until it is killed."""
    await (await listen(most)).serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) / 1000))
