//! What a person sees who breaks a file: what is wrong, where, and that the last good version serves on.

mod support;

use pilotfish_testkit::real::{Envoy, EnvoyOptions, Load, eventually, get};
use support::{CATALOG, Shop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_file_is_reported_with_its_place_while_traffic_goes_on() {
    let shop = Shop::start().await;
    let pilotfish = shop.serve((50, 50)).await;
    let Some(_envoy) = Envoy::start(&pilotfish, &EnvoyOptions::sidecar("delta")).await else { return };
    eventually("the catalog is reached", || get(shop.port, CATALOG, &[])).await;
    let load = Load::start(shop.port, CATALOG);
    pilotfish.write("routes.yaml", &support::routes((50, 50)).replace("weight: 50", "wieght: 50"));
    let ready = eventually("/ready reports it", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("wieght") { Ok(ready) } else { Err(ready) }
    })
    .await;
    for part in
        ["routes.yaml:", "VirtualService shop/catalog", "did you mean \\\"weight\\\"?", "last good version"]
    {
        assert!(ready.contains(part), "{part:?} in {ready}");
    }
    load.answers(50).await;
    let tally = load.stop().await;
    assert!(tally.keys().all(|who| ["v1", "v2"].contains(&who.as_str())), "{tally:?}");
    pilotfish.write("routes.yaml", &support::routes((50, 50)));
    eventually("/ready is content again", || async {
        let ready = pilotfish.page("/ready").await?;
        if ready.contains("wieght") { Err(ready) } else { Ok(()) }
    })
    .await;
}
