"""The part of Istio's agent that Envoy needs: workload certificates over SDS, one and the same for every name.

    agent.py CERTIFICATE KEY    prints its port and serves until it is killed
"""
import concurrent.futures
import sys

import grpc
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.discovery.v3 import discovery_pb2
from envoy.service.secret.v3 import sds_pb2_grpc


def is_root(name):
    return name == "ROOTCA" or name.startswith("file-root:") or name.endswith("-cacert")


class Agent(sds_pb2_grpc.SecretDiscoveryServiceServicer):
    def __init__(self, certificate, key):
        self.certificate, self.key = certificate, key

    def secret(self, name):
        secret = secret_pb2.Secret(name=name)
        if is_root(name):
            secret.validation_context.trusted_ca.filename = self.certificate
        else:
            secret.tls_certificate.certificate_chain.filename = self.certificate
            secret.tls_certificate.private_key.filename = self.key
        return secret

    def StreamSecrets(self, requests, context):
        sent = None
        for request in requests:
            names = sorted(request.resource_names)
            if names == sent or request.HasField("error_detail"):
                continue
            sent = names
            response = discovery_pb2.DiscoveryResponse(type_url=request.type_url, version_info="1", nonce="1")
            for name in names:
                response.resources.add().Pack(self.secret(name))
            yield response


def main():
    # Every secret has a stream of its own, and a stream keeps a thread.
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2000))
    sds_pb2_grpc.add_SecretDiscoveryServiceServicer_to_server(Agent(*sys.argv[1:3]), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


main()
