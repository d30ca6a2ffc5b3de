"""The fake farm as a process: it obeys commands on stdin and answers on stdout, a JSON object a line.

sim/processes.py is the other end. The process ends when stdin closes.

    python -m sim.farm_process --hosts FILE --intake 127.0.0.1:8443
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from sim.fake_farm import Behaviour, FakeFarm
from sim.fake_rqd import FakeHost


def load_hosts(path: Path) -> dict[str, FakeHost]:
    """Hosts from a JSON list of {name, cores (points), mem (KiB), gpus, gpu_mem (KiB), tags}."""
    return {
        row["name"]: FakeHost(
            row["name"], cores=row["cores"], mem=row["mem"], gpus=row.get("gpus", 0), gpu_mem=row.get("gpu_mem", 0),
            tags=tuple(row.get("tags", ("general",))),
        )
        for row in json.loads(path.read_text())
    }  # fmt: skip


async def _commands(farm: FakeFarm, answer: Callable[[dict[str, Any]], None]) -> None:
    """Obey until stdin closes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        try:
            answer(await farm.obey(json.loads(line)))
        except (KeyError, TypeError, ValueError, grpc.RpcError) as error:
            answer({"error": f"{type(error).__name__}: {error}"})


def _answer(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


async def _main(options: argparse.Namespace) -> None:
    behaviour = Behaviour(**json.loads(options.behaviour))
    farm = FakeFarm(options.intake, behaviour, Path(options.log) if options.log else None)
    farm.hosts = load_hosts(Path(options.hosts))
    await farm.start(f"127.0.0.1:{options.port}")
    # What lives now lives long: collections need not look at it again.
    gc.collect()
    gc.freeze()
    tasks = [asyncio.create_task(farm.run_clock()), asyncio.create_task(farm.report_all())]
    _answer({"port": farm.port, "hosts": len(farm.hosts)})
    try:
        await _commands(farm, _answer)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await farm.stop()
        farm.close_log()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim.farm_process", description="A farm of fake RQDs at one port.")
    parser.add_argument("--hosts", required=True, metavar="FILE", help="JSON list of hosts")
    parser.add_argument("--intake", required=True, metavar="HOST:PORT", help="where reports go")
    parser.add_argument("--port", type=int, default=0, help="port to serve at [default: any free one]")
    parser.add_argument("--behaviour", default="{}", metavar="JSON", help="fields of Behaviour")
    parser.add_argument("--log", metavar="FILE", help="write starts and ends here, a JSON object a line")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
