//! Against a real server: what it has is what the world has, and what changes there changes here.

use pilotfish_nacos::NACOS;
use pilotfish_testkit::real::{Host, Java, LiveRegistry, Program, RegistryState, Rnacos, eventually};
use std::time::{Duration, Instant};

/// For `--registry nacos=`, with short times.
fn address(server: &Rnacos, more: &str) -> String {
    format!("http://127.0.0.1:{}?refresh=300ms&guard=off{more}", server.port())
}

#[tokio::test]
async fn instances_come_change_and_go() {
    Host::alone(async {
        for api in ["grpc", "http"] {
            let Some(server) = Rnacos::start(&[]).await else { return };
            server.register("serviceName=web&ip=10.0.0.1&port=80&metadata=%7B%22version%22:%22v1%22,%22zone%22:%22z%22%7D").await;
            let registry = LiveRegistry::start(&NACOS, &address(&server, &format!("&api={api}")));
            registry
                .has(&[
                    "web.default-group.public.nacos in default: 80 default Unsupported",
                    "- 10.0.0.1:80 of default weight=1 locality=/z labels=nacos.io/cluster=DEFAULT,topology.istio.io/cluster=Kubernetes,\
                     topology.kubernetes.io/zone=z,version=v1,zone=z",
                ])
                .await;
            server.register("serviceName=web&ip=10.0.0.2&port=80&weight=2&clusterName=hz").await;
            registry.until("the second one", |state| state.addresses() == ["10.0.0.1:80", "10.0.0.2:80"]).await;
            server.update("serviceName=web&ip=10.0.0.2&port=80&clusterName=hz&enabled=false").await;
            registry.until("the second one is switched off", |state| state.addresses() == ["10.0.0.1:80"]).await;
            server.update("serviceName=web&ip=10.0.0.2&port=80&clusterName=hz&enabled=true&weight=0.5").await;
            let state = registry.until("the second one is back", |state| state.addresses().len() == 2).await;
            assert!(state.endpoints()[1].contains("weight=50") && state.endpoints()[0].contains("weight=100"), "{state:#?}");
            server.deregister("serviceName=web&ip=10.0.0.1&port=80").await;
            registry.until("the first one is gone", |state| state.addresses() == ["10.0.0.2:80"]).await;
            // The last one: its service and ports stay as long as the server lists it.
            server.deregister("serviceName=web&ip=10.0.0.2&port=80&clusterName=hz").await;
            registry.until("the last one is gone", |state| state.addresses().is_empty()).await;
            // And a new service.
            server.register("serviceName=Order_Service&ip=10.0.0.3&port=9090").await;
            registry
                .until("a new service", |state| {
                    state.services().iter().any(|line| line.starts_with("order_service.default-group.public.nacos"))
                        && state.addresses() == ["10.0.0.3:9090"]
                })
                .await;
            assert_eq!(registry.failures(), 0, "{api}");
        }
    })
    .await;
}

