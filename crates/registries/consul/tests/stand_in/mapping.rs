//! What is registered, and what becomes of it.

use crate::support::{gone, instance, registry, with_status};
use pilotfish_testkit::consul::{Consul, ConsulOptions};
use serde_json::json;

#[tokio::test]
async fn instances_come_change_and_go() {
    let consul = Consul::plain().await;
    consul.register(&instance("web", 1));
    let registry = registry(&consul, "metaLabels=false");
    let state = registry.until("it is there", |state| state.synced).await;
    assert_eq!(state.services(), ["web.service.consul in default: 8080 http Http"]);
    assert!(state.endpoints()[0].starts_with("10.0.0.1:8080 of http locality=dc1 node=node-1 "), "{state:?}");
    consul.register(&instance("web", 2));
    registry
        .until("the second is there", |state| state.addresses() == ["10.0.0.1:8080", "10.0.0.2:8080"])
        .await;
    consul.register(&instance("api", 3));
    registry.until("another service", |state| state.services().len() == 2).await;
    for number in [1, 2] {
        consul.deregister(&gone("web", number));
    }
    registry
        .until("the service is gone", |state| {
            state.services() == ["api.service.consul in default: 8080 http Http"]
        })
        .await;
    assert_eq!(registry.failures(), 0);
}

#[tokio::test]
async fn health_decides_and_what_is_unhealthy_stays_marked() {
    let consul = Consul::plain().await;
    let mut weighted = with_status("web", 1, "passing");
    weighted["Service"]["Weights"] = json!({"Passing": 10, "Warning": 3});
    consul.register(&weighted);
    consul.register(&instance("web", 2));
    let registry = registry(&consul, "metaLabels=false");
    let first = |want: &'static str| {
        move |state: &pilotfish_testkit::real::RegistryState| {
            state
                .endpoints()
                .first()
                .is_some_and(|line| line.starts_with("10.0.0.1:8080") && line.contains(want))
        }
    };
    registry.until("its weight counts", first("weight=10")).await;
    for (status, want) in
        [("warning", "weight=3"), ("critical", "health=Unhealthy"), ("passing", "weight=10")]
    {
        weighted["Check"]["Status"] = json!(status);
        consul.register(&weighted);
        registry.until(status, first(want)).await;
    }
    // A check of the node counts for all that runs there, and so does maintenance.
    for check in ["serfHealth", "_node_maintenance"] {
        consul.register(&json!({
            "Node": "node-1", "Address": "10.0.0.1", "Check": {"CheckID": check, "Name": check, "Status": "critical"},
        }));
        registry.until(check, first("health=Unhealthy")).await;
        consul.deregister(&json!({"Node": "node-1", "CheckID": check}));
        registry.until("it is well again", first("weight=10")).await;
    }
}

#[tokio::test]
async fn a_service_whose_instances_are_all_unhealthy_has_no_usable_endpoint_when_a_second_answer_says_so() {
    let consul = Consul::plain().await;
    consul.register(&instance("web", 1));
    let registry = registry(&consul, "guardWait=100ms");
    registry.until("it is there", |state| state.addresses() == ["10.0.0.1:8080"]).await;
    consul.register(&with_status("web", 1, "critical"));
    registry
        .until("it is marked", |state| state.endpoints().iter().all(|line| line.contains("health=Unhealthy")))
        .await;
}

#[tokio::test]
async fn a_ttl_check_that_is_not_refreshed_takes_its_instance_out() {
    let consul = Consul::start(ConsulOptions {
        reap_every: std::time::Duration::from_millis(50),
        reap_minimum: std::time::Duration::from_millis(500),
        ..ConsulOptions::default()
    })
    .await;
    let registry = registry(&consul, "guard=off");
    let put = |path: &'static str, body: &'static str| {
        let url = format!("{}/v1/agent/{path}", consul.url());
        async move {
            let done = tokio::process::Command::new("curl")
                .args(["-sf", "-X", "PUT", "-d", body, &url])
                .status()
                .await;
            assert!(done.expect("there is a curl").success(), "{url}");
        }
    };
    put(
        "service/register",
        r#"{"Name": "web", "Port": 80, "Address": "10.0.0.1",
            "Check": {"TTL": "600ms", "DeregisterCriticalServiceAfter": "1s"}}"#,
    )
    .await;
    registry
        .until("it begins critical", |state| state.lines.iter().any(|line| line.contains("health=Unhealthy")))
        .await;
    put("check/pass/service:web", "").await;
    registry
        .until("it passes", |state| {
            state.lines.iter().any(|line| line.starts_with("- ") && !line.contains("health"))
        })
        .await;
    registry
        .until("it is out again", |state| state.lines.iter().any(|line| line.contains("health=Unhealthy")))
        .await;
    registry.until("it is reaped", |state| state.synced && state.lines.is_empty()).await;
}

