use super::*;

fn probe(container: &str, kind: &'static str, port: u16, check: Check) -> Probe {
    Probe { container: container.to_owned(), kind, port, timeout: 2, period: 3, check }
}

fn http(is_tls: bool, path: &str, headers: &[&str]) -> Check {
    let headers = headers.iter().map(|name| (*name).to_owned()).collect();
    Check::Http { is_tls, path: path.to_owned(), headers }
}

fn built(probes: &[Probe], interception: &str) -> (Option<Value>, Vec<Value>) {
    let labels = BTreeMap::new();
    let workload = Workload { labels: &labels, name: "web", interception, status_port: 15020, probes };
    (listener(&workload), clusters(&workload).collect())
}

#[test]
fn nothing_is_served_without_probes() {
    assert_eq!(built(&[], "REDIRECT"), (None, Vec::new()));
}

#[test]
fn http_probes_of_a_port_share_its_cluster_and_keep_the_requests_of_kubelets() {
    let probes = [
        probe("a", "readyz", 8080, http(false, "/ready?x=$(HOME)", &[])),
        probe("a", "livez", 8080, http(false, "/live", &["host", "x-forwarded-proto"])),
        probe("b", "livez", 8080, http(true, "/", &[])),
    ];
    let (listener, clusters) = built(&probes, "NONE");
    let names: Vec<_> = clusters.iter().map(|cluster| cluster["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["probe-http-8080", "probe-https-8080"]);
    let highest = "/transport_socket/typed_config/common_tls_context/tls_params/tls_maximum_protocol_version";
    assert!(clusters[0].get("transport_socket").is_none());
    assert_eq!(clusters[1].pointer(highest), Some(&json!("TLSv1_3")));
    assert!(clusters.iter().all(|cluster| cluster.get("upstream_bind_config").is_none()));
    let listener = listener.unwrap();
    assert_eq!(listener["address"]["socket_address"]["port_value"], 15020);
    let manager = &listener["filter_chains"][0]["filters"][0]["typed_config"];
    let routes = manager["route_config"]["virtual_hosts"][0]["routes"].as_array().unwrap();
    let texts = |path: &str| -> Vec<_> {
        routes.iter().map(|route| route.pointer(path).and_then(Value::as_str).unwrap_or_default()).collect()
    };
    let paths = texts("/match/path");
    assert_eq!(paths[0], "/app-health/a/readyz");
    assert_eq!(texts("/match/headers/0/name"), [":method"; 5]);
    assert_eq!(texts("/match/headers/0/string_match/exact"), ["GET"; 5]);
    assert_eq!(texts("/match/headers/1/name"), [":path"; 5]);
    assert_eq!(texts("/match/headers/1/string_match/exact"), paths, "without a query");
    assert_eq!(texts("/match/headers/2/string_match/prefix"), ["[", "", "", "[", ""]);
    assert_eq!(texts("/response_headers_to_remove/0"), ["location"; 5]);
    assert_eq!(
        texts("/route/prefix_rewrite"),
        ["/ready?x=$$(HOME)", "/ready?x=$$(HOME)", "/live", "/", "/"],
        "Kubernetes expands nothing of a Pod's author"
    );
    let hosts = ["[$(POD_IP)]:8080", "$(POD_IP):8080", "", "[$(POD_IP)]:8080", "$(POD_IP):8080"];
    assert_eq!(texts("/route/host_rewrite_literal"), hosts);
    let removed = ["x-forwarded-proto", "x-forwarded-proto", "", "x-forwarded-proto", "x-forwarded-proto"];
    assert_eq!(texts("/request_headers_to_remove/0"), removed);
}

#[test]
fn other_probes_are_answered_from_health_checks() {
    let service = Check::Grpc { service: "a.B".to_owned() };
    let probes = [probe("a", "readyz", 5432, Check::Tcp), probe("a", "startupz", 9000, service)];
    let (listener, clusters) = built(&probes, "REDIRECT");
    let manager = listener.unwrap()["filter_chains"][0]["filters"][0]["typed_config"].clone();
    assert_eq!(manager["route_config"]["virtual_hosts"][0]["routes"], json!([]));
    let filters = manager["http_filters"].as_array().unwrap();
    assert_eq!(filters.len(), 3);
    let config = &filters[0]["typed_config"];
    assert_eq!(config["headers"][0]["string_match"]["exact"], "/app-health/a/readyz");
    assert_eq!(config["cluster_min_healthy_percentages"], json!({"probe-a-readyz": {"value": 100}}));
    let check = &clusters[0]["health_checks"][0];
    assert_eq!((&check["interval"], &check["timeout"]), (&json!("1.500s"), &json!("2s")));
    assert_eq!(check["tcp_health_check"], json!({}));
    assert_eq!(clusters[1]["health_checks"][0]["grpc_health_check"]["service_name"], "a.B");
    let source = &clusters[0]["upstream_bind_config"]["source_address"];
    assert_eq!(source["address"], "127.0.0.6");
    let (_, marked) = built(&probes, "TPROXY");
    assert_eq!(marked[0]["upstream_bind_config"]["socket_options"][0]["int_value"], 1337);
}

#[test]
fn health_checks_are_as_frequent_as_the_probes_need() {
    let interval = |period| {
        let probe = Probe { period, ..probe("a", "livez", 1, Check::Tcp) };
        health_check(&probe, "tcp_health_check", &json!({}))["interval"].as_str().unwrap().to_owned()
    };
    assert_eq!([1, 2, 10, u32::MAX].map(interval), ["0.500s", "1.000s", "5.000s", "5.000s"]);
}
