#!/usr/bin/env python3
"""Dump everything an xDS control plane sends to one proxy, as sorted JSON.

Opens one ADS stream (state-of-the-world or delta), subscribes the way a sidecar,
a gateway or a proxyless gRPC client does (CDS and LDS first, then EDS for every
EDS cluster and RDS for every route name that a listener refers to), ACKs every
response, and writes what it received:

    {"clusters": {...}, "endpoints": {...}, "listeners": {...}, "routes": {...}, ...}

Needs Python 3.10+ and the packages grpcio and xds-protos.
"""
import argparse
import base64
import importlib
import json
import pathlib
import queue
import sys
import time

import grpc
from google.protobuf import any_pb2, json_format, struct_pb2
from google.protobuf.descriptor import FieldDescriptor

from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

PREFIX = "type.googleapis.com/"
TYPES = {
    "clusters": PREFIX + "envoy.config.cluster.v3.Cluster",
    "endpoints": PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "listeners": PREFIX + "envoy.config.listener.v3.Listener",
    "routes": PREFIX + "envoy.config.route.v3.RouteConfiguration",
    "secrets": PREFIX + "envoy.extensions.transport_sockets.tls.v3.Secret",
    "extensions": PREFIX + "envoy.config.core.v3.TypedExtensionConfig",
}
SHORT = {url: short for short, url in TYPES.items()}
WELL_KNOWN = "google.protobuf."


def load_all_protos():
    """Imports every generated module, so that any `Any` can be opened."""
    import envoy
    roots = [pathlib.Path(p) for p in envoy.__path__]
    for package in ("udpa", "xds"):
        try:
            roots += [pathlib.Path(p) for p in importlib.import_module(package).__path__]
        except ImportError:
            pass
    for root in roots:
        for path in sorted(root.rglob("*_pb2.py")):
            name = ".".join((root.name,) + path.relative_to(root).with_suffix("").parts)
            try:
                importlib.import_module(name)
            except Exception:
                # A few extensions lean on packages that are not installed; an `Any` of theirs stays opaque.
                pass


def open_any(message):
    from google.protobuf import symbol_database
    name = message.type_url.rsplit("/", 1)[-1]
    try:
        inner = symbol_database.Default().GetSymbol(name)()
    except KeyError:
        return {"@type": message.type_url, "@bytes": base64.b64encode(message.value).decode()}
    inner.ParseFromString(message.value)
    body = to_json(inner)
    return {"@type": message.type_url, **body} if isinstance(body, dict) else {"@type": message.type_url, "value": body}


