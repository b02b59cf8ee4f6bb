//! Two hundred proxies at once, coming and going, with no growth in memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_testkit::real::{LIMIT, Pilotfish, eventually};
use std::net::SocketAddr;

const PROXIES: usize = 200;
const SERVICES: usize = 50;
const WARM_UP: usize = 6;
const ROUNDS: usize = 12;

fn services() -> String {
    let service = |n: usize| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: s{n}, namespace: n{}}}\nspec:\n  hosts: \
             [s{n}.example.com]\n  addresses: [10.1.{n}.1]\n  resolution: STATIC\n  ports: [{{name: http, number: 80, protocol: \
             HTTP}}]\n  endpoints: [{{address: 10.2.{n}.1}}, {{address: 10.2.{n}.2}}]\n---\n",
            n % 5
        )
    };
    (0..SERVICES).map(service).collect()
}

/// All proxies connect, get everything, and leave.
async fn round(pilotfish: &Pilotfish, first: usize) {
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    // New names in each round: pods of a rolling restart.
    let nodes = (0..PROXIES).map(|n| node(first + n, &format!("n{}", n % 5))).collect();
    let fleet = Fleet::start(target, nodes);
    fleet.synced(LIMIT).await.unwrap();
    drop(fleet);
    eventually("all have left", || async {
        match pilotfish.metric("pilot_xds").await {
            0.0 => Ok(()),
            left => Err(left),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_proxies_come_and_go_and_leave_nothing_behind() {
    let pilotfish =
        Pilotfish::start(env!("CARGO_BIN_EXE_pilotfish"), &[("services.yaml", &services())]).await;
    // What is kept to be used again (views, threads' heaps) grows at first: the first rounds fill it.
    let mut memory = Vec::new();
    for n in 0..WARM_UP + ROUNDS {
        round(&pilotfish, n * PROXIES).await;
        memory.push(pilotfish.metric("process_resident_memory_bytes").await / 1e6);
    }
    let (before, after) = (memory[WARM_UP - 1], memory[WARM_UP + ROUNDS - 1]);
    // 2,400 proxies that left something behind of 20 KB each would be 48 MB.
    assert!(after < before + 32.0, "resident memory in MB after each round: {memory:.0?}");
    println!("resident memory in MB after each round: {memory:.0?}");
}
