//! Examples in the `--help` of each command.

pub(super) const PILOTFISH: &str = "Examples:
  pilotfish demo                                see it work: sample services, an Envoy, live traffic
  pilotfish serve ./mesh                        serve a folder of Kubernetes and Istio YAML
  pilotfish serve --kubernetes                  serve a live cluster
  pilotfish register --service web --port 8001 -- ./web     run a program as a registered service
  pilotfish validate ./mesh                     check it without serving
  pilotfish bench --quick --proxies 100         measure it, with as many proxies
  pilotfish bootstrap envoy > envoy.json        connect a stock Envoy: envoy -c envoy.json
  pilotfish proxies                             who is connected, and what was refused
  pilotfish wait VirtualService/shop/catalog    until all proxies have a change
  curl localhost:15014/ready                    is it ready, and what is wrong";

pub(super) const SYNC: &str = "Examples:
  pilotfish sync polaris --address polaris:8090 --cluster-name east --dry-run      what it would do
  pilotfish sync polaris --address polaris:8090 --cluster-name east --once
      one pass and a table
  pilotfish sync polaris --address polaris:8090 --cluster-name east --leader-elect

Annotations, metadata and calls are those of polaris-controller: see docs/polaris.md.";

pub(super) const SERVE: &str = "Examples:
  pilotfish serve ./mesh                               a folder of Kubernetes and Istio YAML
  pilotfish serve services.yaml routes.yaml --mesh-config mesh.yaml
  pilotfish serve ./mesh --secure-xds-address 0.0.0.0:15012 --tls-cert-file server.pem \\
    --tls-key-file server.key \\
    --ca-cert-file root-cert.pem                       proxies on other machines; see
                                                       docs/identity.md
  pilotfish serve --kubernetes                         a live cluster
  pilotfish serve --registry consul=http://HOST:8500   Consul, without Kubernetes; see the
                                                       registries below
  pilotfish serve --settings pilotfish.yaml

A changed object takes effect as soon as it is written; a broken one keeps its last good version.
SIGHUP turns debug logs on, and off again. On the admin address: /ready (is it ready, what is
wrong), /metrics, /debug (everything else).";

pub(super) const REGISTER: &str = "Examples:
  pilotfish serve --registration-address 127.0.0.1:15016                    where programs register
  pilotfish register --service web --port 8001 -- python3 -m http.server 8001
  pilotfish register --service web --port 8002 --label version=v2 --drain 5s -- ./web
  pilotfish register --service billing.example.com --port 9000 --protocol grpc --check grpc \\
    -- ./billing

The program gets our signals. At SIGTERM, SIGINT, SIGQUIT and SIGHUP it is deregistered first, and
gets the signal after --drain; the exit code is its own. A program that outlives us (kill -9) is
found until --ttl has passed.";

pub(super) const REGISTRIES: &str = "Examples:
  pilotfish registries                                 what there is
  pilotfish registries consul                          the options of one
  pilotfish registries -o json | jq '.[].name'
  pilotfish registries --status                        how those of a running control plane are:
                                                       synced, failing, their lag";

pub(super) const CA: &str = "Examples:
  pilotfish ca status                                  certificates, their expiry, a rotation
  pilotfish ca roots > roots.pem
  pilotfish ca rotate --data-dir data --overlap 24h    of --ca self-signed
  pilotfish ca rotate --kubernetes                     of --ca secret
  pilotfish ca rotate --admin-token-file token         at a control plane, with the role of an admin";

pub(super) const CERTIFICATES: &str = "Examples:
  pilotfish certificates --output-dir certificates --xds-ca-file root-cert.pem \\
    --xds-address pilotfish.istio-system.svc:15012 \\
    --xds-token-file /var/run/secrets/tokens/istio-token
  pilotfish bootstrap grpc --certificates certificates > grpc.json      gRPC reads them

  A machine whose token is short-lived: it counts until there is a certificate
  pilotfish certificates --output-dir /etc/certs --xds-address istiod.example.com:15012 \\
    --xds-ca-file root-cert.pem --xds-token-file token \\
    --xds-cert-file /etc/certs/cert-chain.pem --xds-key-file /etc/certs/key.pem

The certificate is renewed after half of its validity. While no server answers, the files stay.";

pub(super) const DEMO: &str = "Examples:
  pilotfish demo                                 then edit examples/shop/routes.yaml and watch
  pilotfish demo --envoy /usr/local/bin/envoy --rate 100";

pub(super) const BENCH: &str = "Examples:
  pilotfish bench                                        a Pilotfish of its own, 1,000 proxies:
                                                         about four minutes
  pilotfish bench --quick --proxies 100 --services 50    a first impression
  pilotfish bench -o json > result.json

A server that runs already:
  pilotfish bench --folder world --write-only            writes the mesh, and prints the command
                                                         that serves it
  pilotfish bench --address 127.0.0.1:15010 --pid $(pidof pilotfish) --folder world
  pilotfish bench --address istiod:15010 --folder world --apply 'kubectl apply -f {}' \\
    --delete 'kubectl delete -f {}'

Proxies come in, leave and come back, and Services, routes and policies change; every figure ends
when the last proxy concerned has all of it. See docs/performance.md.";

pub(super) const COMPLETION: &str = "Examples:
  source <(pilotfish completion bash)                                for this shell
  pilotfish completion bash > /etc/bash_completion.d/pilotfish       for all
  pilotfish completion zsh > \"${fpath[1]}/_pilotfish\"
  pilotfish completion fish > ~/.config/fish/completions/pilotfish.fish";

pub(super) const MAN: &str = "Examples:
  pilotfish man /usr/local/share/man/man1 && man pilotfish-why";

pub(super) const PLAN: &str = "Examples:
  pilotfish plan routes.yaml                            against the running control plane and its
                                                        connected proxies
  pilotfish plan --delete VirtualService/shop/catalog
  kubectl kustomize overlays/prod | pilotfish plan -
  pilotfish plan --base main/mesh changed.yaml          on folders alone, for CI: these files added
                                                        to the base
  pilotfish plan --base main/mesh --replace mesh        the folder in the place of the base

Exit codes: 0 nothing dangerous changes, 1 the files have errors, 2 it cannot be planned, 3
something changes (with --exit-code), 4 something dangerous changes.";

pub(super) const CRDS: &str = "Examples:
  pilotfish crds | kubectl apply --server-side -f -
  pilotfish crds --group gateway.networking.k8s.io | kubectl diff -f -
  pilotfish crds -o json | jq '.items[].metadata.name'

Where Istio or the Gateway API is installed already, keep their definitions: Pilotfish reads those
as well.";

pub(super) const REMOTE_SECRET: &str = "Examples:
  pilotfish remote-secret --context west --name west | kubectl apply -f -
  pilotfish remote-secret --context west --name west --expires 720h \\
    --server https://west.example.com:6443

The cluster has to have the service account first: kubectl --context west apply -f
deploy/remote-cluster/rbac.yaml";

pub(super) const INJECT: &str = "Examples:
  pilotfish inject -f shop.yaml | kubectl apply -f -
  kubectl get deployment -n shop -o yaml | pilotfish inject | kubectl apply -f -
  pilotfish inject --print-template > sidecar.yaml.j2      # change it, then:
  pilotfish inject -f shop.yaml --template sidecar.yaml.j2 --set cpu=50m";
