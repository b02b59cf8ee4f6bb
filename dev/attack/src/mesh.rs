//! Environment of attacks: the control plane with its files, a cluster's API server, and an Envoy with
//! traffic.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use pilotfish_bench::world::{NAMESPACE, Target as Changed, World, address};
use pilotfish_testkit::real::{
    ApiServer, ApiServerOptions, ApiServerProxy, Authority, Backend, Envoy, EnvoyOptions, Load, Pilotfish,
    eventually, free_port, get,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::certificate::Agent;
use crate::dialer::Dialer;
use crate::honest::Ways;
use crate::wire::ACCOUNT;
use crate::{Attack, Cluster, Target};

/// Number of services of honest proxies, and of endpoints of each.
const SERVICES: usize = 200;
const ENDPOINTS: usize = 5;
/// Host of the Envoy's traffic.
const ECHO: &str = "echo.shop.svc.cluster.local";

/// Initial lead of the cluster's resource versions: leaves room for restorations.
const AHEAD: u64 = 1_000_000_000;

/// The environment. Everything ends on drop.
pub(crate) struct Mesh {
    pilotfish: Pilotfish,
    pub(crate) target: Target,
    pub(crate) ways: Ways,
    /// Honest workload that requests certificates.
    pub(crate) agent: Agent,
    world: World,
    traffic: Option<Traffic>,
    _folder: TempDir,
    _files: TempDir,
}

/// An Envoy, and requests through it.
struct Traffic {
    load: Load,
    _envoy: Envoy,
    _backends: [Backend; 2],
}

impl Mesh {
    /// Starts everything; an API server and an Envoy only if they are installed.
    pub(crate) async fn start(binary: &Path) -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let files = in_memory()?;
        let config = files.path().join("mesh");
        fs::create_dir(&config)?;
        let world = World::create(&config, SERVICES, ENDPOINTS)?;
        let backends = [Backend::start("127.0.0.11", "v1").await, Backend::start("127.0.0.12", "v2").await];
        let port = free_port();
        fs::write(config.join("shop.yaml"), shop(port, &backends))?;
        let cluster = cluster().await;
        let certificates = Certificates::write(folder.path());
        let target = Target {
            pilotfish: binary.to_owned(),
            plaintext_xds: loopback(0),
            tls_xds: loopback(free_port()),
            admin: loopback(0),
            webhook: cluster.is_some().then(|| loopback(free_port())),
            cluster,
            registration: Some(loopback(free_port())),
            ca_certificate: certificates.of("server", "root-cert.pem"),
            server: certificates.pair("server"),
            client_certificate: certificates.of("stranger", "cert-chain.pem"),
            client_key: certificates.of("stranger", "key.pem"),
            foreign: certificates.pair("foreign"),
            unproven: certificates.unproven(),
            expired: certificates.pair("expired"),
            many: (0..MANY).map(|number| certificates.pair(&many(number))).collect(),
            config,
        };
        let arguments = arguments(&target, folder.path());
        let binary = binary.to_str().context("the path of the executable is no text")?;
        let pilotfish = Pilotfish::launch(binary, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        pilotfish.ready().await;
        let target = Target {
            plaintext_xds: loopback(pilotfish.xds_port()),
            admin: loopback(pilotfish.admin_port()),
            ..target
        };
        let honest = Dialer::with_certificate(
            target.tls_xds,
            &target.ca_certificate,
            &certificates.of("honest", "cert-chain.pem"),
            &certificates.of("honest", "key.pem"),
        )?;
        let ways = Ways::new(&Dialer::plaintext(&target), &honest);
        let agent = Agent::new(honest.from(AGENT), HONEST)?;
        let traffic = traffic(&pilotfish, port, backends).await;
        Ok(Self { pilotfish, target, ways, agent, world, traffic, _folder: folder, _files: files })
    }

    /// Changes an endpoint that all honest proxies have, like an edit of a file. Returns the new address.
    pub(crate) fn change(&self, number: usize) -> (String, impl FnOnce() -> Result<()>) {
        let address = address(number);
        let text = address.clone();
        (address, move || self.world.change(Changed::All, &text))
    }

    /// Namespace of honest proxies.
    pub(crate) fn namespace(&self) -> &'static str {
        NAMESPACE
    }

    /// True if there is an Envoy.
    pub(crate) fn has_envoy(&self) -> bool {
        self.traffic.is_some()
    }

    /// Requests through the Envoy since the last call: their number, and the failures.
    pub(crate) fn take_traffic(&self) -> (usize, Vec<String>) {
        let Some(traffic) = &self.traffic else { return (0, Vec::new()) };
        let tally = traffic.load.reset();
        let failed = tally.iter().filter(|(who, _)| !["v1", "v2"].contains(&who.as_str()));
        let failed = failed.map(|(why, count)| format!("{count} x {why}")).collect();
        (tally.values().sum(), failed)
    }

    /// Memory in bytes, open files and sockets, and bytes of the log. Pages of the executable are not
    /// counted: they are loaded when code runs for the first time.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let id = self.pilotfish.process_id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).context("pilotfish has ended")?;
        let anonymous = status.lines().find_map(|line| {
            line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        });
        let files = fs::read_dir(format!("/proc/{id}/fd")).context("pilotfish has ended")?.count();
        let log = fs::metadata(self.pilotfish.log()).map(|file| file.len()).unwrap_or_default();
        Ok(Usage { memory: anonymous.context("no RssAnon")? << 10, files, log })
    }

    /// Number of connected clients that the control plane reports.
    pub(crate) async fn clients(&self) -> Result<usize> {
        let text = self.pilotfish.page("/metrics").await.map_err(anyhow::Error::msg)?;
        let value = text.lines().find_map(|line| line.strip_prefix("pilot_xds ")?.parse().ok());
        value.context("no pilot_xds in the metrics")
    }

    /// Checks that it reports readiness.
    pub(crate) async fn ready(&self) -> Result<()> {
        match self.pilotfish.page("/ready").await {
            Ok(_) => Ok(()),
            Err(error) => bail!("/ready: {error}"),
        }
    }

    /// Status and text of a page.
    pub(crate) async fn answer(&self, path: &str) -> Result<(u16, String)> {
        self.pilotfish.answer(path).await.map_err(|error| anyhow!("{path}: {error}"))
    }

    /// End of Pilotfish's output.
    pub(crate) fn printed(&self) -> String {
        let all = self.pilotfish.printed();
        let lines: Vec<&str> = all.lines().collect();
        let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default();
        last.iter().map(|line| line.chars().take(300).collect::<String>()).collect::<Vec<_>>().join("\n")
    }

    /// Target of an attack on this environment.
    pub(crate) fn attacked_by(
        &self,
        attack: &Attack,
        deadline: crate::Deadline,
    ) -> futures::future::BoxFuture<'static, Result<crate::Tally>> {
        (attack.run)(std::sync::Arc::new(self.target.clone()), deadline)
    }
}