#[tokio::test]
async fn groups_namespaces_and_clusters_are_chosen() {
    Host::alone(async {
        let Some(server) = Rnacos::start(&[]).await else { return };
        for (number, query) in [
            "serviceName=web",
            "serviceName=web&groupName=SHOP",
            "serviceName=web&namespaceId=dev",
            "serviceName=web&namespaceId=dev&groupName=SHOP&clusterName=hz",
            "serviceName=web&groupName=OTHER",
            "serviceName=web&namespaceId=other",
        ]
        .iter()
        .enumerate()
        {
            server.register(&format!("{query}&ip=10.0.0.{number}&port=80")).await;
        }
        let hosts = |state: &RegistryState| -> Vec<String> {
            let line = |line: &str| line.split(' ').next().unwrap_or_default().trim_end_matches(".nacos").to_owned();
            state.services().into_iter().map(line).collect()
        };
        for api in ["grpc", "http"] {
            let registry = LiveRegistry::start(
                &NACOS,
                &address(&server, &format!("&api={api}&namespaces=public,dev&groups=DEFAULT_GROUP,SHOP&zone=cluster")),
            );
            let state = registry.until("four services", |state| state.addresses().len() == 4).await;
            assert_eq!(
                hosts(&state),
                ["web.default-group.dev", "web.default-group.public", "web.shop.dev", "web.shop.public"]
            );
            let locality = state.endpoints().into_iter().find(|line| line.starts_with("10.0.0.3")).unwrap_or_default();
            assert!(locality.contains("/hz"), "{state:#?}");
            let registry = LiveRegistry::start(
                &NACOS,
                &address(&server, &format!("&api={api}&namespaces=dev&groups=SHOP,DEFAULT_GROUP&clusters=hz&host={{service}}.{{group}}")),
            );
            let state = registry.until("one endpoint", |state| state.addresses() == ["10.0.0.3:80"]).await;
            assert_eq!(hosts(&state), ["web.default-group", "web.shop"]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_thousand_services_are_found_in_pages() {
    Host::alone(async {
        let Some(server) = Rnacos::start(&[]).await else { return };
        for number in 0..1100 {
            server
                .register(&format!("serviceName=s{number}&ip=10.0.{}.{}&port=80", number / 250, number % 250))
                .await;
        }
        let registry = LiveRegistry::start(&NACOS, &address(&server, "&refresh=1h"));
        registry.until("all services", |state| state.services().len() == 1100).await;
        assert!(
            server.call("GET", "/v1/ns/service/list?pageNo=1&pageSize=1", "").await.unwrap().contains("1100")
        );
        let before = registry.report().requests;
        assert!(
            (1103..1130).contains(&before),
            "three pages, one for each service, and few for the connection: {before}"
        );
        // A change is pushed, though nobody asks.
        server.register("serviceName=s7&ip=10.1.0.1&port=80").await;
        registry.until("a push", |state| state.addresses().contains(&"10.1.0.1:80")).await;
    })
    .await;
}

/// Nacos's own client in a JVM.
fn java_client(server: &Rnacos, arguments: &[&str], folder: &std::path::Path) -> Option<Program> {
    let home = folder.display().to_string();
    let mut command = Java::find("nacos")?.command(&[("user.home", &home)], "pilotfish.nacos.Register");
    command.arg(format!("127.0.0.1:{}", server.port())).args(arguments).current_dir(folder);
    Some(Program::start(&mut command, folder.join("client.log")))
}

#[tokio::test]
async fn what_the_usual_client_registers_lives_as_long_as_the_client() {
    Host::alone(async {
        let Some(server) = Rnacos::start(&[]).await else { return };
        let folder = tempfile::tempdir().expect("a folder can be made");
        let registry = LiveRegistry::start(&NACOS, &address(&server, "&groups=G"));
        registry.until("it is in sync", |state| state.synced).await;
        let arguments = ["public", "G", "orders", "10.0.0.7", "8080", "protocol=grpc", "version=v2"];
        let Some(mut client) = java_client(&server, &arguments, folder.path()) else { return };
        client.until_printed("registered").await;
        registry
            .has(&[
                "orders.g.public.nacos in default: 8080 grpc Grpc",
                "- 10.0.0.7:8080 of grpc weight=1 labels=nacos.io/cluster=DEFAULT,protocol=grpc,\
                 topology.istio.io/cluster=Kubernetes,version=v2",
            ])
            .await;
        client.kill().await;
        registry.until("it is gone with its connection", |state| state.addresses().is_empty()).await;
    })
    .await;
}

#[tokio::test]
async fn names_and_passwords_become_tokens_that_are_renewed() {
    Host::alone(async {
        for api in ["grpc", "http"] {
            let settings = [
                ("RNACOS_ENABLE_OPEN_API_AUTH", "true"),
                ("RNACOS_INIT_ADMIN_USERNAME", "admin"),
                ("RNACOS_INIT_ADMIN_PASSWORD", "s3cret pass&word"),
                ("RNACOS_API_LOGIN_ONE_MINUTE_LIMIT", "1000"),
                // Seconds.
                ("RNACOS_API_LOGIN_TIMEOUT", "8"),
            ];
            let Some(mut server) = Rnacos::start(&settings).await else { return };
            server.login("admin", "s3cret%20pass%26word").await;
            server.register("serviceName=web&ip=10.0.0.1&port=80").await;
            let folder = tempfile::tempdir().expect("a folder can be made");
            let password = folder.path().join("password");
            std::fs::write(&password, "wrong\n").expect("it can be written");
            let none = LiveRegistry::start(&NACOS, &address(&server, &format!("&api={api}")));
            none.fails("403").await;
            let more = format!("&api={api}&username=admin&passwordFile={}", password.display());
            let registry = LiveRegistry::start(&NACOS, &address(&server, &more));
            let state = registry.fails("login").await;
            assert!(!state.failure.unwrap_or_default().contains("wrong\n") && state.lines.is_empty());
            std::fs::write(&password, "s3cret pass&word\n").expect("it can be written");
            registry
                .until("it is in sync", |state| state.failure.is_none() && state.addresses().len() == 1)
                .await;
            let failures = registry.failures();
            // Longer than a token lives.
            let until = Instant::now() + Duration::from_secs(12);
            eventually("a while without failure", || async {
                if Instant::now() > until { Ok(()) } else { Err(()) }
            })
            .await;
            server.login("admin", "s3cret%20pass%26word").await;
            server.register("serviceName=web2&ip=10.0.0.2&port=80").await;
            registry.until("a new service", |state| state.addresses().len() == 2).await;
            assert_eq!(registry.failures(), failures, "{api}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_without_grpc_is_polled_until_it_has_one() {
    Host::alone(async {
        let Some(server) = Rnacos::start(&[]).await else { return };
        server.register("serviceName=web&ip=10.0.0.1&port=80").await;
        // Nothing listens on port 1, and the server does not say its version.
        let registry = LiveRegistry::start(&NACOS, &address(&server, "&grpcPort=1"));
        registry.until("it is polled", |state| state.addresses() == ["10.0.0.1:80"]).await;
        server.register("serviceName=web&ip=10.0.0.2&port=80").await;
        registry.until("it is polled again", |state| state.addresses().len() == 2).await;
        assert_eq!(registry.failures(), 0);
        let strict = LiveRegistry::start(&NACOS, &address(&server, "&grpcPort=1&api=grpc"));
        strict.fails("cannot connect to 127.0.0.1:1").await;
    })
    .await;
}
