//! Input that is made to hurt: it costs itself, and not much time or memory.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_config::{Limits, ReadFile, read};
use std::time::{Duration, Instant};

const GOOD: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: good}\n";

/// Reads a bad document between two good ones.
fn beside_good_ones(bad: &str) -> ReadFile {
    read("a.yaml", format!("{GOOD}---\n{bad}\n---\n{GOOD}").as_bytes(), &Limits::default())
}

fn only_refused(bad: &str, message: &str) {
    let file = beside_good_ones(bad);
    let found: Vec<_> =
        file.rejected.iter().flat_map(|refused| &refused.problems).map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains(message), "{found:?}");
    assert_eq!(file.rejected[0].document, 2);
    assert!(file.incomplete);
}

#[test]
fn an_alias_bomb_costs_itself() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", format!("*a{}, ", level - 1).repeat(10)));
    }
    only_refused(&bomb, "the document has more than 2000000 values, aliases resolved");
    assert_eq!(beside_good_ones(&bomb).objects.len(), 2);
}

#[test]
fn a_bomb_of_merged_fields_costs_itself() {
    let mut bomb = "m0: &m0 {a: b}\n".to_owned();
    for level in 1..40 {
        let before = level - 1;
        bomb.push_str(&format!(
            "m{level}: &m{level} {{<<: *m{before}, x{level}: *m{before}, y{level}: *m{before}}}\n"
        ));
    }
    only_refused(&bomb, "the document has more than 2000000 values, aliases resolved");
    assert_eq!(beside_good_ones(&bomb).objects.len(), 2);
}

#[test]
fn deep_nesting_costs_itself() {
    only_refused(&"[".repeat(200_000), "");
    only_refused(&"{a: ".repeat(200_000), "");
    let block: String = (0..2_000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    only_refused(&block, "");
    only_refused(&format!("a: {}", "- ".repeat(100_000)), "");
    let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
    let file =
        beside_good_ones(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\nother: {deep}"));
    assert_eq!((file.objects.len(), file.rejected.len()), (3, 0), "within the limit: {file:?}");
}

#[test]
fn an_anchor_inside_of_itself_is_refused() {
    only_refused("a: &a {b: *a}", "an alias refers to something that contains it");
}

#[test]
fn many_wrong_fields_are_not_all_listed() {
    let fields: String = (0..100_000).map(|n| format!("  f{n}: x\n")).collect();
    let bad =
        format!("apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: a}}\nspec:\n{fields}");
    let file = beside_good_ones(&bad);
    assert_eq!(file.objects.len(), 2);
    // Those that are unknown, and that there are no servers.
    assert_eq!(file.rejected[0].problems.len(), 101);
}

/// A VirtualService with so many hosts, as many server names, and a quarter as many conditions.
fn large(hosts: usize) -> String {
    let matches: String = (0..hosts / 4).map(|n| format!("{{uri: {{prefix: /{n}}}}}, ")).collect();
    let hosts: String = (0..hosts).map(|n| format!("h{n}.example.com, ")).collect();
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: a}}\nspec: {{hosts: [{hosts}], tls: [{{match: \
         [{{sniHosts: [{hosts}]}}], route: [{{destination: {{host: b}}}}]}}], http: [{{match: [{matches}], route: [{{destination: {{host: \
         b}}}}]}}]}}\n"
    )
}

/// The time of processors that this thread has taken, where the system tells it; else the time of day.
fn processor_time(began: Instant) -> Duration {
    let taken = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let taken = taken.and_then(|line| line.split(' ').next()?.parse().ok());
    taken.map_or_else(|| began.elapsed(), Duration::from_nanos)
}

/// The shortest time of some tries of reading that: what else the machine does only makes it longer.
fn time_to_read(hosts: usize) -> Duration {
    let text = large(hosts);
    let times = (0..5).map(|_| {
        let began = Instant::now();
        let before = processor_time(began);
        let file = read("a.yaml", text.as_bytes(), &Limits::default());
        let time = processor_time(began).saturating_sub(before);
        assert_eq!((file.objects.len(), file.rejected.len()), (1, 0));
        time
    });
    times.min().unwrap()
}