/// Resource usage of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) memory: u64,
    pub(crate) files: usize,
    pub(crate) log: u64,
}

/// A directory for changed files, in memory if possible. On a disk with other writers, finding a file can
/// take seconds, which would count as the server's time.
pub(crate) fn in_memory() -> Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).context("no temporary folder")
}

/// An API server with the definitions of all kinds. `None` if none is installed.
async fn cluster() -> Option<Arc<Cluster>> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    server.apply_definitions().await;
    // Namespace for the certificate of the webhooks.
    server.apply("{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}").await;
    let proxy = ApiServerProxy::start_ahead(&server, AHEAD).await;
    Some(Arc::new(Cluster { server, proxy }))
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// URIs of certificates without a valid identity.
const UNPROVEN: [&[&str]; 9] = [
    &["spiffe://cluster.local/ns/bench/sa/stranger", "spiffe://cluster.local/ns/bench/sa/default"],
    &["spiffe://cluster.local/ns/bench/sa/stranger", "https://cluster.local/"],
    &["spiffe://cluster.local/ns/bench/sa/stranger?x=y"],
    &["spiffe://cluster.local/ns/bench/sa/stranger#x"],
    &["spiffe://me@cluster.local/ns/bench/sa/stranger"],
    &["spiffe://cluster.local:443/ns/bench/sa/stranger"],
    &["spiffe://cluster.local/ns/bench/sa/../sa/stranger"],
    &["spiffe://cluster.local//ns/bench/sa/stranger"],
    &["spiffe://cluster.local/ns/b%65nch/sa/stranger"],
];

/// Service account of honest clients.
const HONEST: &str = "default";
/// Last byte of the honest workload's address. Limits of an address count for each separately.
const AGENT: u8 = 55;
/// Number of identities of attackers with many.
const MANY: usize = 16;

