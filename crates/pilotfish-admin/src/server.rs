//! The HTTP server: bound first, run later, stopped gracefully.

use axum::Router;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Why the server cannot be started or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Accepting failed for good.
    #[error("the admin server ended")]
    Serve(#[source] io::Error),
}

/// A server that has its address but does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Takes the address.
    ///
    /// # Errors
    /// When it cannot be had.
    pub async fn bind(address: SocketAddr) -> Result<Self, ServerError> {
        let bind = |source| ServerError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        Ok(Self { listener, address })
    }

    /// The address that it really has: with port 0 asked for, a free one.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is done and open requests are answered.
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
