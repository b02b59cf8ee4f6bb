use super::*;
use pilotfish_model::HealthStatus;

pub(crate) fn schema(layout: &str) -> Schema {
    let layout = LAYOUTS.iter().find(|known| known.name == layout).unwrap();
    Schema {
        prefix: layout.prefix.to_owned(),
        key: KeyPattern::parse(layout.key).unwrap(),
        format: (layout.format)(),
        host: HostTemplate::parse(layout.host).unwrap(),
        defaults: Defaults { namespace: "default".into(), protocol: layout.protocol, port: None },
    }
}

/// An instance in one line: its service and host, address, ports, and what is not as usual.
fn read(schema: &Schema, key: &str, value: &str) -> String {
    match schema.read(key.as_bytes(), value.as_bytes()) {
        Meaning::Nothing => "nothing".to_owned(),
        Meaning::Bad(reason) => reason,
        Meaning::Instance(place, instance) => {
            let ports: Vec<String> = instance
                .ports
                .iter()
                .map(|port| {
                    let protocol = port.service.protocol.as_deref().unwrap_or("?");
                    let name = port.service.name.as_ref().map(|name| format!("{name}=")).unwrap_or_default();
                    assert_eq!(port.number, port.service.number);
                    format!("{name}{}/{protocol}", port.number)
                })
                .collect();
            let mut line = format!(
                "{place} ({}) {} {}",
                schema.host.host(&place),
                instance.addresses.join("+"),
                ports.join(",")
            );
            let labels: Vec<_> =
                instance.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            for (what, text) in [
                ("weight", instance.weight.to_string()),
                ("at", instance.locality.to_string()),
                ("on", instance.node.clone()),
                ("labels", labels.join(",")),
            ] {
                if !text.is_empty() && text != "0" {
                    line = format!("{line} {what} {text}");
                }
            }
            if instance.health == HealthStatus::Unhealthy { line + " unhealthy" } else { line }
        }
    }
}