/// Service account of an attacker with many identities.
pub(crate) fn many(number: usize) -> String {
    format!("many-{number}")
}

/// Directories with the certificates of one authority.
struct Certificates(PathBuf);

impl Certificates {
    fn write(folder: &Path) -> Self {
        let authority = Authority::new();
        authority.write(authority.server(), &folder.join("server"));
        for (name, account) in [("honest", HONEST), ("stranger", ACCOUNT)] {
            authority
                .issue(&format!("spiffe://cluster.local/ns/{NAMESPACE}/sa/{account}"), &folder.join(name));
        }
        authority
            .issue(&format!("spiffe://foreign.example/ns/{NAMESPACE}/sa/{ACCOUNT}"), &folder.join("foreign"));
        for account in (0..MANY).map(many) {
            authority
                .issue(&format!("spiffe://cluster.local/ns/{NAMESPACE}/sa/{account}"), &folder.join(account));
        }
        let stranger = format!("spiffe://cluster.local/ns/{NAMESPACE}/sa/{ACCOUNT}");
        authority.write(authority.expired(&stranger), &folder.join("expired"));
        for (number, uris) in UNPROVEN.iter().enumerate() {
            authority.write(authority.with_uris(uris), &folder.join(format!("unproven-{number}")));
        }
        Self(folder.to_path_buf())
    }

    fn unproven(&self) -> Vec<(PathBuf, PathBuf)> {
        (0..UNPROVEN.len()).map(|number| self.pair(&format!("unproven-{number}"))).collect()
    }

    /// Files of the chain and the key.
    fn pair(&self, who: &str) -> (PathBuf, PathBuf) {
        (self.of(who, "cert-chain.pem"), self.of(who, "key.pem"))
    }

    fn of(&self, who: &str, file: &str) -> PathBuf {
        self.0.join(who).join(file)
    }
}

/// Arguments of Pilotfish, other than its plaintext addresses.
fn arguments(target: &Target, folder: &Path) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut arguments = vec![path(&target.config)];
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    add("--secure-xds-address", target.tls_xds.to_string());
    add("--tls-cert-file", path(&target.server.0));
    add("--tls-key-file", path(&target.server.1));
    add("--ca-cert-file", path(&target.ca_certificate));
    // Attackers of the pages have other source addresses, and their number must not change the result.
    arguments.push("--allow-remote-debug".to_owned());
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    // Honest proxies stay connected longer than a run.
    add("--max-identity-age", "24h".to_owned());
    add("--ca", "self-signed".to_owned());
    add("--data-dir", path(&folder.join("data")));
    if let Some(registration) = target.registration {
        add("--registration-address", registration.to_string());
    }
    if let (Some(cluster), Some(webhook)) = (&target.cluster, target.webhook) {
        add("--kubeconfig", path(&cluster.proxy.kubeconfig()));
        add("--webhook-address", webhook.to_string());
        add("--webhook-url", format!("https://{webhook}"));
    }
    arguments
}

async fn traffic(pilotfish: &Pilotfish, port: u16, backends: [Backend; 2]) -> Option<Traffic> {
    let envoy = Envoy::start(pilotfish, &EnvoyOptions::sidecar("delta")).await?;
    eventually("Envoy reaches the echo service", || get(port, ECHO, &[])).await;
    Some(Traffic { load: Load::start(port, ECHO), _envoy: envoy, _backends: backends })
}

/// Objects in the Envoy's namespace: one service, isolated from the others.
fn shop(port: u16, backends: &[Backend; 2]) -> String {
    let slices = backends.iter().zip(1..).map(|(backend, number)| {
        serde_json::json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("echo-{number}"), "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "echo"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": backend.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [format!("127.0.0.1{number}")], "conditions": {"ready": true}}],
        })
    });
    let service = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo", "namespace": "shop"},
        "spec": {"clusterIP": "127.0.1.1", "selector": {"app": "echo"},
                 "ports": [{"name": "http", "port": port, "targetPort": 80}]},
    });
    let sidecar = serde_json::json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Sidecar", "metadata": {"name": "default",
        "namespace": "shop"},
        "spec": {"egress": [{"hosts": ["./*"]}]},
    });
    let namespace =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let all: Vec<Value> = slices.chain([namespace, service, sidecar]).collect();
    all.iter().map(|object| format!("---\n{object}\n")).collect()
}
