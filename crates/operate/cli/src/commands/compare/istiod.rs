//! Reading of what istiod sends to its proxies.

use super::cluster::{self, ProxyCluster, Tokens};
use super::files::{DUMP_BYTES, bounded};
use super::pods::of_pod;
use super::proxies::{self, IstiodProxy};
use super::{Dump, name_of};
use crate::client::{Address, Client};
use crate::error::CliError;
use clap::Args;
use pilotfish_api::v1::Section;
use pilotfish_compare::{ALL_KINDS, Held, Names, Resources};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Ports of istiod's debug pages. The first is not that of Pilotfish's own admin address.
const DEBUG_PORTS: [u16; 2] = [8080, 15014];
/// Name of istiod's certificate.
const ISTIOD: &str = "istiod.istio-system.svc";
/// Failures of plaintext at a TLS port, and of an identity that is not proven.
const REFUSALS: [&str; 4] = [
    "no HTTP/2 on this port",
    "the connection ended at once",
    "the server answered nothing",
    "grpc-status 16",
];
/// Advice for a port that refuses connections without credentials.
const NEEDS_TOKENS: &str = "; port 15012 takes --mint-tokens";
/// Maximum size of a file with nodes.
const NODES_BYTES: u64 = 64 << 20;

/// Flags of a running istiod.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "istiod")]
pub(super) struct FromIstiod {
    /// Reads what istiod sends to each of its proxies, at its plaintext xDS address (port 15010), or with
    /// --mint-tokens at port 15012
    #[arg(long, value_name = "HOST:PORT")]
    istiod: Option<String>,
    /// The address of istiod's debug pages, which list its proxies [default: port 8080 or 15014 of that host]
    #[arg(long, value_name = "HOST:PORT", requires = "istiod")]
    istiod_debug: Option<String>,
    /// YAML or JSON list of nodes as in bootstraps, in the place of istiod's debug pages
    #[arg(long, value_name = "FILE", requires = "istiod", conflicts_with = "istiod_debug")]
    nodes: Option<PathBuf>,
    /// Lists the Pods of the cluster (--kubeconfig, --context) for their proxies, in the place of istiod's
    /// debug pages
    #[arg(long, requires = "istiod", conflicts_with_all = ["nodes", "istiod_debug"])]
    pods: bool,
    /// Requests a token of each proxy's service account from the cluster (--kubeconfig, --context) and shows
    /// it to istiod, whose address is that of its TLS port 15012
    #[arg(long, requires_all = ["istiod", "istiod_ca"])]
    mint_tokens: bool,
    /// Authorities of istiod's certificate in PEM, as in ConfigMap istio-ca-root-cert
    #[arg(long, value_name = "FILE", requires = "mint_tokens")]
    istiod_ca: Option<PathBuf>,
    /// Name in istiod's certificate
    #[arg(long, value_name = "NAME", requires = "mint_tokens", default_value = ISTIOD)]
    istiod_name: String,
    /// Number of proxies that istiod is asked for at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    at_a_time: u16,
    /// Timeout for the answers of istiod for one proxy
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = crate::time::parse_duration)]
    proxy_timeout: Duration,
}

