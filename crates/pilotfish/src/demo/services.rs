//! Sample services: tiny HTTP servers that answer with their names.

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::any;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Names and addresses of the sample services.
const SERVICES: [(&str, &str); 4] = [
    ("catalog v1", "127.0.0.11:9080"),
    ("catalog v2", "127.0.0.12:9080"),
    ("cart v1", "127.0.0.13:9080"),
    ("payment", "127.0.0.14:9080"),
];

/// Returns the name and address of each service.
pub(super) fn addresses() -> impl Iterator<Item = (&'static str, &'static str)> {
    SERVICES.into_iter()
}

/// Starts all services; they end when the set is dropped.
pub(super) async fn start() -> Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    for (name, address) in SERVICES {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("the sample service {name:?} cannot listen on {address}\nhint: is another demo running?")
        })?;
        let app = Router::new().fallback(any(move || async move { format!("{name}\n") }));
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, app).await {
                tracing::error!(name, %error, "a sample service ended");
            }
        });
    }
    Ok(tasks)
}