/// Four times as much takes four times as long, and sixteen times where each is compared with each.
#[test]
fn checks_do_not_take_the_square_of_the_size() {
    let (few, many) = (time_to_read(5_000), time_to_read(20_000));
    assert!(many < 9 * few, "{many:?} for four times as much as what takes {few:?}");
}

#[test]
fn text_in_no_known_encoding_is_refused() {
    for bytes in [&b"\xff\xfea\0:\0"[..], b"a: \xc3\x28\n", b"\x00\x01\x02", &[0x80; 1_000]] {
        let file = read("a.yaml", bytes, &Limits::default());
        assert!(file.objects.is_empty());
        assert_eq!(file.rejected.len(), 1, "{bytes:?}: {file:?}");
    }
}

/// The problems of one object with such a spec, and whether it is served all the same, perhaps closed.
fn problems_of(api: &str, kind: &str, spec: &str) -> (Vec<String>, usize) {
    let text =
        format!("{{apiVersion: {api}, kind: {kind}, metadata: {{name: a, namespace: b}}, spec: {spec}}}");
    let file = read("a.yaml", text.as_bytes(), &Limits::default());
    let problems = file.rejected.iter().flat_map(|refused| &refused.problems);
    (problems.map(ToString::to_string).collect(), file.objects.len())
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn what_one_object_may_ask_for_is_limited_from_both_sides() {
    const NETWORKING: &str = "networking.istio.io/v1";
    let hosts = |count| list(count, |n| format!("h{n}.com"));
    let route = "http: [{route: [{destination: {host: a.com}}]}]";
    let endpoints =
        |count| list(count, |n| format!("{{address: 10.{}.{}.{}}}", n >> 16, n >> 8 & 255, n & 255));
    let entry = |hosts: String, endpoints: String| {
        format!(
            "{{hosts: [{hosts}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: STATIC, endpoints: [{endpoints}]}}"
        )
    };
    let server = |hosts: String| {
        format!("{{servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [{hosts}]}}]}}")
    };
    let egress = |count| {
        format!(
            "{{egress: [{}]}}",
            list(count, |n| format!(
                "{{port: {{number: {}, protocol: HTTP, name: p{n}}}, hosts: [\"./*\"]}}",
                n + 1
            ))
        )
    };
    let patches = |count| {
        format!(
            "{{configPatches: [{}]}}",
            list(count, |_| "{applyTo: CLUSTER, patch: {operation: MERGE, value: {name: a}}}".to_owned())
        )
    };
    let names = |count| list(count, |n| format!("n{n}"));
    let port = "ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS";
    let imports = |count| format!("{{egress: [{{hosts: [{}]}}]}}", list(count, |n| format!("./h{n}.com")));
    let table = [
        (
            "virtual-service-hosts",
            "VirtualService",
            format!("{{hosts: [{}], {route}}}", hosts(32_768)),
            format!("{{hosts: [{}], {route}}}", hosts(32_769)),
        ),
        (
            "virtual-service-exports",
            "VirtualService",
            format!("{{hosts: [a.com], gateways: [{}], exportTo: [{}], {route}}}", names(128), names(256)),
            format!("{{hosts: [a.com], gateways: [{}], exportTo: [{}], {route}}}", names(128), names(257)),
        ),
        (
            "service-entry-exports",
            "ServiceEntry",
            format!("{{hosts: [{}], exportTo: [{}], {port}}}", hosts(400), names(500)),
            format!("{{hosts: [{}], exportTo: [{}], {port}}}", hosts(400), names(501)),
        ),
        ("gateway-hosts", "Gateway", server(hosts(16_384)), server(hosts(16_385))),
        (
            "service-entry-endpoints",
            "ServiceEntry",
            entry(hosts(200), endpoints(1_000)),
            entry(hosts(200), endpoints(1_001)),
        ),
        ("sidecar-listeners", "Sidecar", egress(512), egress(513)),
        ("sidecar-hosts", "Sidecar", imports(16_384), imports(16_385)),
        ("envoy-filter-patches", "EnvoyFilter", patches(1_024), patches(1_025)),
    ];
    for (limit, kind, good, bad) in table {
        let api = if kind == "EnvoyFilter" { "networking.istio.io/v1alpha3" } else { NETWORKING };
        assert_eq!(problems_of(api, kind, &good), (Vec::new(), 1), "{limit}");
        let (problems, _) = problems_of(api, kind, &bad);
        assert_eq!(problems.len(), 1, "{limit}: {problems:?}");
        assert!(problems[0].contains(&format!("(limit {limit})")), "{problems:?}");
    }
}

#[test]
fn an_endpoint_slice_that_multiplies_is_refused() {
    let slice = |endpoints: usize, ports: usize| {
        let text = format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: a, namespace: b, labels: \
             {{kubernetes.io/service-name: web}}}}, addressType: IPv4, endpoints: [{}], ports: [{}]}}",
            list(endpoints, |n| format!("{{addresses: [10.{}.{}.{}]}}", n >> 16, (n >> 8) & 255, n & 255)),
            list(ports, |n| format!("{{name: p{n}, port: {}}}", n + 1)),
        );
        let file = read("a.yaml", text.as_bytes(), &Limits::default());
        file.rejected
            .iter()
            .flat_map(|rejected| &rejected.problems)
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(slice(1_000, 200), [""; 0]);
    let problems = slice(1_000, 201);
    assert!(problems.len() == 1 && problems[0].contains("(limit endpoint-slice-endpoints)"), "{problems:?}");
}