impl FromIstiod {
    /// Lists the proxies and prepares their reading. `own` is the address of Pilotfish, which has similar
    /// pages.
    pub(super) async fn open(
        &self,
        client: &Client,
        own: &Address,
        is_meant: impl Fn(&str) -> bool + Sync,
    ) -> Result<Ahead, CliError> {
        let address = self.istiod.clone().unwrap_or_default();
        let Some((host, _)) = address.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) else {
            return Err(CliError::new(format!("{address:?} is no address"))
                .hint("--istiod is written as HOST:PORT: 127.0.0.1:25010"));
        };
        let uses_cluster = self.pods || self.mint_tokens;
        let cluster = if uses_cluster { Some(cluster::open(&own.cluster).await?) } else { None };
        let (proxies, debug) = match (&self.nodes, cluster.as_deref().filter(|_| self.pods)) {
            (Some(file), _) => (of_nodes(file)?, None),
            (None, Some(cluster)) => (of_pods(cluster, &is_meant).await?, None),
            (None, None) => {
                let (page, debug) = self.listed(client, host, &own.admin_address).await?;
                (proxies::of_syncz(&page), Some(debug))
            }
        };
        let credentials = cluster.filter(|_| self.mint_tokens).map(|cluster| Credentials {
            tokens: Arc::new(Tokens::of(cluster)),
            ca_file: self.istiod_ca.clone().unwrap_or_default(),
            server_name: self.istiod_name.clone(),
        });
        Ok(Ahead {
            waiting: proxies.into_iter().filter(|proxy| is_meant(&proxy.name)).collect(),
            running: VecDeque::new(),
            at_a_time: usize::from(self.at_a_time),
            reader: Reader { address, debug, credentials, timeout: self.proxy_timeout },
        })
    }

    /// Page with istiod's proxies, and a client of the first address that answers.
    async fn listed(&self, client: &Client, host: &str, own: &str) -> Result<(Value, Client), CliError> {
        let addresses = match &self.istiod_debug {
            Some(address) => vec![address.clone()],
            None => DEBUG_PORTS.map(|port| format!("{host}:{port}")).to_vec(),
        };
        let mut failed = None;
        for address in addresses.iter().filter(|address| *address != own) {
            let debug = client.at(address);
            match debug.get_page("/debug/syncz").await {
                Ok(page) => return Ok((page, debug)),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let failed = failed.unwrap_or_else(|| CliError::new(format!("{own} is Pilotfish's own address")));
        Err(failed.hint(
            "--istiod-debug names istiod's debug address, or --nodes a file with proxies; in Kubernetes: \
             kubectl -n istio-system port-forward deploy/istiod 25010:15010 8080",
        ))
    }
}

/// Proxies of a file.
fn of_nodes(file: &Path) -> Result<Vec<IstiodProxy>, CliError> {
    let wrong = |error: String| CliError::new(format!("{}: {error}", file.display()));
    let text = bounded(file, NODES_BYTES).map_err(wrong)?;
    proxies::of_file(&text).map_err(wrong)
}

/// Proxies of the Pods of a cluster, sorted by name.
async fn of_pods(
    cluster: &dyn ProxyCluster,
    is_meant: &(impl Fn(&str) -> bool + Sync),
) -> Result<Vec<IstiodProxy>, CliError> {
    let mut proxies = Vec::new();
    let mut add = |pod: &Value| proxies.extend(of_pod(pod).filter(|proxy| is_meant(&proxy.name)));
    cluster.pods(&mut add).await?;
    proxies.sort_by(|a: &IstiodProxy, b| a.name.cmp(&b.name));
    Ok(proxies)
}

/// Reads proxies in their order, some of them ahead.
pub(super) struct Ahead {
    waiting: VecDeque<IstiodProxy>,
    running: VecDeque<(String, JoinHandle<Result<Dump, String>>)>,
    at_a_time: usize,
    reader: Reader,
}

impl Ahead {
    /// Number of proxies that were not returned.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    /// Name of the next proxy, and its resources or the reason why they could not be read.
    pub(super) async fn next(&mut self) -> Option<(String, Result<Dump, String>)> {
        while self.running.len() < self.at_a_time {
            let Some(proxy) = self.waiting.pop_front() else { break };
            let name = proxy.name.clone();
            self.running.push_back((name, tokio::spawn(self.reader.clone().read(proxy))));
        }
        let (name, task) = self.running.pop_front()?;
        Some((name, task.await.unwrap_or_else(|error| Err(error.to_string()))))
    }
}

/// Access to an istiod.
#[derive(Clone)]
struct Reader {
    address: String,
    /// Debug pages; `None` if all nodes are known.
    debug: Option<Client>,
    credentials: Option<Credentials>,
    timeout: Duration,
}

/// Credentials for the TLS port of istiod.
#[derive(Clone)]
struct Credentials {
    tokens: Arc<Tokens>,
    ca_file: PathBuf,
    server_name: String,
}

impl Credentials {
    /// Credential of a node.
    async fn of(&self, node: &Value) -> Result<IstiodCredential, String> {
        let token = self.tokens.token(node).await.map_err(|error| format!("no token: {error}"))?;
        Ok(IstiodCredential {
            ca_file: self.ca_file.clone(),
            server_name: self.server_name.clone(),
            authorization: format!("Bearer {token}"),
        })
    }
}

impl Reader {
    async fn read(self, proxy: IstiodProxy) -> Result<Dump, String> {
        proxy.check()?;
        let (node, listeners) = match (&proxy.node, &self.debug) {
            (Some(node), _) => (node.clone(), proxy.listeners.clone()),
            (None, Some(debug)) => {
                let query = form_urlencoded::Serializer::new(String::new())
                    .append_pair("proxyID", &proxy.name)
                    .finish();
                let page = debug.get_page(&format!("/debug/adsz?{query}")).await;
                let page: Value = page.map_err(|error| format!("its metadata: {}", error.message()))?;
                proxy.of_adsz(&page)?
            }
            (None, None) => return Err("its node is not known".to_owned()),
        };
        let node = proxies::without_writes(node);
        let is_grpc = proxies::is_grpc(&node);
        if is_grpc && listeners.is_empty() {
            return Err("a program with gRPC, and the listeners that it asks for are not known".to_owned());
        }
        let credential = match &self.credentials {
            Some(credentials) => Some(credentials.of(&node).await?),
            None => None,
        };
        let is_bare = credential.is_none();
        let question = IstiodQuestion {
            address: self.address.clone(),
            credential,
            node: proxies::marked(node.clone()),
            listeners: if is_grpc { listeners } else { Vec::new() },
            has_names: proxies::captures_dns(&node),
            timeout: self.timeout,
            bytes: usize::try_from(DUMP_BYTES).unwrap_or(usize::MAX),
        };
        let read = READER.get().ok_or("this program has no client of xDS")?;
        // The port speaks TLS, or istiod refuses the identity.
        let needs_tokens = |error: &str| is_bare && REFUSALS.iter().any(|refusal| error.contains(refusal));
        let explained = |error: String| {
            if needs_tokens(&error) { error + NEEDS_TOKENS } else { error }
        };
        let answer = read(question).await.map_err(explained)?;
        Ok(dump(node, is_grpc, answer))
    }
}

fn dump(node: Value, is_grpc: bool, answer: IstiodAnswer) -> Dump {
    let mut held = Resources::new();
    for (section, name, resource) in answer.resources {
        if let Some(kind) = ALL_KINDS.into_iter().find(|kind| *kind == section.as_str()) {
            held.insert((kind, name), Held { resource, ..Held::default() });
        }
    }
    // An Envoy subscribes by the references of what Pilotfish sends to it.
    let is_by_name = |section: Section| is_grpc || section == Section::Extensions;
    let names = answer.names.into_iter().filter(|(section, names)| is_by_name(*section) && !names.is_empty());
    let names: Names = names.map(|(section, names)| (section.as_str().to_owned(), names)).collect();
    Dump { proxy: name_of(&node), node, names, held }
}

/// Credential for the TLS port of a control plane.
#[derive(Clone)]
pub struct IstiodCredential {
    /// Authorities of the server's certificate.
    pub ca_file: PathBuf,
    /// Name in the server's certificate.
    pub server_name: String,
    /// Value of the header `authorization`.
    pub authorization: String,
}

impl fmt::Debug for IstiodCredential {
    /// Leaves out the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IstiodCredential").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// Question to a control plane at an address: the resources of a node.
#[derive(Clone, Debug)]
pub struct IstiodQuestion {
    /// `HOST:PORT` of its xDS server.
    pub address: String,
    /// Credential for TLS; `None` for plaintext.
    pub credential: Option<IstiodCredential>,
    /// Node in the JSON of Envoy's API.
    pub node: Value,
    /// Listeners to subscribe to; empty for an Envoy, which subscribes to all.
    pub listeners: Vec<String>,
    /// True if the proxy subscribes to a name table.
    pub has_names: bool,
    /// Timeout of the whole exchange.
    pub timeout: Duration,
    /// Maximum number of bytes of all responses.
    pub bytes: usize,
}

/// Resources of a node.
#[derive(Clone, Debug, Default)]
pub struct IstiodAnswer {
    /// Resources by section and name.
    pub resources: Vec<(Section, String, Value)>,
    /// Names that were subscribed to.
    pub names: BTreeMap<Section, Vec<String>>,
}

/// Future of an answer, or of the reason why there is none.
pub type IstiodReading = Pin<Box<dyn Future<Output = Result<IstiodAnswer, String>> + Send>>;

/// Function of the binary that reads over xDS: this crate has no protobuf messages.
type Read = fn(IstiodQuestion) -> IstiodReading;

/// Set once at start.
static READER: OnceLock<Read> = OnceLock::new();

/// Registers the function that reads from istiod, once, before commands run.
pub fn read_istiod_by(read: Read) {
    // A second call would register the same one.
    let _ = READER.set(read);
}
