//! Rules of every kind, of which gRPC knows few: a client takes its configuration all the same, and calls go
//! through.

use crate::mesh;
use crate::peer::{Credentials::Plain, Library, Peer};
use pilotfish_testkit::real::Pilotfish;
use std::fmt::Write as _;

/// A name, what is in the `http` of its VirtualService, and what is answered.
const ROUTES: &[(&str, &str, &str)] = &[
    (
        "weights",
        "[{route: [{destination: {host: weights}, weight: 30}, {destination: {host: policies}, weight: 70}]}]",
        "echo",
    ),
    (
        "matches",
        "[{match: [{uri: {regex: '/none.*'}}, {method: {exact: GET}}, {queryParams: {q: {exact: x}}}, {headers: {x: {regex: 'a|b'}}, \
         withoutHeaders: {y: {exact: z}}}, {scheme: {exact: https}}, {authority: {prefix: none}}, {uri: {prefix: /no}, ignoreUriCase: \
         true}, {sourceLabels: {app: none}}, {port: 1}], directResponse: {status: 503}}, {match: [{uri: {exact: \
         /pilotfish.test.Echo/Who}}], route: [{destination: {host: matches}}]}]",
        "echo",
    ),
    (
        "redirect",
        "[{match: [{uri: {prefix: /old}}], redirect: {uri: /new}}, {route: [{destination: {host: redirect}}]}]",
        "echo",
    ),
    ("rewrite", "[{rewrite: {uri: /, authority: x}, route: [{destination: {host: rewrite}}]}]", "echo"),
    (
        "mirror",
        "[{mirrors: [{destination: {host: policies}, percentage: {value: 50}}], route: [{destination: {host: mirror}}]}]",
        "echo",
    ),
    (
        "headers",
        "[{headers: {request: {set: {a: b}, add: {c: d}, remove: [e]}, response: {add: {f: g}}}, route: [{destination: {host: \
         headers}, headers: {request: {set: {h: i}}}}]}]",
        "echo",
    ),
    (
        "retries",
        "[{timeout: 9s, retries: {attempts: 7, perTryTimeout: 2s, retryOn: 'unavailable,cancelled,connect-failure,gateway-error,503', \
         backoff: 10ms}, route: [{destination: {host: retries}}]}]",
        "echo",
    ),
    (
        "cors",
        "[{corsPolicy: {allowOrigins: [{exact: 'http://a'}]}, route: [{destination: {host: cors}}]}]",
        "echo",
    ),
    (
        "delay",
        "[{fault: {delay: {fixedDelay: 0.001s, percentage: {value: 100}}}, route: [{destination: {host: delay}}]}]",
        "echo",
    ),
    (
        "abort",
        "[{fault: {abort: {grpcStatus: RESOURCE_EXHAUSTED, percentage: {value: 100}}}, route: [{destination: {host: abort}}]}]",
        "RESOURCE_EXHAUSTED",
    ),
    (
        "unused",
        "[{match: [{headers: {x: {exact: never}}}], route: [{destination: {host: unused, subset: missing}}]}, {route: [{destination: \
         {host: unused}}]}]",
        "echo",
    ),
    ("subset", "[{route: [{destination: {host: subset, subset: missing}}]}]", "UNAVAILABLE"),
    ("nobody", "[{route: [{destination: {host: missing}}]}]", "UNAVAILABLE"),
];

/// A name, and the traffic policy of its DestinationRule.
const POLICIES: &[(&str, &str)] = &[
    (
        "policies",
        "{connectionPool: {tcp: {maxConnections: 5, connectTimeout: 1s, tcpKeepalive: {time: 60s}}, http: {http2MaxRequests: 50, \
         maxRequestsPerConnection: 3, maxRetries: 2, idleTimeout: 30s}}, outlierDetection: {consecutive5xxErrors: 3, interval: 1s, \
         baseEjectionTime: 5s, maxEjectionPercent: 50}}",
    ),
    ("random", "{loadBalancer: {simple: RANDOM}}"),
    ("least", "{loadBalancer: {simple: LEAST_REQUEST, warmup: {duration: 10s}}}"),
    ("passthrough", "{loadBalancer: {simple: PASSTHROUGH}}"),
    ("ring", "{loadBalancer: {consistentHash: {httpHeaderName: x-user, ringHash: {minimumRingSize: 2048}}}}"),
    ("huge", "{loadBalancer: {consistentHash: {httpHeaderName: x-user, minimumRingSize: 10000000}}}"),
    ("cookie", "{loadBalancer: {consistentHash: {httpCookie: {name: user, ttl: 1s}}}}"),
    ("maglev", "{loadBalancer: {consistentHash: {useSourceIp: true, maglev: {tableSize: 251}}}}"),
    (
        "locality",
        "{loadBalancer: {localityLbSetting: {enabled: true}}, outlierDetection: {consecutive5xxErrors: 1}}",
    ),
    (
        "originate",
        "{tls: {mode: DISABLE}, tunnel: {targetHost: a, targetPort: 1}, proxyProtocol: {version: V1}}",
    ),
];

fn files(port: u16) -> String {
    let mut text = String::new();
    let names = ROUTES.iter().map(|(name, ..)| name).chain(POLICIES.iter().map(|(name, _)| name));
    for name in names {
        let service =
            mesh::service(&[("127.0.0.11", port)]).replace("{name: echo,", &format!("{{name: {name},"));
        text += &service.replace("echo.shop", &format!("{name}.shop"));
        text += "---\n";
    }
    for (name, http, _) in ROUTES {
        write!(
            text,
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{hosts: \
             [{name}], http: {http}}}\n---\n"
        )
        .unwrap();
    }
    for (name, policy) in POLICIES {
        write!(
            text,
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{host: \
             {name}, trafficPolicy: {policy}}}\n---\n"
        )
        .unwrap();
    }
    text
}

async fn takes_every_rule(library: Library) {
    let pilotfish = Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[]).await;
    let Some(peer) = Peer::start(library, &pilotfish, "client", &[]).await else { return };
    let port = peer.serve("127.0.0.11:0", "echo", Plain).await;
    pilotfish.write("echo.yaml", &files(port));
    mesh::is_known(&pilotfish, "locality.shop").await;
    let answers = ROUTES
        .iter()
        .map(|(name, _, answer)| (name, *answer))
        .chain(POLICIES.iter().map(|(name, _)| (name, "echo")));
    let mut wrong = Vec::new();
    // The first answer needs the routes of all services, since they share a port.
    peer.ask_once("xds:///weights.shop.svc.cluster.local:9000", Plain, "/pilotfish.test.Echo/Who").await;
    mesh::nothing_was_refused(&pilotfish).await;
    for (name, answer) in answers {
        let target = format!("xds:///{name}.shop.svc.cluster.local:9000");
        let who = peer.ask_once(&target, Plain, "/pilotfish.test.Echo/Who").await;
        if !who.starts_with(answer) {
            wrong.push((name, who));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    mesh::nothing_was_refused(&pilotfish).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_client_takes_every_rule() {
    takes_every_rule(Library::Python).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_client_takes_every_rule() {
    takes_every_rule(Library::Node).await;
}
