"""Spans of a real decision and a real request reach a collector, and a collector that hangs stops nothing."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from queuer.local.cluster import API_PART
from tests.e2e import nursery
from tests.e2e.controller import Controller, tree
from tests.e2e.scene import Scene
from tests.e2e.support import wait_until

PHASES = {"queuer.snapshot", "queuer.decide", "queuer.answer", "queuer.commit"}


@dataclass(slots=True)
class Collector:
    """Received spans, with the service that each is of. While `silent` is not set it answers."""

    url: str = ""
    spans: list[tuple[str, Span]] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def named(self, name: str) -> list[Span]:
        """Spans of a name."""
        return [span for _, span in self.spans if span.name == name]

    def of_trace(self, trace: bytes) -> list[Span]:
        """Spans of a trace."""
        return [span for _, span in self.spans if span.trace_id == trace]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on loopback, as OTLP/HTTP has it."""
    found = Collector()

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.asked += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if found.silent.is_set():
                found.over.wait(60)
                return
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                known = {a.key: a.value.string_value for a in resource.resource.attributes}
                for scope in resource.scope_spans:
                    found.spans += [(known["service.name"], span) for span in scope.spans]
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receive) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield found
        finally:
            found.over.set()
            server.shutdown()
            thread.join()


def test_decisions_and_requests_are_traced_and_a_collector_that_hangs_stops_nothing(scene: Scene) -> None:
    scene.database.apply(tree(scene.namespace))
    with collector() as found:
        settings = {"OTEL_EXPORTER_OTLP_ENDPOINT": found.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
        controller = scene.start(**settings)
        scene.exits.callback(scene.cluster.stop, [API_PART])
        nursery.start_part(scene.cluster, API_PART, QUEUER_DATABASE_URL=scene.database.url, **settings)
        scene.job("traced", pods=1, gpus=1)
        scene.wait_state("traced", "Running")
        wait_until(lambda: found.named("queuer.patch"), timeout=30, describe="the PATCH is told")
        _one_trace_has_the_whole_decision(scene, found, controller)

        caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        url = f"{scene.cluster.queuer_url}/api/v1"
        httpx2.get(f"{url}/meta", headers={"traceparent": caller}, trust_env=False, timeout=60)
        assert httpx2.get(f"{url}/workloads/no-such-job", trust_env=False, timeout=60).status_code in (
            401,
            404,
        )
        wait_until(lambda: found.named("GET /api/v1/meta"), timeout=30, describe="the request is told")
        (asked,) = found.named("GET /api/v1/meta")
        assert asked.trace_id.hex() == caller.split("-")[1]
        assert {service for service, span in found.spans if span.name.startswith("GET")} == {"queuer-api"}
        assert not [span for _, span in found.spans if "livez" in span.name or "no-such-job" in str(span)]

        found.silent.set()
        before = found.asked
        scene.job("untold", pods=1, gpus=1)
        scene.wait_state("untold", "Running")
        wait_until(
            lambda: found.asked > before, timeout=30, describe="the collector is asked and says nothing"
        )
        cycles = controller.metric("queuer_cycles_total")
        scene.job("untold-too", pods=1, gpus=1)
        scene.wait_state("untold-too", "Running")
        assert controller.metric("queuer_leader_terms_ended_total") == 0
        wait_until(
            lambda: controller.metric("queuer_cycles_total") > cycles, timeout=30, describe="it decides"
        )
        began = time.monotonic()
        controller.stop()
        assert time.monotonic() - began < 15, "the end does not wait for a collector"


def _one_trace_has_the_whole_decision(scene: Scene, found: Collector, controller: Controller) -> None:
    uid = scene.database.workload("traced", scene.namespace)["uid"]
    (patch,) = found.named("queuer.patch")
    told = {a.key: a.value.string_value for a in patch.attributes}
    assert (told["queuer.workload"], told["queuer.kind"], told["queuer.outcome"]) == (
        str(uid),
        "admit",
        "applied",
    )
    wait_until(
        lambda: {"queuer.cycle"} | PHASES <= {span.name for span in found.of_trace(patch.trace_id)}, timeout=30,
        describe=lambda: f"all phases are told: {sorted(span.name for _, span in found.spans)}",
    )  # fmt: skip
    (cycle,) = (span for span in found.of_trace(patch.trace_id) if span.name == "queuer.cycle")
    assert {span.parent_span_id for span in found.of_trace(patch.trace_id) if span.name in PHASES} == {
        cycle.span_id
    }
    lines = [json.loads(line) for line in controller.log_tail(1000).splitlines()]
    assert patch.trace_id.hex() in {line.get("trace_id") for line in lines if line["event"] == "cycle"}
