//! What a Nacos server can do wrong: endpoints are lost only when it says so twice, and everything comes back
//! by itself.

use pilotfish_nacos::NACOS;
use pilotfish_testkit::real::{Fault, FaultProxy, Host, LiveRegistry, RegistryState, Rnacos, eventually};
use std::time::Duration;

/// Four instances of two services.
async fn register(server: &Rnacos) {
    for (service, number) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
        server.register(&format!("serviceName={service}&ip=10.0.0.{number}&port=80")).await;
    }
}

async fn has(registry: &LiveRegistry, count: usize) -> RegistryState {
    let wanted =
        |state: &RegistryState| state.synced && state.failure.is_none() && state.addresses().len() == count;
    registry.until(&format!("{count} endpoints"), wanted).await
}

fn address(server: &Rnacos, more: &str) -> String {
    format!("http://127.0.0.1:{}?refresh=300ms{more}", server.port())
}

#[tokio::test]
async fn a_server_that_is_gone_or_silent_takes_nothing_away() {
    Host::alone(async {
        for api in ["grpc", "http"] {
            let Some(mut server) = Rnacos::start(&[]).await else { return };
            register(&server).await;
            let registry =
                LiveRegistry::start(&NACOS, &address(&server, &format!("&api={api}&guardWait=1h")));
            has(&registry, 4).await;

            server.program().freeze().await;
            registry.fails("127.0.0.1").await;
            server.program().thaw().await;
            has(&registry, 4).await;

            server.program().kill().await;
            registry.fails("127.0.0.1").await;
            server.restart(false).await;
            has(&registry, 4).await;

            server.program().kill().await;
            registry.fails("127.0.0.1").await;
            server.restart(true).await;
            // It is empty, and alone in saying so.
            eventually("it is empty", || async {
                let report = registry.report();
                if report.held.as_ref().is_some_and(|held| held.after == 0) { Ok(()) } else { Err(report) }
            })
            .await;
            assert_eq!(registry.fewest_endpoints(), 4, "never fewer");
            register(&server).await;
            server.register("serviceName=c&ip=10.0.0.5&port=80").await;
            has(&registry, 5).await;
            // While they come back one after the other, half of them is believed.
            assert!(registry.fewest_endpoints() >= 2, "never fewer than the guard lets pass");
        }
    })
    .await;
}

#[tokio::test]
async fn an_empty_server_is_believed_when_it_says_so_twice() {
    Host::alone(async {
        let Some(mut server) = Rnacos::start(&[]).await else { return };
        register(&server).await;
        let registry = LiveRegistry::start(&NACOS, &address(&server, "&guardWait=2s"));
        has(&registry, 4).await;
        server.program().kill().await;
        server.restart(true).await;
        registry.until("it is believed", |state| state.lines.is_empty() && state.failure.is_none()).await;
        server.register("serviceName=a&ip=10.0.0.1&port=80").await;
        has(&registry, 1).await;
    })
    .await;
}

#[tokio::test]
async fn answers_that_are_slow_or_cut_or_garbled_take_nothing_away() {
    Host::alone(async {
        for api in ["grpc", "http"] {
            let Some(server) = Rnacos::start(&[]).await else { return };
            register(&server).await;
            let (http, grpc) =
                (FaultProxy::before(server.port()).await, FaultProxy::before(server.grpc_port()).await);
            let address = format!(
                "http://{}?refresh=300ms&guardWait=1h&api={api}&grpcPort={}",
                http.address(),
                grpc.port()
            );
            let registry = LiveRegistry::start(&NACOS, &address);
            has(&registry, 4).await;
            for (fault, reason) in [
                (Fault::Truncate(300), "127.0.0.1"),
                (Fault::Close, "127.0.0.1"),
                (Fault::Refuse, "127.0.0.1"),
                (Fault::Garble(7), ""),
                // The names of fields are others, so that an answer says nothing.
                (Fault::Replace(b'h', b'x'), ""),
                (Fault::Replace(b'{', b'['), ""),
            ] {
                http.set(fault).await;
                grpc.set(fault).await;
                registry.fails(reason).await;
                http.set(Fault::None).await;
                grpc.set(Fault::None).await;
                has(&registry, 4).await;
            }
            // Slow is no failure.
            let failures = registry.failures();
            http.set(Fault::Delay(Duration::from_secs(2))).await;
            grpc.set(Fault::Delay(Duration::from_secs(2))).await;
            server.register("serviceName=c&ip=10.0.0.5&port=80").await;
            has(&registry, 5).await;
            assert_eq!(registry.failures(), failures, "{api}");
            assert_eq!(registry.fewest_endpoints(), 4, "never fewer");
        }
    })
    .await;
}