#[test]
fn an_object_of_unknown_parts_is_refused_before_each_of_them_costs_a_walk() {
    let policy = |count: usize| {
        let ports = list(count, |n| format!("{}: {{mode: FUTURE}}", n + 1));
        let text = format!(
            "{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {{name: a, namespace: b}}, \
             spec: {{selector: {{matchLabels: {{a: b}}}}, portLevelMtls: {{{ports}}}}}}}"
        );
        read("a.yaml", text.as_bytes(), &Limits::default())
    };
    assert!(policy(1_000).rejected.is_empty());
    for count in [1_001, 60_000] {
        let file = policy(count);
        let problem = file.rejected[0].problems.iter().find(|problem| problem.is_error()).unwrap();
        assert!(problem.to_string().contains("(limit object-unknown)"), "{problem}");
        assert!(file.rejected[0].closed.is_some(), "a policy closes");
    }
    let head = |kind: &str| {
        format!("apiVersion: security.istio.io/v1, kind: {kind}, metadata: {{name: a, namespace: b}}")
    };
    let stray = format!(
        "{{{}, spec: {{selector: {{matchLabels: {{a: b}}}}}}, {}}}",
        head("PeerAuthentication"),
        list(2_000, |n| format!("f{n}: 1"))
    );
    let keys = format!(
        "{{{}, spec: {{rules: [{{when: [{}]}}]}}}}",
        head("AuthorizationPolicy"),
        list(2_000, |n| format!("{{key: future.k{n}, values: [x]}}"))
    );
    for text in [stray, keys] {
        let file = read("a.yaml", text.as_bytes(), &Limits::default());
        let problem = file.rejected[0].problems.iter().find(|problem| problem.is_error()).unwrap();
        assert!(problem.to_string().contains("(limit object-unknown)"), "{problem}");
    }
}

#[test]
fn a_policy_with_too_many_values_closes() {
    use pilotfish_config::security::AuthorizationPolicy;
    let rules = |count: usize| {
        let rule = |n: usize| format!("{{from: [{{source: {{namespaces: [n{n}]}}}}]}}");
        format!("[{}]", list(count, rule))
    };
    let read_policy = |action: &str, count: usize| {
        let text = format!(
            "{{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {{name: a, namespace: b}}, \
             spec: {{action: {action}, rules: {}}}}}",
            rules(count)
        );
        read("a.yaml", text.as_bytes(), &Limits::default())
    };
    assert!(read_policy("ALLOW", 8_192).rejected.is_empty());
    for (action, rules) in [("ALLOW", 0), ("DENY", 1)] {
        let file = read_policy(action, 8_193);
        let problem = file.rejected[0].problems[0].to_string();
        assert!(problem.contains("(limit authorization-policy-values)"), "{problem}");
        let closed = file.rejected[0].closed.as_ref().unwrap();
        let policy = closed.typed::<AuthorizationPolicy>().unwrap();
        assert_eq!(policy.rules.len(), rules, "{action}");
    }
}
