use crate::testing::{DOMAIN, registration};
use crate::{
    FieldViolation, InstanceKey, Registration, RegistrationCheck, RegistrationCheckKind, RegistrationPort,
    Violations, check_short_host, instance_key,
};
use std::time::Duration;

/// What is wrong after a change, as `field: message`.
fn wrong(change: impl FnOnce(&mut Registration)) -> Vec<String> {
    let mut given = registration("a");
    change(&mut given);
    let violations = given.validate(DOMAIN).err().unwrap_or_default();
    violations
        .listed()
        .iter()
        .map(|FieldViolation { field, message }| format!("{field}: {message}"))
        .collect()
}

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn a_good_registration_becomes_an_instance() {
    let instance = registration("a").validate(DOMAIN).expect("good");
    assert_eq!(instance.key, InstanceKey::new("default", "web", "a"));
    assert_eq!(instance.key.service_key().host(DOMAIN), "web.default.svc.cluster.local");
    assert_eq!((instance.ports[0].number.get(), instance.ports[0].service_port.get()), (8080, 80));
}

#[test]
fn names_are_those_of_dns() {
    let key = |namespace: &str, service: &str| match instance_key(namespace, service, "a", DOMAIN) {
        Ok(key) => Ok(format!("{} {}", key.namespace, key.service)),
        Err(violations) => Err(violations.to_string()),
    };
    for (namespace, service, expected) in [
        ("", "web", "default web"),
        ("prod", "web", "prod web"),
        // One service has one name.
        ("prod", "web.prod.svc.cluster.local", "prod web"),
        ("prod", "api.example.com", "prod api.example.com"),
        ("prod", "a_b.example.com", "prod a_b.example.com"),
    ] {
        assert_eq!(key(namespace, service).as_deref(), Ok(expected));
    }
    for (namespace, service, expected) in [
        ("", "", "service: is missing"),
        ("", "Web", "service: \"Web\" is no DNS label of small letters, digits and dashes: use \"web\""),
        (
            "",
            "my web",
            "service: \"my web\" is no DNS label of small letters, digits and dashes: use \"my-web\"",
        ),
        ("", "-", "service: \"-\" is no DNS label of small letters, digits and dashes"),
        (
            "",
            "API.example.com",
            "service: \"API.example.com\" is not as DNS writes it: use \"api.example.com\"",
        ),
        (
            "",
            "api.example.com.",
            "service: \"api.example.com.\" is not as DNS writes it: use \"api.example.com\"",
        ),
        ("", "*.example.com", "service: *.example.com stands for many hosts and not for one service"),
        (
            "a",
            "web.b.svc.cluster.local",
            "service: web.b.svc.cluster.local is the service \"web\" of namespace \"b\", and not of \"a\"",
        ),
        (
            "a",
            "x.web.a.svc.cluster.local",
            "service: x.web.a.svc.cluster.local is no service of cluster.local: NAME.NAMESPACE.svc.cluster.local is",
        ),
        ("A", "web", "namespace: \"A\" is no DNS label of small letters, digits and dashes: use \"a\""),
        ("a.b", "web", "namespace: \"a.b\" is no DNS label of small letters, digits and dashes: use \"a-b\""),
    ] {
        assert_eq!(key(namespace, service), Err(expected.to_owned()), "{namespace}/{service}");
    }
    let long = "x".repeat(64);
    assert!(key("", &long).is_err_and(|said| said.contains("64 bytes: a DNS label has 63")));
    for id in ["", ".", "..", "a b", "a/b", "a\0b", "é", "a\n", &"x".repeat(254)] {
        let violations = instance_key("", "web", id, DOMAIN).expect_err(id);
        assert_eq!(violations.listed()[0].field, "id", "{id:?}");
    }
}

