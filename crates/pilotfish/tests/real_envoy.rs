//! A stock Envoy, in delta and in state-of-the-world xDS: routing, changes under load, refusals, crashes of
//! the control plane.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use pilotfish_testkit::real::{
    Backend, Envoy, EnvoyOptions, FaultProxy, Load, Pilotfish, Tally, eventually, free_port, get,
};
use std::sync::Mutex;
use support::{CART, CATALOG, PAYMENT, Shop};

/// Envoys and load of several tests at a time would disturb one another on a small machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test on a shop with Envoy in both forms of xDS.
#[allow(clippy::needless_pass_by_value, reason = "a closure written at the call")]
fn in_both_forms(test: impl AsyncFn(&Shop, &mut Pilotfish, &Envoy)) {
    in_forms(&["delta", "sotw"], &test);
}

fn in_forms(protocols: &[&'static str], test: &impl AsyncFn(&Shop, &mut Pilotfish, &Envoy)) {
    for &protocol in protocols {
        in_turn(async {
            let shop = Shop::start().await;
            let mut pilotfish = shop.serve((80, 20)).await;
            let options = EnvoyOptions::sidecar(protocol);
            let Some(envoy) = start(&shop, &pilotfish, &options).await else { return };
            test(&shop, &mut pilotfish, &envoy).await;
        });
    }
}

/// Runs a test after the others.
fn in_turn(test: impl Future<Output = ()>) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// An Envoy through which all services of the shop are reached; `None` where there is no Envoy.
async fn start(shop: &Shop, pilotfish: &Pilotfish, options: &EnvoyOptions) -> Option<Envoy> {
    let envoy = Envoy::start(pilotfish, options).await?;
    for host in [CATALOG, CART, PAYMENT] {
        let what = format!("{host} is reached over {}", options.protocol);
        eventually(&what, || get(shop.port, host, &[])).await;
    }
    Some(envoy)
}

async fn ask(times: usize, port: u16, headers: &[(&str, &str)]) -> Tally {
    let mut tally = Tally::new();
    for _ in 0..times {
        let who = get(port, CATALOG, headers).await.unwrap_or_else(|error| error);
        *tally.entry(who).or_default() += 1;
    }
    tally
}

fn no_failures(tally: &Tally) {
    let failed: Vec<_> =
        tally.iter().filter(|(who, _)| !["v1", "v2", "cart", "payment"].contains(&who.as_str())).collect();
    assert!(failed.is_empty(), "failed requests: {failed:?} of {tally:?}");
}

#[test]
fn requests_are_routed_by_header_and_by_weight() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, _envoy: &Envoy| {
        assert_eq!(ask(50, shop.port, &[("x-user", "tester")]).await, Tally::from([("v2".into(), 50)]));
        let tally = ask(500, shop.port, &[]).await;
        no_failures(&tally);
        // 100 of 500 are expected; 60 and 140 are more than four standard deviations away.
        assert!((60..=140).contains(&tally["v2"]), "{tally:?}");
        pilotfish.write("routes.yaml", &support::routes((0, 100)));
        eventually("the new weights count", || async {
            let tally = ask(20, shop.port, &[]).await;
            if tally.get("v2") == Some(&20) { Ok(()) } else { Err(tally) }
        })
        .await;
    });
}

#[test]
fn endpoints_come_and_go_under_load_without_a_failed_request() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, _envoy: &Envoy| {
        pilotfish.write("routes.yaml", &support::plain_route());
        let load = Load::start(shop.port, CATALOG);
        for round in 0..3 {
            for versions in [&[0][..], &[0, 1], &[1]] {
                pilotfish.write("catalog.yaml", &shop.catalog_slices(versions));
                eventually(&format!("round {round}: only {versions:?} answer"), || async {
                    load.reset();
                    load.answers(40).await;
                    let seen: Vec<String> = load.so_far().into_keys().collect();
                    let want: Vec<String> =
                        versions.iter().map(|version| format!("v{}", version + 1)).collect();
                    if seen == want { Ok(()) } else { Err(seen) }
                })
                .await;
            }
        }
        no_failures(&load.stop().await);
    });
}

