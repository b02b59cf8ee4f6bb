#!/usr/bin/env python3
"""Registers a service with Pilotfish, keeps its lease, and deregisters at the end. Nothing but the standard library.

    python3 register.py --service web --port 8080

As a module:

    with Registration("http://127.0.0.1:15016", "web", 8080):
        serve()
"""

import argparse
import json
import logging
import random
import signal
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request

LOG = logging.getLogger("register")


class Refused(Exception):
    """The server says no, and would say so again."""


class Registration:
    """An instance that is registered between `with` and its end."""

    def __init__(self, server, service, port, *, namespace="default", instance_id=None, address=None,
                 ttl=30, labels=None, token_file=None, ca_file=None):
        host = urllib.parse.urlsplit(server).hostname
        self.address = address or own_address(host)
        self.id = instance_id or f"{socket.gethostname()}-{port}"
        self.ttl = ttl
        self.token_file = token_file
        self.context = ssl.create_default_context(cafile=ca_file) if server.startswith("https:") else None
        names = [urllib.parse.quote(name, safe="") for name in (namespace, service, self.id)]
        self.url = "{}/v1/namespaces/{}/services/{}/instances/{}".format(server.rstrip("/"), *names)
        self.instance = {
            "addresses": [self.address],
            "ports": [{"number": port}],
            "labels": labels or {},
            "ttl": f"{ttl}s",
        }
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._keep, name="registration", daemon=True)

    def __enter__(self):
        self._register()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        try:
            self._call("DELETE", self.url)
        except OSError as error:
            LOG.warning("cannot deregister, the lease ends in %s s: %s", self.ttl, error)

    def _register(self):
        answer = self._call("PUT", self.url, self.instance)
        LOG.info("registered at revision %s", answer["revision"])

    def _keep(self):
        """Renews after a third of the lease; registers again when the server does not know it any more."""
        failures = 0
        while not self.stop.wait(self._pause(failures)):
            try:
                if self._call("POST", self.url + ":renew", missing_ok=True) is None:
                    self._register()
                failures = 0
            except (OSError, Refused) as error:
                failures += 1
                LOG.warning("cannot renew, trying again: %s", error)

    def _pause(self, failures):
        usual = self.ttl / 3
        wait = min(usual, 0.1 * 2 ** min(failures, 10)) if failures else usual
        return wait * random.uniform(0.7, 1.0)

    def _call(self, method, url, body=None, missing_ok=False):
        """The answer; None for 404 where that may be. OSError is worth another try, Refused is not."""
        request = urllib.request.Request(url, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        if self.token_file:
            with open(self.token_file, encoding="utf-8") as file:
                request.add_header("authorization", "Bearer " + file.read().strip())
        try:
            with urllib.request.urlopen(request, timeout=5, context=self.context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(65536).decode(errors="replace")
            if error.code == 404 and missing_ok:
                return None
            message = describe(error.code, text)
            if error.code in (408, 429) or error.code >= 500:
                raise OSError(message) from None
            raise Refused(message) from None


def describe(status, text):
    """What went wrong, with the fields that are wrong."""
    try:
        error = json.loads(text)["error"]
        return f"{error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return f"HTTP {status}"


def own_address(server):
    """Our address on the way to the server. Nothing is sent."""
    family, kind, *_, address = socket.getaddrinfo(server, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="http://127.0.0.1:15016")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--service", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--id")
    parser.add_argument("--address")
    parser.add_argument("--ttl", type=int, default=30, help="seconds")
    parser.add_argument("--token-file")
    parser.add_argument("--ca-file")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    registration = Registration(
        options.server, options.service, options.port, namespace=options.namespace, instance_id=options.id,
        address=options.address, ttl=options.ttl, token_file=options.token_file, ca_file=options.ca_file)
    try:
        with registration:
            end.wait()
    except (OSError, Refused) as error:
        LOG.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