#[test]
fn addresses_are_of_one_instance() {
    for (addresses, expected) in [
        (vec![], "addresses: at least one IP address is needed"),
        (vec!["web"], "addresses[0]: \"web\" is no IP address: names are not resolved"),
        (vec!["10.0.0.256"], "addresses[0]: \"10.0.0.256\" is no IP address: names are not resolved"),
        (vec!["10.0.0.1:80"], "addresses[0]: \"10.0.0.1:80\" is no IP address: names are not resolved"),
        (
            vec!["10.0.0.1", "::"],
            "addresses[1]: :: is no address of one machine: others do not reach an instance there",
        ),
        (
            vec!["ff02::1"],
            "addresses[0]: ff02::1 is a multicast address: others do not reach an instance there",
        ),
        (vec!["10.0.0.1", "::ffff:10.0.0.1"], "addresses[1]: 10.0.0.1 is there twice"),
        (vec!["10.0.0.1"; 17], "addresses: 17 addresses are more than 16"),
    ] {
        assert_eq!(wrong(|given| given.addresses = addresses.iter().map(|a| text(a)).collect()), [expected]);
    }
    for special in ["0.0.0.0", "169.254.169.254", "fe80::1", "64:ff9b::a9fe:a9fe", "::ffff:255.255.255.255"] {
        let said = wrong(|given| given.addresses = vec![text(special)]);
        assert!(said.len() == 1 && said[0].contains("others do not reach an instance there"), "{said:?}");
    }
    assert_eq!(wrong(|given| given.addresses = vec![text("::1"), text("127.0.0.1")]), [] as [String; 0]);
}

#[test]
fn other_names_of_kubernetes_services_and_addresses_are_refused_with_the_name_to_use() {
    let refused = |namespace: &str, service: &str| {
        wrong(|given| {
            given.namespace = text(namespace);
            given.service = text(service);
        })
    };
    let canonical =
        "use the service \"pay\" of namespace \"payments\", which is pay.payments.svc.cluster.local";
    for service in [
        "pay.payments.svc",
        "pay.payments.svc.cluster",
        "pay.payments.svc.clusterset.local",
        "pay.payments.svc.example.com",
        "pay.payments.svc.cluster.local.example.com",
        "pay.payments.x.svc.y",
    ] {
        let expected =
            format!("service: {service} is a form of the name of a Kubernetes Service: {canonical}");
        assert_eq!(refused("shop", service), [expected]);
    }
    for (service, part) in [
        ("pay.shop", "pay.shop is short for pay.shop.svc.cluster.local: use the service \"pay\""),
        ("pay-0.pay.shop", "use the service \"pay\" of namespace \"shop\""),
        ("pay.cluster.local", "is below cluster.local"),
        ("cluster.local", "is below cluster.local"),
        ("10-0-0-1.payments.pod.cluster.local", "is below cluster.local"),
        ("pay.clusterset.local", "is below clusterset.local"),
        ("10.96.0.5", "is read as an IP address"),
        ("127.1", "is read as an IP address"),
        ("0.0x7f000001", "is read as an IP address"),
        ("web.example.1", "is read as an IP address"),
        ("pay.payments.svc.cluster.local", "is the service \"pay\" of namespace \"payments\""),
        ("pay.payments.", "is not as DNS writes it"),
        ("pay.payments.svc.cluster.local.", "is not as DNS writes it"),
        ("PAY.payments", "is not as DNS writes it"),
        ("pay.payments:80", "is no host name"),
        ("[fd00::5]", "is no DNS label"),
        ("fd00::5", "is no DNS label"),
    ] {
        let said = refused("shop", service);
        assert!(said.len() == 1 && said[0].contains(part), "{service}: {said:?}");
    }
    for service in ["pay", "pay.example.com", "example.com", "svc-1.example.com", "mycluster.local"] {
        assert_eq!(refused("shop", service), [] as [String; 0], "{service}");
    }
}

#[test]
fn a_short_form_of_a_known_namespace_is_refused() {
    let check = |service: &str| {
        check_short_host(&crate::ServiceKey::new("shop", service), DOMAIN, |name| name == "payments")
    };
    assert!(check("pay.payments").is_err_and(|said| said.contains("use the service \"pay\"")));
    assert!(check("pay-0.pay.payments").is_err_and(|said| said.contains("use the service \"pay\"")));
    for service in ["pay", "payments", "pay.internal", "payments.com"] {
        assert_eq!(check(service), Ok(()), "{service}");
    }
}

