//! Simulated Consul agent, started by hand: `cargo run -p pilotfish-testkit --bin consul`.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use clap::Parser;
use pilotfish_testkit::consul::{Acl, Consul, ConsulOptions, Rights};
use std::net::SocketAddr;

/// A stand-in for a Consul agent, written from its documentation. Everything is in memory.
#[derive(Parser)]
struct Args {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:8500")]
    http: SocketAddr,
    /// The data centres that it answers for; the first one is its own.
    #[arg(long, default_value = "dc1", value_delimiter = ',')]
    datacenter: Vec<String>,
    /// The name of its node.
    #[arg(long, default_value = "agent-1")]
    node: String,
    /// Connections of one client.
    #[arg(long, default_value_t = 200)]
    connections: usize,
    /// With ACLs: the token that may do everything. Without it nobody needs one.
    #[arg(long)]
    token: Option<String>,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    let acl =
        args.token.map(|token| Acl { tokens: [(token, Rights::management())].into(), ..Acl::default() });
    let options = ConsulOptions {
        address: args.http,
        datacenters: args.datacenter,
        node: args.node,
        connections_per_client: args.connections,
        acl,
        ..ConsulOptions::default()
    };
    let consul = Consul::start(options).await;
    println!("listening at {}", consul.url());
    std::future::pending::<()>().await;
}
