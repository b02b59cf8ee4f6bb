//! The HTTP server: bound first, run later, stopped gracefully.

use axum::Router;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Why the server cannot be started or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use or not one of this machine.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address as configured.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Accepting failed for good.
    #[error("the admin server ended")]
    Serve(#[source] io::Error),
}

/// A server that listens and does not serve yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Binds the address, so that a port conflict is an error at start.
    ///
    /// # Errors
    /// When it cannot be bound.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let bind = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { listener, address })
    }

    /// The bound address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` resolves and open requests are answered.
    ///
    /// # Errors
    /// When accepting fails for good.
    pub async fn run(
        self,
        router: Router,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), ServerError> {
        axum::serve(self.listener, router).with_graceful_shutdown(stop).await.map_err(ServerError::Serve)
    }
}