#[test]
fn ports_are_in_range_and_there_once() {
    let port = |number, service_port, name: &str| RegistrationPort {
        number,
        service_port,
        name: text(name),
        protocol: String::new(),
    };
    for (ports, expected) in [
        (vec![], "ports: at least one port is needed"),
        (vec![port(0, 0, "")], "ports[0].number: 0 is not between 1 and 65535"),
        (vec![port(65536, 80, "")], "ports[0].number: 65536 is not between 1 and 65535"),
        (vec![port(80, 70000, "")], "ports[0].service_port: 70000 is not between 1 and 65535"),
        (vec![port(1, 80, ""), port(2, 80, "")], "ports[1].service_port: 80 is there twice"),
        (vec![port(1, 0, "a"), port(2, 0, "a")], "ports[1].name: \"a\" is there twice"),
        (
            vec![port(1, 0, "A b")],
            "ports[0].name: \"A b\" is no DNS label of small letters, digits and dashes: use \"a-b\"",
        ),
        (
            vec![RegistrationPort { protocol: text("quick"), ..port(1, 0, "") }],
            "ports[0].protocol: \"quick\" is no protocol that is known",
        ),
        (vec![port(1, 1, ""); 65], "ports: 65 ports are more than 64"),
    ] {
        assert_eq!(wrong(|given| given.ports = ports), [expected]);
    }
    // Two ports of the service may lead to one place.
    assert_eq!(wrong(|given| given.ports = vec![port(80, 80, "a"), port(80, 81, "b")]), [] as [String; 0]);
}

#[test]
fn labels_are_those_of_kubernetes_and_metadata_is_text() {
    let long = "x".repeat(64);
    for (key, value) in [
        ("", "v"),
        ("a b", "v"),
        ("UPPER.com/x", "v"),
        ("/x", "v"),
        ("a/b/c", "v"),
        ("-a", "v"),
        (&long, "v"),
    ] {
        let said = wrong(|given| drop(given.labels.insert(text(key), text(value))));
        assert_eq!(said.len(), 1, "{key:?}: {said:?}");
        assert!(said[0].starts_with("labels["), "{said:?}");
    }
    for value in ["a b", "http://x", "é", "a\r\nx: y", "-a", &long] {
        let said = wrong(|given| drop(given.labels.insert(text("k"), text(value))));
        assert!(said[0].starts_with("labels[\"k\"]: ") && said[0].ends_with("; use metadata"), "{said:?}");
    }
    for (key, value) in [("", "v"), ("a b", "v"), ("k", "a\nb"), ("k", "\u{7f}"), ("é", "v")] {
        let said = wrong(|given| drop(given.metadata.insert(text(key), text(value))));
        assert!(said[0].starts_with("metadata["), "{said:?}");
    }
    let many = || (0..65).map(|n| (format!("k{n}"), String::new())).collect();
    assert_eq!(wrong(|given| given.labels = many()), ["labels: 65 labels are more than 64"]);
    assert_eq!(wrong(|given| given.metadata = many()), ["metadata: 65 entries are more than 64"]);
    let big = wrong(|given| drop(given.metadata.insert(text("k"), "x".repeat(16 << 10))));
    assert_eq!(big, ["metadata: 16385 bytes are more than 16384"]);
    assert_eq!(
        wrong(|given| drop(given.metadata.insert(text("url"), text("http://x/?é")))),
        [] as [String; 0]
    );
}