#[test]
fn json_values_are_instances() {
    let schema = schema("json");
    let cases = [
        (r#"{"address": "10.0.0.1:80"}"#, "web (web.etcd) 10.0.0.1 80/?"),
        (r#"{"address": "10.0.0.1", "port": 80}"#, "web (web.etcd) 10.0.0.1 80/?"),
        (
            r#"{"host": "a.example.com", "port": "80", "protocol": "http"}"#,
            "web (web.etcd) a.example.com 80/http",
        ),
        (r#"{"ip": "10.0.0.1", "port": 80, "address": null}"#, "web (web.etcd) 10.0.0.1 80/?"),
        (r#"{"address": "grpc://10.0.0.1:80"}"#, "web (web.etcd) 10.0.0.1 80/grpc"),
        (r#"{"address": "10.0.0.1:80", "port": 80}"#, "web (web.etcd) 10.0.0.1 80/?"),
        (
            r#"{"ip": "10.0.0.1", "ports": {"admin": 81, "http": 80}}"#,
            "web (web.etcd) 10.0.0.1 admin=81/?,http=80/?",
        ),
        (
            r#"{"ip": "10.0.0.1", "ports": [{"name": "a", "port": 80, "protocol": "tcp"}, 81]}"#,
            "web (web.etcd) 10.0.0.1 a=80/tcp,81/?",
        ),
        (
            r#"{"endpoints": ["http://10.0.0.1:80?isSecure=false", "grpc://10.0.0.1:90"]}"#,
            "web (web.etcd) 10.0.0.1 http=80/http,grpc=90/grpc",
        ),
        (
            r#"{"ip": "10.0.0.1", "port": 80, "weight": "3", "region": "eu", "zone": "a", "node": "n", "version": "v2",
               "metadata": {"k": "v", "n": 1, "b": true, "nested": {}}}"#,
            "web (web.etcd) 10.0.0.1 80/? weight 3 at eu/a on n labels b=true,k=v,n=1,version=v2",
        ),
        (r#"{"ip": "10.0.0.1", "port": 80, "healthy": false}"#, "web (web.etcd) 10.0.0.1 80/? unhealthy"),
        (r#"{"ip": "10.0.0.1", "port": 80, "health": "UP"}"#, "web (web.etcd) 10.0.0.1 80/?"),
        (r#"{"ip": "10.0.0.1", "port": 80, "weight": 0}"#, "web (web.etcd) 10.0.0.1 80/? unhealthy"),
        (
            r#"{"ip": "10.0.0.1", "port": 80, "namespace": "n", "group": "g", "service": "other"}"#,
            "n/g/web (web.g.etcd) 10.0.0.1 80/?",
        ),
    ];
    for (value, wanted) in cases {
        assert_eq!(read(&schema, "/services/web/1", value), wanted, "{value}");
    }
}

#[test]
fn a_value_that_is_none_is_told_with_its_key() {
    let schema = schema("json");
    let long = format!("\"{}\"", "x".repeat(MAX_VALUE));
    let cases = [
        ("{", "its value is not JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "its value is JSON, but no object"),
        ("{}", "it says no address"),
        (r#"{"address": "10.0.0.1"}"#, "it says no port; the option instancePort can"),
        (r#"{"address": "10.0.0.1:0"}"#, "\"0\" is no port"),
        (r#"{"address": 1}"#, "the address is no text"),
        (r#"{"ip": "10.0.0.1", "port": 80.5}"#, "\"80.5\" is no port"),
        (r#"{"ip": "10.0.0.1", "port": []}"#, "the port is no number"),
        (r#"{"ip": "10.0.0.1", "port": 1, "weight": -1}"#, "\"-1\" is no weight"),
        (r#"{"ip": "10.0.0.1", "port": 1, "health": "maybe"}"#, "\"maybe\" says not whether it is healthy"),
        (r#"{"ip": "10.0.0.1", "ports": 1}"#, "the ports are neither an object nor a list"),
        (r#"{"endpoints": ["http://10.0.0.1"]}"#, "an endpoint has no port"),
        (
            r#"{"endpoints": ["http://10.0.0.1:80", "http://10.0.0.2:80"]}"#,
            "its endpoints have several hosts",
        ),
        (&long, "its value has 262146 bytes, more than 262144"),
    ];
    for (value, wanted) in cases {
        assert_eq!(
            read(&schema, "/services/web/1", value),
            format!("the key \"web/1\": {wanted}"),
            "{wanted}"
        );
    }
    assert_eq!(read(&schema, "/services/web", "{"), "nothing", "another program's key");
    assert_eq!(schema.read(b"/services/web/\xff", b"{"), Meaning::Nothing);
}

#[test]
fn keys_say_what_their_pattern_names() {
    let text = Schema {
        prefix: "/apps/".to_owned(),
        key: KeyPattern::parse("{namespace}/{region}/{zone}/{service}/{label:version}/{instance}").unwrap(),
        ..schema("text")
    };
    assert_eq!(
        read(&text, "/apps/shop/eu/a/web/v1/x", " http://10.0.0.1:8080/ \n"),
        "shop/web (web.etcd) 10.0.0.1 8080/http at eu/a labels version=v1"
    );
    assert_eq!(
        read(&text, "/apps/shop/eu/a/web/v1/x", ""),
        "the key \"shop/eu/a/web/v1/x\": \"\" is no address"
    );
    let flat = Schema { key: KeyPattern::parse("{instance}").unwrap(), ..schema("json") };
    let value = r#"{"name": "web", "address": "10.0.0.1:80"}"#;
    assert_eq!(read(&flat, "/services/1", value), "web (web.etcd) 10.0.0.1 80/?");
    assert_eq!(read(&flat, "/services/1", r#"{"address": "a:1"}"#), "the key \"1\": it says no service");
    let defaults = Defaults { port: Some(9000), ..flat.defaults.clone() };
    let with_port = Schema { defaults, ..schema("text") };
    assert_eq!(read(&with_port, "/services/web/1", "10.0.0.1"), "web (web.etcd) 10.0.0.1 9000/?");
}

#[test]
fn layouts_of_other_programs_are_read() {
    let grpc = Schema { prefix: "".to_owned(), ..schema("grpc") };
    let value = r#"{"Op":0,"Addr":"10.0.0.1:5000","Metadata":{"k":"v"}}"#;
    assert_eq!(
        read(&grpc, "foo/bar/10.0.0.1:5000", value),
        "foo/bar (foo/bar.etcd) 10.0.0.1 5000/grpc labels k=v"
    );
    let value = r#"{"Op":0,"Addr":"10.0.0.1:5000","Metadata":null}"#;
    assert_eq!(read(&grpc, "foo/10.0.0.1:5000", value), "foo (foo.etcd) 10.0.0.1 5000/grpc");
    assert_eq!(read(&grpc, "foo/x", r#"{"Op":1,"Addr":"10.0.0.1:5000"}"#), "nothing", "deleted");

    let skydns = schema("skydns");
    let value = r#"{"host":"10.0.0.1","port":8080,"priority":10,"weight":20,"ttl":60}"#;
    assert_eq!(
        read(&skydns, "/skydns/com/example/web/x1", value),
        "web.example.com (web.example.com) 10.0.0.1 8080/? weight 20"
    );
    let value = r#"{"host":"10.0.0.1","port":8080,"weight":0}"#;
    assert_eq!(read(&skydns, "/skydns/com/web/x1", value), "web.com (web.com) 10.0.0.1 8080/?");

    let dubbo = schema("dubbo");
    let url = "dubbo%3A%2F%2F10.0.0.1%3A20880%2Forg.example.Hello%3Fapplication%3Dshop%26weight%3D50%26version%3D1.0.0%26side%3Dprovider";
    assert_eq!(
        read(&dubbo, &format!("/dubbo/org.example.Hello/providers/{url}"), ""),
        "org.example.Hello (org.example.Hello) 10.0.0.1 20880/dubbo weight 50 labels application=shop,version=1.0.0"
    );
    let disabled = "dubbo%3A%2F%2F10.0.0.1%3A20880%2Fx%3Fdisabled%3Dtrue";
    assert!(read(&dubbo, &format!("/dubbo/x/providers/{disabled}"), "").ends_with(" unhealthy"));
    assert_eq!(read(&dubbo, &format!("/dubbo/x/consumers/{url}"), ""), "nothing");
    assert_eq!(
        read(&dubbo, "/dubbo/x/providers/nonsense", ""),
        "the key \"x/providers/nonsense\": it is no URL with a protocol and a port"
    );
}

proptest::proptest! {
    #[test]
    fn nothing_panics(key in "\\PC{0,40}", value in "\\PC{0,60}", pattern in "[a-z{}*/:-]{0,24}") {
        for layout in LAYOUTS {
            let schema = schema(layout.name);
            let _ = schema.read(format!("{}{key}", schema.prefix).as_bytes(), value.as_bytes());
            let _ = schema.read(format!("{}x/providers/{key}", schema.prefix).as_bytes(), value.as_bytes());
        }
        if let Ok(pattern) = KeyPattern::parse(&pattern) {
            let _ = pattern.captures(&key);
        }
    }
}
