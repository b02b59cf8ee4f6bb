//! Envoy's process, with what surrounds it in a pod: an agent with certificates and a name server.

use pilotfish_proto::envoy::config::core::v3::Extension;
use pilotfish_testkit::real::{Program, Tool, eventually, fetch, free_port};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokio::net::UdpSocket;
use tokio::process::Command;
use tokio::task::JoinHandle;

/// The running processes; they end with it.
pub(super) struct Running {
    _folder: tempfile::TempDir,
    _agent: Program,
    dns: JoinHandle<()>,
    envoy: Program,
    admin: u16,
}

impl Running {
    /// What Envoy has printed so far, or the end of it.
    pub(super) fn printed(&self) -> String {
        let printed = self.envoy.printed();
        let lines: Vec<&str> = printed.lines().collect();
        lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n")
    }

    /// The names of the listeners that Envoy serves.
    pub(super) async fn listeners(&self) -> Result<BTreeSet<String>, String> {
        let page = fetch(&format!("http://127.0.0.1:{}/listeners?format=json", self.admin)).await?;
        let page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
        let all = page["listener_statuses"].as_array().cloned().unwrap_or_default();
        Ok(all.iter().filter_map(|listener| listener["name"].as_str().map(ToOwned::to_owned)).collect())
    }

    /// The extensions that Envoy has. The server keeps only those of its node that it reads.
    pub(super) async fn extensions(&self) -> Result<Vec<Extension>, String> {
        let page = fetch(&format!("http://127.0.0.1:{}/server_info", self.admin)).await?;
        let page: Value = serde_json::from_str(&page).map_err(|error| error.to_string())?;
        let all = extensions_of(&page);
        if all.is_empty() { Err("Envoy lists no extensions".to_owned()) } else { Ok(all) }
    }
}

/// Of a page of Envoy's admin API, the extensions that it has.
fn extensions_of(page: &Value) -> Vec<Extension> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = page["node"]["extensions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let extension = |listed: &Value| Extension {
        name: text(&listed["name"]),
        category: text(&listed["category"]),
        type_urls: listed["type_urls"].as_array().into_iter().flatten().map(text).collect(),
        ..Extension::default()
    };
    all.iter().map(extension).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.dns.abort();
    }
}

/// Starts Envoy for the xDS server at a port of loopback.
pub(super) async fn start(xds: u16) -> Option<Running> {
    let (envoy, python) = (Tool::Envoy.find()?, Tool::Python.find()?);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (agent, sds) = start_agent(&python, folder.path()).await;
    let (dns, resolver) = start_dns().await;
    let bootstrap = folder.path().join("envoy.json");
    let admin = free_port();
    let text = bootstrap_json(xds, sds, resolver, admin).to_string();
    std::fs::write(&bootstrap, text).expect("the folder can be written");
    let mut command = Command::new(envoy);
    command.arg("-c").arg(&bootstrap).args(["--use-dynamic-base-id", "--concurrency", "1"]);
    command.args(["--log-level", "error", "--drain-time-s", "0"]);
    let envoy = Program::start(&mut command, folder.path().join("envoy.log"));
    Some(Running { _folder: folder, _agent: agent, dns, envoy, admin })
}

async fn start_agent(python: &Path, folder: &Path) -> (Program, u16) {
    let files = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/accept");
    let mut command = Command::new(python);
    command.args(["agent.py", "agent.crt", "agent.key"].map(|name| files.join(name)));
    let agent = Program::start(&mut command, folder.join("agent.log"));
    let port = eventually("the agent serves", || async {
        agent.printed().trim().parse::<u16>().map_err(|error| format!("{error}: {}", agent.printed()))
    })
    .await;
    (agent, port)
}

/// A name server that knows no name, at once: clusters of names are ready without waiting for the network.
async fn start_dns() -> (JoinHandle<()>, u16) {
    /// The flags of an answer, and the code for "no such name".
    const ANSWER: u8 = 0x80;
    const NO_NAME: u8 = 0x03;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let port = socket.local_addr().expect("it is bound").port();
    let task = tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            packet[2] |= ANSWER;
            packet[3] = NO_NAME;
            // A lost answer is requested again.
            let _ = socket.send_to(&packet[..length], from).await;
        }
    });
    (task, port)
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}

/// A cluster of one server on loopback.
fn cluster(name: &str, port: u16) -> Value {
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 2000}},
    });
    json!({
        "name": name, "type": "STATIC", "connect_timeout": "5s",
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(port)}}]}],
        },
    })
}

/// What Istio's agent gives its Envoy, as far as resources refer to it.
fn bootstrap_json(xds: u16, sds: u16, dns: u16, admin: u16) -> Value {
    let over_ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    json!({
        "node": {"id": "sidecar~10.0.0.1~stage.default~default.svc.cluster.local", "cluster": "stage.default"},
        "admin": {"address": address(admin)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
            "cds_config": over_ads, "lds_config": over_ads,
        },
        "static_resources": {"clusters": [cluster("xds-grpc", xds), cluster("sds-grpc", sds)]},
        "bootstrap_extensions": [{
            "name": "envoy.bootstrap.internal_listener",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"},
        }],
        "typed_dns_resolver_config": {
            "name": "envoy.network.dns_resolver.cares",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
                "resolvers": [address(dns)], "dns_resolver_options": {"no_default_search_domain": true},
            },
        },
    })
}