#[test]
fn every_request_counts_while_endpoints_and_routes_change() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, _envoy: &Envoy| {
        let load = Load::start(shop.port, CATALOG);
        for round in 0..6 {
            let versions: &[usize] = if round % 2 == 0 { &[1, 0] } else { &[0, 1] };
            pilotfish.write("catalog.yaml", &shop.catalog_slices(versions));
            pilotfish.write(
                "routes.yaml",
                &if round % 2 == 0 { support::plain_route() } else { support::routes((50, 50)) },
            );
            load.answers(100).await;
        }
        no_failures(&load.stop().await);
    });
}

#[test]
fn a_service_is_added_and_removed() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, _envoy: &Envoy| {
        let new = Backend::start("127.0.0.15", "cart").await;
        let entry = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: new, namespace: shop}}\nspec:\n  hosts: \
             [new.example.com]\n  resolution: STATIC\n  ports: [{{name: http, number: {}, protocol: HTTP}}]\n  endpoints: \
             [{{address: 127.0.0.15, ports: {{http: {}}}}}]\n",
            shop.port,
            new.port()
        );
        let load = Load::start(shop.port, CATALOG);
        pilotfish.write("new.yaml", &entry);
        eventually("the new service answers", || get(shop.port, "new.example.com", &[])).await;
        pilotfish.remove("new.yaml");
        eventually("the removed service does not answer", || async {
            match get(shop.port, "new.example.com", &[]).await {
                Err(_) => Ok(()),
                Ok(who) => Err(who),
            }
        })
        .await;
        no_failures(&load.stop().await);
    });
}

/// A host on another port.
fn entry(port: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: bad, namespace: shop}}\nspec:\n  hosts: \
         [bad.example.com]\n  resolution: STATIC\n  ports: [{{name: http, number: {port}, protocol: HTTP}}]\n  endpoints: \
         [{{address: 127.0.0.15}}]\n"
    )
}

/// The exit code and the words of `pilotfish config --diff` about the Envoy.
fn difference(pilotfish: &Pilotfish, envoy: &Envoy) -> (Option<i32>, String) {
    let mut command = std::process::Command::new(pilotfish.binary());
    command.args(["config", "client.shop", "--diff", "--envoy-admin"]);
    command.arg(format!("127.0.0.1:{}", envoy.admin_port()));
    command.args(["--admin-address", &format!("127.0.0.1:{}", pilotfish.admin_port())]);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// The exit code and the words of `pilotfish compare` about a dump of the Envoy.
fn comparison(pilotfish: &Pilotfish, dump: &str) -> (Option<i32>, String) {
    let folder = pilotfish.folder().join("dumps");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("client.json"), dump).unwrap();
    let mut command = std::process::Command::new(pilotfish.binary());
    command.args(["compare", "--dumps"]).arg(&folder);
    command.args(["--admin-address", &format!("127.0.0.1:{}", pilotfish.admin_port())]);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_was_sent_is_compared_with_what_envoy_says() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, envoy: &Envoy| {
        let nothing_differs = async |when: &str| {
            eventually(&format!("Envoy has what it was sent {when}"), || async {
                match difference(pilotfish, envoy) {
                    (Some(0), text) if text.contains("has what it was sent") => Ok(()),
                    other => Err(other),
                }
            })
            .await;
        };
        nothing_differs("at first").await;
        // Envoy keeps endpoints in the order in which they came.
        for versions in [&[1][..], &[0, 1], &[]] {
            pilotfish.write("catalog.yaml", &shop.catalog_slices(versions));
            nothing_differs(&format!("with {versions:?}")).await;
        }
        eventually("the dump of the Envoy is what it would be sent without a connection", || async {
            let dump = envoy.page("/config_dump?include_eds").await.map_err(|error| (None, error))?;
            match comparison(pilotfish, &dump) {
                (Some(0), text) if text.ends_with("1 proxy would get what it has now\n") => Ok(()),
                other => Err(other),
            }
        })
        .await;
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        pilotfish.write("bad.yaml", &entry(port));
        eventually("what Envoy refuses is shown with its words", || async {
            let (code, text) = difference(pilotfish, envoy);
            let refused = format!("listeners 127.0.0.1_{port}: refused: ");
            let line = text.lines().find_map(|line| line.strip_prefix(&refused)).unwrap_or_default();
            let is_alone = text.starts_with("client.shop: 1 resource differs");
            if code == Some(1) && is_alone && line.contains("ddress already in use") {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        pilotfish.remove("bad.yaml");
        nothing_differs("at last").await;
    });
}

#[test]
fn what_envoy_refuses_is_reported_and_the_old_state_serves_on() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, envoy: &Envoy| {
        // A port that is in use: Envoy cannot open the listener and refuses it.
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let load = Load::start(shop.port, CATALOG);
        pilotfish.write("bad.yaml", &entry(port));
        eventually("the refusal is shown with Envoy's words", || async {
            let ads = pilotfish.page("/debug/adsz").await?;
            if ads.contains("ddress already in use") { Ok(()) } else { Err(ads) }
        })
        .await;
        assert!(pilotfish.metric("pilot_total_xds_rejects").await >= 1.0);
        // Others are served on, and so is this one, of everything else.
        pilotfish.write("routes.yaml", &support::routes((0, 100)));
        eventually("a later change arrives", || async {
            let tally = ask(20, shop.port, &[]).await;
            if tally.get("v2") == Some(&20) { Ok(()) } else { Err(tally) }
        })
        .await;
        pilotfish.remove("bad.yaml");
        let _free = (drop(taken), free_port());
        no_failures(&load.stop().await);
        assert!(envoy.page("/ready").await.is_ok());
    });
}

