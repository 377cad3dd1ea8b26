"""A market over HTTP, with MiniStack behind it: run as a program, it prints its port.

MiniStack has one state for its process, so it gets a process of its own.
"""

import asyncio
import logging
import os
import socket
from datetime import UTC, datetime, timedelta

from hypercorn.asyncio import serve
from hypercorn.config import Config

from spindown.ec2sim import Ec2Instance
from spindown.local.market import (
    LocalMarket,
    MarketApp,
    MetadataApp,
    RoleCredentials,
    service_of,
)
from spindown.local.market.scenario import parse_scenario
from spindown.local.market.wire.asgi import App, Receive, Scope, Send
from tests.local.market.world import PLAIN


def _role(instance: Ec2Instance) -> RoleCredentials:
    return RoleCredentials(
        role="worker",
        access_key=f"AKIA-{instance.instance_id}",
        secret_key="secret",
        token="session",
        expires_at=datetime.now(UTC) + timedelta(hours=6),
    )


def _gateway(upstream: App) -> App:
    scenario = parse_scenario(PLAIN, origin="test")
    market = LocalMarket(scenario, clock=lambda: datetime.now(UTC))
    market_app, metadata = MarketApp(market, upstream), MetadataApp(market, credentials=_role)

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await upstream(scope, receive, send)
        elif scope["path"].startswith("/i-"):
            await metadata(scope, receive, send)
        elif service_of(scope["headers"]) in {"ec2", "pricing", "servicequotas"}:
            await market_app(scope, receive, send)
        else:
            await upstream(scope, receive, send)

    return route


def main() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        os.environ["GATEWAY_PORT"] = str(port)
        from ministack.app import app  # noqa: PLC0415 - reads the environment when imported

        logging.disable(logging.WARNING)
        config = Config()
        config.bind = [f"fd://{listener.fileno()}"]
        listener.listen()
        print(port, flush=True)  # noqa: T201 - the caller reads it
        asyncio.run(serve(_gateway(app), config))  # type: ignore[arg-type]  # ASGI by shape


if __name__ == "__main__":
    main()
