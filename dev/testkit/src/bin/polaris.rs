//! Simulated Polaris server, to try docs/registries/polaris.md by hand: `cargo run -p pilotfish-testkit --bin
//! polaris`.

use anyhow::Result;
use clap::Parser;
use pilotfish_testkit::polaris::{Polaris, PolarisOptions};
use std::io::Write;

/// Serves what is like a Polaris server, in memory, on loopback.
#[derive(Parser)]
struct Args {
    /// The port of the HTTP APIs
    #[arg(long, default_value_t = 8090)]
    http_port: u16,
    /// The port of the gRPC API
    #[arg(long, default_value_t = 8091)]
    grpc_port: u16,
    /// The token that the console API and clients need
    #[arg(long)]
    token: Option<String>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { http_port, grpc_port, token } = Args::parse();
    let clients_need_token = token.is_some();
    let options = PolarisOptions {
        ports: Some((http_port, grpc_port)),
        token,
        clients_need_token,
        ..PolarisOptions::default()
    };
    let polaris = Polaris::start(options).await;
    writeln!(
        std::io::stdout(),
        "HTTP on http://127.0.0.1:{}, gRPC on 127.0.0.1:{}; Ctrl-C ends it",
        polaris.http_port(),
        polaris.grpc_port()
    )?;
    std::future::pending().await
}
