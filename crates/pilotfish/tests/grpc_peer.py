"""A gRPC client over xds:/// and the servers behind it, driven by lines on standard input.

    serve IP NAME      starts a server that answers with its name; prints its port
    ask TARGET N       sends N requests to the target; prints who answered how often, as JSON
    end

Errors are answers too: they are counted under the status code's name.
"""
import collections
import concurrent.futures
import json
import sys

import grpc

METHOD = "/pilotfish.test.Echo/Who"


def serve(ip, name):
    handlers = {"Who": grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())}
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pilotfish.test.Echo", handlers),))
    port = server.add_insecure_port(f"{ip}:0")
    server.start()
    return server, port


def ask(channel, times):
    tally = collections.Counter()
    who = channel.unary_unary(METHOD)
    for _ in range(times):
        try:
            tally[who(b"", timeout=10, wait_for_ready=True).decode()] += 1
        except grpc.RpcError as error:
            tally[f"{error.code().name}: {error.details()}"] += 1
    return tally


def main():
    servers, channels = [], {}
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "serve":
            server, port = serve(*rest)
            servers.append(server)
            print(port, flush=True)
        elif command == "ask":
            target, times = rest
            if target not in channels:
                channels[target] = grpc.insecure_channel(target)
            print(json.dumps(ask(channels[target], int(times))), flush=True)
        else:
            return


if __name__ == "__main__":
    main()
