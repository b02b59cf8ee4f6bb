"""A gRPC client over xds:/// and gRPC servers, driven by one JSON array on each line of standard input.

    ["serve", ADDRESS, NAME, CREDENTIALS]           starts a server that answers with its name; prints its port
    ["ask", TARGET, CREDENTIALS, TIMES, HEADERS]    sends requests; prints who answered how often
    ["load", TARGET, CREDENTIALS]                   sends requests until told to stop; prints null
    ["sent"]                                        prints how many requests of the load were answered so far
    ["stop"]                                        ends the load; prints who answered how often

CREDENTIALS are "plain", or "xds": what the control plane says, and plain where it says nothing. A server with "xds"
gets its listener over xDS too. Errors are answers: they are counted under the status code's name and its words.
"""
import collections
import concurrent.futures
import json
import sys
import threading

import grpc
import grpc.experimental

SERVICE = "pilotfish.test.Echo"
METHOD = f"/{SERVICE}/Who"


def serve(address, name, credentials):
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())
    pool = concurrent.futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, xds=credentials == "xds")
    handlers = {"Who": handler, "Admin": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if credentials == "xds":
        fallback = grpc.insecure_server_credentials()
        server.add_secure_port(address, grpc.xds_server_credentials(fallback))
        # The library tells no port: it opens it only when the listener has come.
        port = int(address.rsplit(":", 1)[1])
    else:
        port = server.add_insecure_port(address)
    server.start()
    return server, port


def connect(target, credentials):
    if credentials == "xds":
        fallback = grpc.experimental.insecure_channel_credentials()
        return grpc.secure_channel(target, grpc.xds_channel_credentials(fallback))
    return grpc.insecure_channel(target)


def ask(channel, headers):
    headers = dict(headers)
    method = headers.pop(":path", METHOD)
    try:
        return channel.unary_unary(method)(b"", timeout=10, metadata=list(headers.items())).decode()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


class Load:
    """Requests one after the other, from a thread of their own."""

    def __init__(self, channel):
        self.channel, self.tally, self.stopping = channel, collections.Counter(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stopping.is_set():
            self.tally[ask(self.channel, {})] += 1

    def stop(self):
        self.stopping.set()
        self.thread.join()
        return self.tally


class Peer:
    def __init__(self):
        self.servers, self.channels, self.load = [], {}, None

    def channel(self, target, credentials):
        key = target, credentials
        if key not in self.channels:
            self.channels[key] = connect(target, credentials)
        return self.channels[key]

    def answer(self, command, *rest):
        if command == "serve":
            server, port = serve(*rest)
            self.servers.append(server)
            return port
        if command == "ask":
            target, credentials, times, headers = rest
            channel = self.channel(target, credentials)
            return collections.Counter(ask(channel, headers) for _ in range(times))
        if command == "load":
            self.load = Load(self.channel(*rest))
            return None
        if command == "sent":
            return sum(self.load.tally.copy().values())
        if command == "stop":
            return self.load.stop()
        raise ValueError(f"unknown command {command}")


def main():
    peer = Peer()
    for line in sys.stdin:
        print(json.dumps(peer.answer(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