#[test]
fn times_and_numbers_have_bounds() {
    let seconds = Duration::from_secs;
    for (ttl, is_good) in [
        (seconds(1), true),
        (seconds(86_400), true),
        (Duration::from_millis(999), false),
        (seconds(86_401), false),
    ] {
        assert_eq!(wrong(|given| given.ttl = Some(ttl)).is_empty(), is_good, "{ttl:?}");
    }
    assert_eq!(wrong(|given| given.ttl = Some(Duration::ZERO)), ["ttl: 0ns is not between 1s and 86400s"]);
    assert_eq!(wrong(|given| given.ttl = Some(Duration::MAX)).len(), 1);
    assert_eq!(wrong(|given| given.ttl = None), [] as [String; 0]);
    assert_eq!(wrong(|given| given.drain = seconds(3_601)), ["drain: 3601s is not between 0ns and 3600s"]);
    let too_long = wrong(|given| given.remove_after = Some(seconds(259_201)));
    assert_eq!(too_long, ["remove_after: 259201s is not between 0ns and 259200s"]);
    assert_eq!(wrong(|given| given.weight = 1_000_001), ["weight: 1000001 is more than 1000000"]);
    let said = wrong(|given| given.locality = text("a/b/c/d"));
    assert_eq!(said, ["locality: 4 parts: region/zone/sub_zone is all that there is"]);
    assert_eq!(wrong(|given| given.locality = text("a\n")).len(), 1);
    assert_eq!(wrong(|given| given.network = text("a b")).len(), 1);
    for account in ["A", "a b", "a/b", "*.x", "a_b"] {
        assert_eq!(wrong(|given| given.service_account = text(account)).len(), 1, "{account}");
    }
}

#[test]
fn checks_can_be_asked() {
    let check = |kind| RegistrationCheck { kind, ..RegistrationCheck::default() };
    let http = |path: &str| Some(RegistrationCheckKind::Http { path: text(path), host: String::new() });
    for (given, expected) in [
        (check(None), "checks[0].kind: one of http, tcp and grpc is needed"),
        (check(http("x")), "checks[0].http.path: must begin with a slash"),
        (check(http("/a b")), "checks[0].http.path: only visible ASCII characters are allowed"),
        (
            RegistrationCheck { interval: Duration::from_millis(10), ..check(http("/")) },
            "checks[0].interval: 10ms is not between 1s and 3600s",
        ),
        (
            RegistrationCheck { timeout: Duration::from_secs(11), ..check(http("/")) },
            "checks[0].timeout: 11s is longer than the interval of 10s",
        ),
        (
            RegistrationCheck { port: 70_000, ..check(http("/")) },
            "checks[0].port: 70000 is not between 1 and 65535",
        ),
        (
            RegistrationCheck { port: 9, ..check(http("/")) },
            "checks[0].port: 9 is none of the instance's ports",
        ),
        (
            RegistrationCheck { unhealthy_threshold: 101, ..check(http("/")) },
            "checks[0].unhealthy_threshold: 101 is more than 100",
        ),
    ] {
        assert_eq!(wrong(|registration| registration.checks = vec![given]), [expected]);
    }
    assert_eq!(wrong(|given| given.checks = vec![check(http("")); 9]), ["checks: 9 checks are more than 8"]);
    let mut given = registration("a");
    given.checks = vec![check(http(""))];
    let instance = given.validate(DOMAIN).expect("defaults");
    let check = &instance.checks[0];
    assert_eq!((check.interval.as_secs(), check.timeout.as_secs()), (10, 2));
    assert_eq!((check.healthy_threshold, check.unhealthy_threshold, check.port), (1, 3, None));
}

#[test]
fn everything_that_is_wrong_is_said_up_to_a_limit() {
    let said = wrong(|given| {
        given.id = String::new();
        given.addresses = Vec::new();
        given.ports = Vec::new();
        given.ttl = Some(Duration::ZERO);
    });
    let fields: Vec<&str> = said.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(fields, ["id", "addresses", "ports", "ttl"]);
    let mut given = registration("a");
    given.labels = (0..40).map(|n| (format!("a {n}"), String::new())).collect();
    let violations = given.validate(DOMAIN).expect_err("bad labels");
    assert_eq!((violations.listed().len(), violations.more()), (Violations::MAX, 24));
    let mut all = Violations::default();
    all.nest("instances[3]", violations);
    assert!(all.listed()[0].field.starts_with("instances[3].labels["), "{all}");
    assert!(all.to_string().ends_with("; and 24 more"), "{all}");
}
