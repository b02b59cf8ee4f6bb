//! How a stand-in is started.

use std::time::Duration;

/// How a stand-in is started.
#[derive(Clone, Debug)]
pub struct PolarisOptions {
    /// How often what was written becomes visible to Discover; `None` for [`Polaris::refresh`] alone. [rec discover-read-after-write]
    /// A real server has a tick of one second.
    pub tick: Option<Duration>,
    /// The ports for HTTP and gRPC; 8090 and 8091 of a real server. `None` for free ones.
    pub ports: Option<(u16, u16)>,
    /// The token that the console API needs, in `X-Polaris-Token`.
    pub token: Option<String>,
    /// Whether clients need it too (`clientOpen`).
    pub clients_need_token: bool,
    /// How often one instance may be written by the console API: at once, and then each second.
    pub instance_limit: Option<(u32, u32)>,
    /// A user whose token may be asked for with `token`: its id and its token, which is taken like `token`. [rec auth-users]
    pub user: Option<(String, String)>,
    /// Whether queries of the console see what Discover sees. [doc] Its reads lag behind writes; the recorded server's do not
    /// [rec instances-read-after-write].
    pub console_lags: bool,
    /// True if the cache does not notice the deletion of an instance that was not changed within the last 5 s: it is acknowledged,
    /// and the instance is shown as before. So do servers with the boltdb store, until they are restarted.
    pub shows_deleted: bool,
    /// Whether instances become unhealthy whose heartbeats fail. [rec health-ttl, health-ttl-unchecked]
    pub checks_heartbeats: bool,
}

impl Default for PolarisOptions {
    fn default() -> Self {
        Self {
            tick: Some(Duration::from_secs(1)),
            ports: None,
            token: None,
            clients_need_token: false,
            instance_limit: None,
            user: None,
            console_lags: false,
            shows_deleted: false,
            checks_heartbeats: false,
        }
    }
}
