"""What a scraper sees of a server in this process."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from tests.service.harness import Served

SIDE_PORT = {"metrics_listen": "127.0.0.1:0"}


async def http(server: Served, request: str) -> tuple[str, str]:
    """Head and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.metrics_port)
    writer.write(request.encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


async def scrape(server: Served) -> dict[str, float]:
    """Every sample as `name{label="value"}`; parsed by Prometheus' own parser."""
    head, body = await http(server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 ")
    assert f"Content-Length: {len(body)}" in head
    samples = {}
    for family in text_string_to_metric_families(body):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples
