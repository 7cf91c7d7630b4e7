"""A bare grpc.aio server with the service's options, which says what it hears: what gRPC alone takes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from sonorant.service.listening.ports import OPTIONS

PATH = "/tests.Echo/Echo"


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._echo)

    async def _echo(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request


async def main() -> None:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
