//! Options of a simulated server.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct PolarisOptions {
    /// Interval at which writes become visible to Discover; `None` for [`Polaris::refresh`] only. [rec
    /// discover-read-after-write] One second on a real server.
    pub tick: Option<Duration>,
    /// Ports for HTTP and gRPC, which are 8090 and 8091 on a real server; `None` for free ones.
    pub ports: Option<(u16, u16)>,
    /// Token that the console API requires in `X-Polaris-Token`.
    pub token: Option<String>,
    /// True if clients need it too (`clientOpen`).
    pub clients_need_token: bool,
    /// Rate limit for writes of one instance by the console API: burst, and writes per second.
    pub instance_limit: Option<(u32, u32)>,
    /// Id and token of a user; `token` authorises requests for the user's token, which is accepted like
    /// `token`. [rec auth-users]
    pub user: Option<(String, String)>,
    /// True if queries of the console use the data of Discover. [doc] Its reads lag behind writes; those of
    /// the recorded server do not [rec instances-read-after-write].
    pub console_lags: bool,
    /// True if the cache misses the deletion of an instance that was not changed within the last 5 s: the
    /// deletion is acknowledged, and the instance is still shown. Servers with the boltdb store behave so
    /// until they are restarted.
    pub shows_deleted: bool,
    /// True if instances with missing heartbeats become unhealthy. [rec health-ttl, health-ttl-unchecked]
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