#[tokio::test]
async fn data_centres_are_read_side_by_side() {
    let datacenters = vec!["dc1".to_owned(), "dc2".to_owned()];
    let consul = Consul::start(ConsulOptions { datacenters, ..ConsulOptions::default() }).await;
    consul.register(&instance("web", 1));
    let mut other = instance("web", 2);
    other["Datacenter"] = json!("dc2");
    consul.register(&other);
    let both = registry(&consul, "metaLabels=false&datacenters=dc1,dc2");
    let state = both.until("both are there", |state| state.addresses().len() == 2).await;
    assert_eq!(state.services(), ["web.service.consul in default: 8080 http Http"]);
    for (line, want) in state
        .endpoints()
        .iter()
        .zip(["10.0.0.1:8080 of http locality=dc1", "10.0.0.2:8080 of http locality=dc2"])
    {
        assert!(line.starts_with(want), "{line}");
    }
    let apart = registry(&consul, "datacenters=dc1,dc2&host={service}.{datacenter}.consul");
    apart
        .until("each has its host", |state| {
            state.services()
                == ["web.dc1.consul in default: 8080 http Http", "web.dc2.consul in default: 8080 http Http"]
        })
        .await;
    let own = registry(&consul, "");
    own.until("the agent's own", |state| state.addresses() == ["10.0.0.1:8080"]).await;
    let none = registry(&consul, "datacenters=dc9");
    none.fails("No path to datacenter").await;
}

#[tokio::test]
async fn services_are_chosen_by_name_tag_filter_and_node() {
    let consul = Consul::plain().await;
    for (service, number, tags, rack) in [
        ("api-a", 1, vec!["blue", "http"], "r1"),
        ("api-b", 2, vec!["green"], "r2"),
        ("db", 3, vec!["blue"], "r1"),
    ] {
        let mut instance = instance(service, number);
        instance["Service"]["Tags"] = json!(tags);
        instance["NodeMeta"] = json!({"rack": rack});
        consul.register(&instance);
    }
    let mut proxy = instance("api-a", 4);
    proxy["Service"]["Kind"] = json!("connect-proxy");
    consul.register(&proxy);
    for (options, want) in [
        ("", &["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"][..]),
        ("services=api-*", &["10.0.0.1:8080", "10.0.0.2:8080"]),
        ("services=api-*,db&exceptServices=api-b", &["10.0.0.1:8080", "10.0.0.3:8080"]),
        ("tags=blue", &["10.0.0.1:8080", "10.0.0.3:8080"]),
        ("tags=blue,http", &["10.0.0.1:8080"]),
        ("filter=%22green%22 in Service.Tags or Node.Meta.rack == r9", &["10.0.0.2:8080"]),
        ("nodeMeta=rack:r1", &["10.0.0.1:8080", "10.0.0.3:8080"]),
    ] {
        let registry = pilotfish_testkit::real::LiveRegistry::start(
            &pilotfish_consul::CONSUL,
            &if options.contains("exceptServices") || options.contains("services=") {
                format!("{}?{options}", consul.url())
            } else {
                format!("{}?exceptServices=consul&{options}", consul.url())
            },
        );
        registry.until(options, |state| state.synced && state.addresses() == want).await;
    }
    let wrong = registry(&consul, "filter=Service.Tags nonsense");
    wrong.fails("400").await;
}

#[tokio::test]
async fn addresses_are_chosen_by_tag() {
    let consul = Consul::plain().await;
    let mut first = instance("web", 1);
    first["Service"]["TaggedAddresses"] = json!({"wan": {"Address": "192.0.2.1", "Port": 80}, "consul-virtual": {"Address": "240.0.0.7", "Port": 8080}});
    let mut second = instance("web", 2);
    second["Service"]["Address"] = json!("");
    second["TaggedAddresses"] = json!({"wan": "192.0.2.2"});
    consul.register(&first);
    consul.register(&second);
    for (options, want) in [
        ("", ["10.0.0.1:8080", "10.0.0.2:8080"]),
        ("address=wan", ["192.0.2.1:80", "192.0.2.2:8080"]),
        ("address=lan_ipv6,wan_ipv4", ["10.0.0.1:8080", "10.0.0.2:8080"]),
    ] {
        registry(&consul, options).until(options, |state| state.addresses() == want).await;
    }
    let registry = registry(&consul, "virtualAddresses=true");
    registry.until("it is there", |state| state.synced).await;
    let world = registry.world();
    let (_, services) = world.services().next().expect("there is one");
    assert_eq!(&*services[0].default_address, "240.0.0.7");
}