def to_json(message):
    """Like proto3 JSON with the proto field names, but never fails on an `Any` of an unknown type."""
    if isinstance(message, any_pb2.Any):
        return open_any(message)
    if message.DESCRIPTOR.full_name.startswith(WELL_KNOWN):
        return json_format.MessageToDict(message)
    out = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            out[field.name] = {str(k): scalar(inner, v) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
        elif field.is_repeated:
            out[field.name] = [scalar(field, v) for v in value]
        else:
            out[field.name] = scalar(field, value)
    return out


def scalar(field, value):
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return to_json(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    return value


def any_urls(node):
    """All dictionaries below `node`."""
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def eds_names(clusters):
    names = set()
    for name, cluster in clusters.items():
        if cluster.get("type") == "EDS":
            names.add(cluster.get("eds_cluster_config", {}).get("service_name") or name)
    return names


def rds_names(listeners):
    return {d["rds"]["route_config_name"] for d in any_urls(listeners)
            if isinstance(d.get("rds"), dict) and d["rds"].get("route_config_name")}


def cluster_names(node):
    """The clusters that routes and TCP proxies below `node` refer to, by name or by weight."""
    names = set()
    for item in any_urls(node):
        if isinstance(item.get("cluster"), str):
            names.add(item["cluster"])
        if isinstance(item.get("weighted_clusters"), dict):
            names |= {c["name"] for c in item["weighted_clusters"].get("clusters", ()) if c.get("name")}
    return names


class Stream:
    """One ADS stream; `mode` is "sotw" or "delta"."""

    def __init__(self, channel, mode, node, timeout):
        self.mode, self.node, self.timeout = mode, node, timeout
        self.sent = queue.Queue()
        stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        call = stub.DeltaAggregatedResources if mode == "delta" else stub.StreamAggregatedResources
        self.first = True
        self.resources = {short: {} for short in TYPES}
        self.subscribed = {}
        self.responses = {short: 0 for short in TYPES}
        # The names that were sent or said not to exist, of each type.
        self.answered = {short: set() for short in TYPES}
        self.received_bytes = 0
        self.call = call(iter(self.sent.get, None))
        self.inbox = queue.Queue()
        import threading
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for response in self.call:
                self.inbox.put(response)
        except grpc.RpcError as error:
            self.inbox.put(error)

    def _send(self, request):
        if self.first:
            request.node.CopyFrom(self.node)
            self.first = False
        self.sent.put(request)

    def subscribe(self, short, names=()):
        names = set(names)
        before = self.subscribed.get(short)
        if before is not None and names == before:
            return
        self.subscribed[short] = names
        if self.mode == "delta":
            self._send(discovery_pb2.DeltaDiscoveryRequest(
                type_url=TYPES[short],
                resource_names_subscribe=sorted(names - (before or set())),
                resource_names_unsubscribe=sorted((before or set()) - names)))
        else:
            state = getattr(self, "acks", {}).get(short, ("", ""))
            self._send(discovery_pb2.DiscoveryRequest(
                type_url=TYPES[short], resource_names=sorted(names),
                version_info=state[0], response_nonce=state[1]))

    def _accept(self, response):
        short = SHORT.get(response.type_url)
        if short is None:
            return None
        self.responses[short] += 1
        self.received_bytes += response.ByteSize()
        store = self.resources[short]
        if self.mode == "delta":
            for resource in response.resources:
                store[resource.name] = resource.resource
                self.answered[short].add(resource.name)
            for name in response.removed_resources:
                store.pop(name, None)
                self.answered[short].add(name)
            self._send(discovery_pb2.DeltaDiscoveryRequest(
                type_url=response.type_url, response_nonce=response.nonce))
        else:
            if short in ("clusters", "listeners"):
                store.clear()
            for resource in response.resources:
                name = name_of(resource)
                store[name] = resource
                self.answered[short].add(name)
            self.acks = getattr(self, "acks", {})
            self.acks[short] = (response.version_info, response.nonce)
            self._send(discovery_pb2.DiscoveryRequest(
                type_url=response.type_url, version_info=response.version_info,
                response_nonce=response.nonce, resource_names=sorted(self.subscribed.get(short, ()))))
        return short

    def complete(self, wanted):
        """Whether every name that was asked for was answered: then there is nothing left to wait for."""
        return all(self.subscribed.get(short) and self.subscribed[short] <= self.answered[short] for short in wanted)

    def settle(self, wanted, quiet):
        """Reads until every type in `wanted` was answered and nothing more came for `quiet` seconds.

        Where names were asked for, it ends as soon as each of them was answered.
        """
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            if self.complete(wanted):
                return True
            try:
                response = self.inbox.get(timeout=quiet)
            except queue.Empty:
                if all(self.responses[short] for short in wanted):
                    return True
                continue
            if isinstance(response, grpc.RpcError):
                raise SystemExit(f"stream ended: {response.code()}: {response.details()}")
            self._accept(response)
        return all(self.responses[short] for short in wanted)

    def json(self, short):
        return {name: open_body(value) for name, value in sorted(self.resources[short].items())}

    def close(self):
        self.sent.put(None)
        self.call.cancel()


def open_body(value):
    body = to_json(value)
    if isinstance(body, dict):
        body.pop("@type", None)
    return body


def name_of(resource):
    body = to_json(resource)
    return body.get("name") or body.get("cluster_name") or ""


def node_of(args):
    node = base_pb2.Node(id=args.node_id, cluster=args.cluster, user_agent_name="envoy")
    metadata = json.loads(args.metadata)
    if metadata:
        json_format.ParseDict(metadata, node.metadata)
    if args.locality:
        parts = (args.locality.split("/") + ["", "", ""])[:3]
        node.locality.region, node.locality.zone, node.locality.sub_zone = parts
    return node


def dump(server, node, mode="delta", timeout=20.0, quiet=0.5, listeners=None):
    """Returns the sorted resources that `server` sends to `node`.

    listeners: names to ask for (proxyless gRPC); None asks for all, as Envoy does.
    """
    options = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(server, options=options)
    grpc.channel_ready_future(channel).result(timeout=timeout)
    stream = Stream(channel, mode, node, timeout)
    out = {}
    try:
        if listeners is None:
            stream.subscribe("clusters")
            if not stream.settle(["clusters"], quiet):
                raise SystemExit("no CDS response")
            names = eds_names(stream.json("clusters"))
            if names:
                stream.subscribe("endpoints", names)
                stream.settle(["endpoints"], quiet)
        stream.subscribe("listeners", listeners or ())
        if not stream.settle(["listeners"], quiet):
            raise SystemExit("no LDS response")
        names = rds_names(stream.json("listeners"))
        if names:
            stream.subscribe("routes", names)
            stream.settle(["routes"], quiet)
        if listeners is not None:
            names = cluster_names([stream.json("listeners"), stream.json("routes")])
            stream.subscribe("clusters", names)
            stream.settle(["clusters"], quiet)
            names = eds_names(stream.json("clusters"))
            if names:
                stream.subscribe("endpoints", names)
                stream.settle(["endpoints"], quiet)
        for short in ("clusters", "endpoints", "listeners", "routes"):
            out[short] = stream.json(short)
    finally:
        stream.close()
        channel.close()
    return out


def text(result):
    """A dump as JSON with one resource on each line: short, and a diff shows which resource changed."""
    kinds = []
    for kind, resources in sorted(result.items()):
        rows = [f"  {json.dumps(name)}: {json.dumps(body, sort_keys=True, separators=(',', ':'))}"
                for name, body in sorted(resources.items())]
        kinds.append(f" {json.dumps(kind)}: {{" + ("\n" + ",\n".join(rows) + "\n }" if rows else "}"))
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:15010")
    parser.add_argument("--node-id", default="sidecar~10.0.0.1~probe-1.default~default.svc.cluster.local")
    parser.add_argument("--cluster", default="probe.default")
    parser.add_argument("--metadata", default="{}", help="JSON object")
    parser.add_argument("--locality", default="", help="region/zone/sub_zone")
    parser.add_argument("--mode", choices=["sotw", "delta"], default="delta")
    parser.add_argument("--listener", action="append", help="ask for this listener only (proxyless gRPC); may repeat")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for each step")
    parser.add_argument("--quiet", type=float, default=0.5, help="seconds without a response that end a step")
    args = parser.parse_args()
    load_all_protos()
    result = dump(args.server, node_of(args), args.mode, args.timeout, args.quiet, args.listener)
    sys.stdout.write(text(result))


if __name__ == "__main__":
    main()
