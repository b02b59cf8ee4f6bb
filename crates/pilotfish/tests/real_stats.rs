//! The counters of a stock Envoy with our bootstrap have the Prometheus names and labels that they have in
//! Istio's proxies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use pilotfish_testkit::real::{Backend, Envoy, EnvoyOptions, eventually, free_port, get};
use std::collections::BTreeMap;
use support::{CART, PAYMENT, Shop};

/// Series by name and sorted labels, as in `name{a="b",c="d"}`.
struct Series(BTreeMap<String, f64>);

impl Series {
    async fn of(envoy: &Envoy) -> Self {
        let page = envoy.page("/stats/prometheus").await.unwrap();
        let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| {
                    let (series, value) = line.rsplit_once(' ').unwrap();
                    let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap();
                    let mut labels: Vec<&str> =
                        labels.split_inclusive("\",").map(|l| l.trim_end_matches(',')).collect();
                    labels.sort_unstable();
                    (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
                })
                .collect(),
        )
    }

    fn get(&self, series: &str) -> Option<f64> {
        self.0.get(series).copied()
    }
}

/// A port of the client's own workload, with a policy for it.
fn ingress(port: u16, app: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: client, namespace: shop}}\nspec:\n  \
         workloadSelector: {{labels: {{app: client}}}}\n  ingress:\n  - port: {{number: {port}, name: http, protocol: HTTP}}\n    \
         bind: 127.0.0.1\n    captureMode: NONE\n    defaultEndpoint: 127.0.0.1:{app}\n  egress: [{{hosts: ['*/*']}}]\n---\n\
         apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: client, namespace: shop}}\nspec:\n  \
         selector: {{matchLabels: {{app: client}}}}\n  action: ALLOW\n  rules: [{{}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_have_the_names_and_labels_of_istio() {
    let (shop, app, inbound) = (Shop::start().await, Backend::start("127.0.0.1", "app").await, free_port());
    let pilotfish = shop.serve((80, 20)).await;
    pilotfish.write("client.yaml", &ingress(inbound, app.port()));
    let Some(envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    let requests = [(shop.port, CART), (shop.port, PAYMENT), (inbound, "client.shop")];
    for (port, host) in requests {
        eventually(&format!("{host} is reached"), || get(port, host, &[])).await;
    }
    let before = Series::of(&envoy).await;
    for (port, host) in requests.repeat(3) {
        get(port, host, &[]).await.unwrap();
    }
    let (port, after) = (shop.port, Series::of(&envoy).await);
    let cart = format!("cluster_name=\"outbound|{port}||{CART}\"");
    for (series, more) in [
        (format!("envoy_cluster_upstream_rq_total{{{cart}}}"), 3.0),
        (format!("envoy_cluster_upstream_rq{{{cart},response_code=\"200\"}}"), 3.0),
        (format!("envoy_cluster_upstream_rq{{{cart},response_code_class=\"2xx\"}}"), 3.0),
        // A name with dots that is no Service's.
        (format!("envoy_cluster_upstream_rq_total{{cluster_name=\"outbound|{port}||{PAYMENT}\"}}"), 3.0),
        (format!("envoy_cluster_upstream_rq_total{{cluster_name=\"inbound|{inbound}||\"}}"), 3.0),
        (
            format!(
                "envoy_http_downstream_rq_total{{http_conn_manager_prefix=\"outbound_127.0.0.1_{port}\"}}"
            ),
            6.0,
        ),
        (
            format!(
                "envoy_http_rbac{{authz_enforce_result=\"allowed\",http_conn_manager_prefix=\"inbound_127.0.0.1_{inbound}\"}}"
            ),
            3.0,
        ),
        (
            format!(
                "envoy_listener_http_inbound_127_0_0_1_{inbound}__downstream_rq{{listener_address=\"127.0.0.1_{inbound}\",response_code_class=\"2xx\"}}"
            ),
            3.0,
        ),
    ] {
        let counted = after.get(&series).zip(before.get(&series)).map(|(after, before)| after - before);
        assert_eq!(counted, Some(more), "{series} in\n{:#?}", after.0.keys());
    }
    // These depend on how busy the machine is.
    for series in [
        "envoy_server_watchdog_miss{thread_name=\"main_thread\"}",
        "envoy_cluster_upstream_cx_total{cluster_name=\"xds-grpc\"}",
    ] {
        assert!(after.get(series).is_some(), "{series} in\n{:#?}", after.0.keys());
    }
    let unnamed = |series: &&String| {
        series.starts_with("envoy_cluster_")
            && !series.starts_with("envoy_cluster_manager_")
            && !series.contains("cluster_name=")
    };
    assert_eq!(after.0.keys().find(unnamed), None, "a cluster's name became part of a counter's");
}