#[test]
fn a_killed_control_plane_costs_no_request_and_nothing_is_sent_again() {
    in_both_forms(async |shop: &Shop, pilotfish: &mut Pilotfish, envoy: &Envoy| {
        let load = Load::start(shop.port, CATALOG);
        load.answers(50).await;
        let updates = envoy.stat("cluster_manager.cds.update_success").await;
        pilotfish.kill().await;
        load.answers(100).await;
        pilotfish.restart().await;
        eventually("Envoy is connected again", || async {
            let connected = pilotfish.metric("pilot_xds").await;
            if connected >= 1.0 && envoy.stat("control_plane.connected_state").await == 1 {
                Ok(())
            } else {
                Err(connected)
            }
        })
        .await;
        // A change after the restart arrives: the stream is alive and in step.
        pilotfish.write("routes.yaml", &support::routes((0, 100)));
        eventually("a change arrives after the restart", || async {
            let tally = ask(20, shop.port, &[]).await;
            if tally.get("v2") == Some(&20) { Ok(()) } else { Err(tally) }
        })
        .await;
        no_failures(&load.stop().await);
        let ads = pilotfish.json("/debug/adsz").await;
        if ads["clients"][0]["protocol"] == "delta" {
            // One route configuration is all that went out: everything else was known by its version.
            assert_eq!(pilotfish.metric("pilotfish_xds_resources_sent").await, 1.0, "{ads}");
            assert!(envoy.stat("cluster_manager.cds.update_success").await <= updates + 1);
        }
    });
}

/// Waits until Envoy has a subset of the catalog and not the other one.
async fn has_renamed(envoy: &Envoy, what: &str, new: &str, old: &str) {
    eventually(&format!("{what}: Envoy has the renamed subset and no other"), || async {
        let clusters = envoy.page("/clusters").await?;
        let has = |subset: &str| clusters.contains(&format!("|{subset}|"));
        if has(new) && !has(old) { Ok(()) } else { Err(clusters) }
    })
    .await;
}

/// A route to the one subset of the catalog, which has that name.
fn renamed(subset: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: catalog, namespace: shop}}\nspec:\n  \
         hosts: [catalog]\n  http:\n  - route: [{{destination: {{host: catalog, subset: {subset}}}}}]\n---\n\
         apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: catalog, namespace: shop}}\nspec:\n  \
         host: catalog\n  subsets: [{{name: {subset}, labels: {{app: catalog}}}}]\n"
    )
}

#[test]
fn subsets_renamed_while_the_control_plane_is_down_cost_no_request() {
    // A state-of-the-world client does not say which clusters it has.
    in_forms(&["delta"], &async |shop: &Shop, pilotfish: &mut Pilotfish, envoy: &Envoy| {
        let load = Load::start(shop.port, CATALOG);
        for restart in 0..20 {
            let (old, new) = (format!("r{}", restart % 2), format!("r{}", (restart + 1) % 2));
            pilotfish.kill().await;
            pilotfish.write("routes.yaml", &renamed(&new));
            pilotfish.restart().await;
            has_renamed(envoy, &format!("restart {restart}"), &new, &old).await;
            load.answers(10).await;
        }
        no_failures(&load.stop().await);
    });
}

/// Version of the shop's routes: its number names the subset of the catalog, and requests for the cart go to
/// that subset in odd versions.
fn version(number: usize) -> String {
    let routes = renamed(&format!("r{number}"));
    if number.is_multiple_of(2) {
        return routes;
    }
    routes
        + &format!(
            "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: cart, namespace: shop}}\nspec:\n  \
             hosts: [cart]\n  http:\n  - route: [{{destination: {{host: catalog, subset: r{number}}}}}]\n"
        )
}

/// Writes a version for one replica, and waits until that replica serves it.
async fn advance(replica: &Pilotfish, number: usize) {
    replica.write("routes.yaml", &version(number));
    eventually(&format!("the replica serves version {number}"), || async {
        let objects = replica.page("/debug/configz").await?;
        if objects.contains(&format!("\"r{number}\"")) { Ok(()) } else { Err(objects) }
    })
    .await;
}

/// Two replicas behind one address.
struct Replicas {
    all: [Pilotfish; 2],
    proxy: FaultProxy,
}

impl Replicas {
    async fn start(shop: &Shop) -> Self {
        let all = [shop.serve((80, 20)).await, shop.serve((80, 20)).await];
        let proxy = FaultProxy::before(all[0].xds_port()).await;
        Self { all, proxy }
    }

    /// Moves Envoy to a replica.
    fn lead_to(&self, replica: usize) {
        self.proxy.lead_to(([127, 0, 0, 1], self.all[replica].xds_port()).into());
        self.proxy.cut();
    }
}

#[test]
fn moves_between_replicas_ahead_and_behind_cost_no_request() {
    in_turn(async {
        const ROUNDS: usize = 5;
        let shop = Shop::start().await;
        let replicas = Replicas::start(&shop).await;
        for replica in &replicas.all {
            advance(replica, 0).await;
        }
        let options =
            EnvoyOptions { xds_port: Some(replicas.proxy.port()), ..EnvoyOptions::sidecar("delta") };
        let Some(envoy) = start(&shop, &replicas.all[0], &options).await else { return };
        let loads = [CATALOG, CART].map(|host| Load::start(shop.port, host));
        for number in 0..ROUNDS {
            // Envoy is at the replica that stays behind.
            let (behind, ahead) = (number % 2, (number + 1) % 2);
            let (old, new) = (format!("r{number}"), format!("r{}", number + 1));
            advance(&replicas.all[ahead], number + 1).await;
            replicas.lead_to(ahead);
            has_renamed(&envoy, &format!("forward to {new}"), &new, &old).await;
            replicas.lead_to(behind);
            has_renamed(&envoy, &format!("back to {old}"), &old, &new).await;
            replicas.lead_to(ahead);
            has_renamed(&envoy, &format!("forward again to {new}"), &new, &old).await;
            for load in &loads {
                load.answers(10).await;
            }
            // The replica behind catches up before the next version.
            advance(&replicas.all[behind], number + 1).await;
        }
        for load in loads {
            no_failures(&load.stop().await);
        }
    });
}
