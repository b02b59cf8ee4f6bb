//! Bootstraps that connect a stock Envoy or a gRPC client.

mod control_plane;
mod probes;
mod stats;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand, ValueEnum};
use control_plane::{ControlPlane, Target};
use pilotfish_webhook::inject::Workload;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

/// Bootstrap subcommands, by client.
#[derive(Subcommand, Clone, Debug)]
pub enum Bootstrap {
    /// Prints a bootstrap for Envoy
    #[command(after_help = ENVOY_EXAMPLES)]
    Envoy(Envoy),
    /// Prints a bootstrap for gRPC clients and servers (GRPC_XDS_BOOTSTRAP)
    #[command(after_help = GRPC_EXAMPLES)]
    Grpc(Grpc),
}

const ENVOY_EXAMPLES: &str = "Examples:
  pilotfish bootstrap envoy --name client-1 --namespace shop > envoy.json && envoy -c envoy.json
  pilotfish bootstrap envoy --interception none --label app=client
      # listeners bind their ports; no iptables needed

  # Over TLS, with a certificate that has the SPIFFE identity of the namespace (read at the start),
  # or with a token
  pilotfish bootstrap envoy --namespace shop --xds-address pilotfish.istio-system.svc:15012 \\
    --xds-ca-file root-cert.pem \\
    --xds-cert-file cert-chain.pem --xds-key-file key.pem > envoy.json
  pilotfish bootstrap envoy --namespace shop --xds-address pilotfish.istio-system.svc:15012 \\
    --xds-ca-file root-cert.pem \\
    --xds-token-file /var/run/secrets/tokens/istio-token > envoy.json

  # With a certificate of its workload, from a Pilotfish with --ca
  pilotfish bootstrap envoy --namespace shop --xds-ca-file root-cert.pem --workload-certificates \\
    --xds-cert-file cert-chain.pem --xds-key-file key.pem > envoy.json";

const GRPC_EXAMPLES: &str = "Examples:
  pilotfish bootstrap grpc --namespace shop > grpc.json
  GRPC_XDS_BOOTSTRAP=grpc.json python client.py     # dials xds:///catalog.shop.svc.cluster.local:80

  # A server: its address is that of its endpoint, so that its ports and the policies for it are
  # found
  pilotfish bootstrap grpc --namespace shop --ip 10.0.0.71 --label app=catalog > grpc.json

  # Mutual TLS, for clients and servers: a folder with cert-chain.pem, key.pem and root-cert.pem
  pilotfish bootstrap grpc --namespace shop --certificates ./certificates > grpc.json

  # To Pilotfish over TLS, with a certificate or a token
  pilotfish bootstrap grpc --namespace shop --xds-address pilotfish.istio-system.svc:15012 \\
    --xds-ca-file root-cert.pem \\
    --xds-cert-file cert-chain.pem --xds-key-file key.pem > grpc.json";

/// Name of the certificate provider in clusters and listeners.
const PROVIDER: &str = "default";
/// Metadata of an Envoy that takes the certificate of its workload from Pilotfish, on its ADS stream.
const CERTIFICATES_OVER_ADS: (&str, &str) = ("WORKLOAD_CERTIFICATES", "ads");
/// Interval at which gRPC rereads the certificates: short enough for the shortest-lived ones.
const REFRESH: &str = "60s";

/// Node of the client.
#[derive(Args, Clone, Debug)]
pub struct Identity {
    /// Name of the client's Pod or workload
    #[arg(long, default_value = "client")]
    name: String,
    /// Namespace whose configuration the client gets
    #[arg(long, default_value = "default", value_parser = namespace)]
    namespace: String,
    /// Address of the client: that of its workload in the registry. Without it, an Envoy is at 127.0.0.1, and
    /// a gRPC client is no workload
    #[arg(long)]
    ip: Option<IpAddr>,
    #[command(flatten)]
    control_plane: ControlPlane,
    /// Labels of the workload; may repeat
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Cluster that the client belongs to
    #[arg(long, default_value = "Kubernetes")]
    cluster_id: String,
    /// Locality of the client: region/zone/sub_zone. For gRPC it overrides the locality of the workload
    #[arg(long, default_value = "")]
    locality: String,
    /// More node metadata; may repeat
    #[arg(long = "metadata", value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
}

/// A bootstrap for Envoy.
#[derive(Args, Clone, Debug)]
pub struct Envoy {
    #[command(flatten)]
    identity: Identity,
    /// Sidecar, or a gateway
    #[arg(long, value_enum, default_value = "sidecar")]
    kind: EnvoyKind,
    /// Interception of traffic: `none` binds the listeners' own ports
    #[arg(long, value_enum, default_value = "none")]
    interception: Interception,
    /// Delta or state-of-the-world xDS
    #[arg(long, value_enum, default_value = "delta")]
    protocol: XdsProtocol,
    /// Address of Envoy's admin interface
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15000")]
    envoy_admin_address: String,
    /// Takes the certificate of its workload from Pilotfish, for mutual TLS of the mesh. Pilotfish needs --ca
    #[arg(long, requires = "xds_ca_file")]
    workload_certificates: bool,
}

/// A bootstrap for gRPC.
#[derive(Args, Clone, Debug)]
pub struct Grpc {
    #[command(flatten)]
    identity: Identity,
    /// Folder with cert-chain.pem, key.pem and root-cert.pem for mutual TLS; read again when they change
    #[arg(long, value_name = "FOLDER")]
    certificates: Option<PathBuf>,
}

/// Role of an Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EnvoyKind {
    Sidecar,
    Router,
}

/// Interception mode of a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Interception {
    None,
    Redirect,
    Tproxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum XdsProtocol {
    Delta,
    Sotw,
}

/// Parses KEY=VALUE.
///
/// # Errors
/// If there is no `=`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Parses the name of a namespace.
///
/// # Errors
/// If it is not a DNS label: no namespace can have such a name, so the client would receive nothing.
fn namespace(text: &str) -> Result<String, String> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = (1..=63).contains(&text.len()) && text.chars().all(known);
    if is_label && !text.starts_with('-') && !text.ends_with('-') {
        return Ok(text.to_owned());
    }
    Err("not a namespace: 1 to 63 of a-z, 0-9 and '-', which neither begins nor ends it".to_owned())
}

impl Bootstrap {
    /// Builds the bootstrap as JSON.
    ///
    /// # Errors
    /// If an address is not HOST:PORT.
    pub fn json(&self) -> anyhow::Result<Value> {
        match self {
            Self::Envoy(envoy) => envoy.json(),
            Self::Grpc(grpc) => grpc.json(),
        }
    }
}

impl Bootstrap {
    /// Warnings, a sentence each: configured files that do not exist here, but may exist where the client
    /// runs, and metadata that only Istio's agent implements.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let identity = match self {
            Self::Envoy(envoy) => &envoy.identity,
            Self::Grpc(grpc) => &grpc.identity,
        };
        let absent = identity.control_plane.files().filter(|(_, path)| !path.exists());
        let absent = absent.map(|(flag, path)| {
            format!("{flag} {}: no such file here; the client will need it", path.display())
        });
        let captures = identity.metadata.iter().filter(|(key, _)| key == "DNS_CAPTURE");
        let captures = captures.filter(|(_, value)| matches!(value.as_str(), "true" | "1"));
        absent
            .chain(captures.map(|(key, value)| {
                format!(
                    "--metadata {key}={value}: only Istio's agent answers DNS queries, and the client has \
                     none"
                )
            }))
            .collect()
    }
}

impl Identity {
    /// `ip` is the default address.
    fn node(&self, kind: &str, ip: IpAddr, more: &[(&str, &str)]) -> Value {
        let labels: BTreeMap<_, _> =
            self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let ip = self.ip.unwrap_or(ip).to_string();
        let metadata = self.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let node = NodeTemplate {
            kind,
            name: &self.name,
            namespace: &self.namespace,
            ip: &ip,
            ips: &ip,
            cluster_id: &self.cluster_id,
            app: labels.get("app").copied().unwrap_or(&self.name),
            labels: &labels,
            locality: &self.locality,
        };
        node.json(more.iter().copied().chain(metadata))
    }
}

/// A node with string fields: of a known client, or with placeholders that Kubernetes fills in.
struct NodeTemplate<'a> {
    kind: &'a str,
    name: &'a str,
    namespace: &'a str,
    ip: &'a str,
    ips: &'a str,
    cluster_id: &'a str,
    app: &'a str,
    labels: &'a BTreeMap<&'a str, &'a str>,
    locality: &'a str,
}

impl NodeTemplate<'_> {
    fn json<'m>(&self, more: impl Iterator<Item = (&'m str, &'m str)>) -> Value {
        let Self { kind, name, namespace, ip, ips, cluster_id, app, labels, locality } = self;
        let mut metadata: Map<String, Value> = Map::new();
        let own =
            [("NAME", name), ("NAMESPACE", namespace), ("CLUSTER_ID", cluster_id), ("INSTANCE_IPS", ips)];
        metadata.extend(own.into_iter().map(|(key, value)| (key.to_owned(), json!(value))));
        metadata.extend(more.map(|(key, value)| (key.to_owned(), json!(value))));
        metadata.insert("LABELS".into(), json!(labels));
        let mut node = json!({
            "id": format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
            "cluster": format!("{app}.{namespace}"), "metadata": metadata,
        });
        // Always set: gRPC for Node.js refuses a bootstrap without it.
        node["locality"] = json!({});
        if !locality.is_empty() {
            let mut parts = locality.split('/');
            let mut part = || parts.next().unwrap_or_default();
            node["locality"] = json!({"region": part(), "zone": part(), "sub_zone": part()});
        }
        node
    }
}

/// Splits an address into host and port; the host may be a name.
fn host_port(name: &str, text: &str) -> anyhow::Result<(String, u16)> {
    let wrong = || anyhow::anyhow!("{name} {text:?}: not HOST:PORT, as in 127.0.0.1:15010");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

impl Envoy {
    fn json(&self) -> anyhow::Result<Value> {
        let target = self.identity.control_plane.target()?;
        let (admin_host, admin_port) = host_port("--envoy-admin-address", &self.envoy_admin_address)?;
        let kind = match self.kind {
            EnvoyKind::Sidecar => "sidecar",
            EnvoyKind::Router => "router",
        };
        let interception = match self.interception {
            Interception::None => "NONE",
            Interception::Redirect => "REDIRECT",
            Interception::Tproxy => "TPROXY",
        };
        let api_type = match self.protocol {
            XdsProtocol::Delta => "DELTA_GRPC",
            XdsProtocol::Sotw => "GRPC",
        };
        let mut more = vec![("INTERCEPTION_MODE", interception)];
        if self.workload_certificates {
            ensure!(
                target.has_proof(),
                "--workload-certificates: Pilotfish sends them for a proven identity; add --xds-token-file, or \
                 --xds-cert-file and --xds-key-file"
            );
            more.push(CERTIFICATES_OVER_ADS);
        }
        let node = self.identity.node(kind, Ipv4Addr::LOCALHOST.into(), &more);
        Ok(envoy(&node, (&admin_host, admin_port), api_type, (&target, &self.identity.cluster_id)))
    }
}

fn envoy(
    node: &Value,
    (admin_host, admin_port): (&str, u16),
    api_type: &str,
    (target, cluster_id): (&Target, &str),
) -> Value {
    let over_ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    json!({
        "node": node,
        "admin": {"address": address(admin_host, admin_port)},
        "stats_config": stats::config(),
        "dynamic_resources": {
            "ads_config": {
                "api_type": api_type, "transport_api_version": "V3", "set_node_on_first_message_only": true,
                "grpc_services": [target.grpc_service(cluster_id)],
            },
            "cds_config": over_ads, "lds_config": over_ads,
        },
        "static_resources": {"clusters": [xds_cluster(target)]},
    })
}

fn address(host: &str, port: u16) -> Value {
    json!({"socket_address": {"address": host, "port_value": port}})
}

/// Path of the service account token for the Envoys of Pods.
const POD_TOKEN: &str = "/var/run/secrets/tokens/istio-token";

/// Address of Pilotfish for the Envoys of Pods.
#[derive(Clone)]
pub struct PodTarget {
    host: String,
    port: u16,
    cluster_id: String,
    authorities: Option<AuthoritiesNow>,
    has_certificates: bool,
}

/// Function for the current authorities of Pilotfish's certificate in PEM, called when a Pod is created.
pub type AuthoritiesNow = Arc<dyn Fn() -> String + Send + Sync>;

impl PodTarget {
    /// Creates a target at that HOST:PORT, for Pods of that cluster.
    ///
    /// # Errors
    /// If the address is malformed.
    pub fn new(xds_address: &str, cluster_id: &str) -> anyhow::Result<Self> {
        let (host, port) = host_port("--xds-address", xds_address)?;
        Ok(Self { host, port, cluster_id: cluster_id.to_owned(), authorities: None, has_certificates: false })
    }

    /// Uses TLS: Envoys verify Pilotfish by these authorities, and send the token of their service account.
    #[must_use]
    pub fn over_tls(self, authorities: AuthoritiesNow) -> Self {
        Self { authorities: Some(authorities), ..self }
    }

    /// Has Envoys take the certificates of their workloads from Pilotfish, if it is reached over TLS.
    #[must_use]
    pub fn with_certificates(self, has_certificates: bool) -> Self {
        Self { has_certificates, ..self }
    }

    /// True if Envoys take the certificates of their workloads from Pilotfish.
    #[must_use]
    pub fn has_certificates(&self) -> bool {
        self.has_certificates && self.authorities.is_some()
    }

    /// True if Envoys can verify Pilotfish: the authorities for that are known, or it is reached in
    /// plaintext.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.authorities.as_ref().is_none_or(|authorities| !authorities().is_empty())
    }

    /// Bootstrap of a Pod's Envoy. Values that are unknown before the Pod runs are written as `$(NAME)`,
    /// which Kubernetes expands in arguments of containers; the sidecar template sets the environment for
    /// them. Besides Envoy's own admin page, which only the Pod can reach, it responds to kubelets on port
    /// 15021 and to Prometheus on port 15090, like Istio's sidecars, and to the probes of its containers.
    #[must_use]
    pub fn bootstrap(&self, workload: &Workload<'_>) -> Value {
        self.bootstrap_of("sidecar", workload)
    }

    /// Bootstrap of a gateway's Envoy, otherwise as [`bootstrap`](Self::bootstrap).
    #[must_use]
    pub fn gateway_bootstrap(&self, workload: &Workload<'_>) -> Value {
        self.bootstrap_of("router", workload)
    }

    fn bootstrap_of(&self, kind: &str, workload: &Workload<'_>) -> Value {
        let app = workload.labels.get("app").copied().unwrap_or(workload.name);
        let node = NodeTemplate {
            kind,
            name: "$(POD_NAME)",
            namespace: "$(POD_NAMESPACE)",
            ip: "$(POD_IP)",
            ips: "$(POD_IPS)",
            cluster_id: &self.cluster_id,
            app: if app.is_empty() { "$(POD_NAME)" } else { app },
            labels: workload.labels,
            locality: "",
        };
        let more = [
            ("INTERCEPTION_MODE", workload.interception),
            // Rules of both families redirect to it, if the Pod has both.
            ("DUAL_STACK", "true"),
            ("SERVICE_ACCOUNT", "$(SERVICE_ACCOUNT)"),
            ("NODE_NAME", "$(NODE_NAME)"),
            ("WORKLOAD_NAME", workload.name),
        ];
        let certificates = self.has_certificates().then_some(CERTIFICATES_OVER_ADS);
        let node = node.json(more.into_iter().chain(certificates).filter(|(_, value)| !value.is_empty()));
        let target = match &self.authorities {
            Some(authorities) => Target::by_token(&self.host, self.port, &authorities(), POD_TOKEN),
            None => Target::plain(&self.host, self.port),
        };
        let target = (&target, self.cluster_id.as_str());
        let mut bootstrap = envoy(&node, ("127.0.0.1", ADMIN_PORT), "DELTA_GRPC", target);
        let mut listeners = vec![
            page("agent", "/healthz/ready", 15021, "/ready"),
            page("stats", "/stats/prometheus", 15090, "/stats/prometheus"),
        ];
        listeners.extend(probes::listener(workload));
        bootstrap["static_resources"]["listeners"] = json!(listeners);
        if let Some(clusters) = bootstrap["static_resources"]["clusters"].as_array_mut() {
            clusters.push(json!({
                "name": "envoy-admin", "alt_stat_name": stats::cluster("envoy-admin"),
                "type": "STATIC", "connect_timeout": "1s",
                "load_assignment": {
                    "cluster_name": "envoy-admin",
                    "endpoints": [{"lb_endpoints": [{
                        "endpoint": {"address": address("127.0.0.1", ADMIN_PORT)},
                    }]}],
                },
            }));
            clusters.extend(probes::clusters(workload));
        }
        bootstrap
    }
}

const CONNECTION_MANAGER: &str = "type.googleapis.com/\
    envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";

/// Admin port of the Envoys of Pods.
const ADMIN_PORT: u16 = 15000;

/// Listener of a Pod for one page of Envoy's admin API. Its statistics have the name of Istio's bootstrap.
fn page(stat_prefix: &str, path: &str, port: u16, of_admin: &str) -> Value {
    let name = format!("page-{port}");
    let manager = json!({
        "@type": CONNECTION_MANAGER,
        "stat_prefix": stat_prefix,
        "route_config": {"virtual_hosts": [{
            "name": name, "domains": ["*"],
            "routes": [{
                "match": {"path": path},
                "route": {"cluster": "envoy-admin", "prefix_rewrite": of_admin},
            }],
        }]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}],
    });
    pod_listener(&name, port, &manager)
}

/// Listener at the Pod's address with a connection manager.
fn pod_listener(name: &str, port: u16, manager: &Value) -> Value {
    json!({
        // The Pod's own address: before it runs, its family is unknown.
        "name": name, "address": address("$(POD_IP)", port),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager", "typed_config": manager,
        }]}],
    })
}

fn xds_cluster(target: &Target) -> Value {
    let options = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {
            "connection_keepalive": {"interval": "30s", "timeout": "5s"},
        }},
    });
    let endpoint = json!({"address": address(&target.host, target.port)});
    let mut cluster = json!({
        "name": "xds-grpc", "alt_stat_name": stats::cluster("xds-grpc"),
        "type": "STRICT_DNS", "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options,
        },
        "load_assignment": {
            "cluster_name": "xds-grpc",
            "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}],
        },
    });
    if let Some(socket) = target.transport_socket() {
        cluster["transport_socket"] = socket;
    }
    cluster
}

impl Grpc {
    fn json(&self) -> anyhow::Result<Value> {
        let mut json = json!({
            "xds_servers": [self.identity.control_plane.target()?.xds_server()?],
            // No endpoint has this address: a client at the address of one would be treated as its workload.
            "node": self.identity.node("sidecar", Ipv4Addr::UNSPECIFIED.into(), &[("GENERATOR", "grpc")]),
            "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
        });
        if let Some(folder) = &self.certificates {
            let folder = std::path::absolute(folder)
                .with_context(|| format!("--certificates {}: not the path of a folder", folder.display()))?;
            let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
            json["certificate_providers"] = json!({PROVIDER: {
                "plugin_name": "file_watcher",
                "config": {
                    "certificate_file": file("cert-chain.pem"),
                    "private_key_file": file("key.pem"),
                    "ca_certificate_file": file("root-cert.pem"),
                    "refresh_interval": REFRESH,
                },
            }});
        }
        Ok(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use pilotfish_proto::envoy::config::core::v3::Node;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        bootstrap: Bootstrap,
    }

    fn bootstrap(args: &[&str]) -> Value {
        Cli::try_parse_from([&["x"], args].concat()).unwrap().bootstrap.json().unwrap()
    }

    #[test]
    fn names_that_no_namespace_has_are_refused() {
        for good in ["shop", "a", "a-1", &"x".repeat(63)] {
            assert_eq!(namespace(good).as_deref(), Ok(good));
        }
        for bad in ["", "Shop", "a.b", "-a", "a-", "a_b", "a~b", "sh op", &"x".repeat(64)] {
            assert!(namespace(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_envoy_gets_a_node_that_the_translator_reads() {
        let json = bootstrap(&[
            "envoy",
            "--name",
            "a",
            "--namespace",
            "n",
            "--label",
            "app=a",
            "--protocol",
            "sotw",
        ]);
        let node = Node { id: json["node"]["id"].as_str().unwrap().into(), ..Default::default() };
        let proxy = pilotfish_translate::Proxy::from_node(&node).unwrap();
        assert_eq!((&*proxy.name, proxy.namespace.as_str()), ("a", "n"));
        assert_eq!(json["node"]["metadata"]["LABELS"]["app"], "a");
        assert_eq!(json["dynamic_resources"]["ads_config"]["api_type"], "GRPC");
    }

    #[test]
    fn envoy_with_workload_certificates_names_pilotfish_as_their_source() {
        const TLS: [&str; 4] = ["envoy", "--workload-certificates", "--xds-ca-file", "root.pem"];
        let json = bootstrap(&[&TLS[..], &["--xds-token-file", "token"]].concat());
        let (key, value) =
            (pilotfish_translate::CERTIFICATES_KEY, pilotfish_translate::CERTIFICATES_OVER_ADS);
        assert_eq!(json["node"]["metadata"][key], value);
        assert_eq!(bootstrap(&["envoy"])["node"]["metadata"].get(key), None);
        let refused = |args: &[&str]| match Cli::try_parse_from([&["x"], args].concat()) {
            Ok(cli) => cli.bootstrap.json().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        let why = refused(&["envoy", "--workload-certificates"]);
        assert!(why.contains("--xds-ca-file"), "{why}");
        assert!(refused(&TLS).contains("add --xds-token-file"), "no identity is proven");
    }

    #[test]
    fn envoys_of_pods_take_certificates_over_tls_only() {
        let workload = Workload {
            labels: &BTreeMap::new(),
            name: "web",
            interception: "NONE",
            status_port: 15020,
            probes: &[],
        };
        let plain = PodTarget::new("pilotfish:15012", "east").unwrap().with_certificates(true);
        let secure = plain.clone().over_tls(Arc::new(String::new));
        let (key, value) = CERTIFICATES_OVER_ADS;
        for (target, expected) in
            [(&plain, None), (&secure, Some(value)), (&secure.clone().with_certificates(false), None)]
        {
            assert_eq!(target.bootstrap(&workload)["node"]["metadata"][key].as_str(), expected);
            assert_eq!(target.has_certificates(), expected.is_some());
        }
    }

    #[test]
    fn a_grpc_server_gets_a_name_for_its_listeners_and_the_certificates() {
        let plain = bootstrap(&["grpc"]);
        assert_eq!(
            plain["server_listener_resource_name_template"],
            json!("xds.istio.io/grpc/lds/inbound/%s"),
            "{plain}"
        );
        assert_eq!(plain["node"]["locality"], json!({}));
        let address = |args: &[&str]| {
            let json = bootstrap(args);
            json["node"]["id"].as_str().unwrap().split('~').nth(1).unwrap().to_owned()
        };
        assert_eq!(address(&["grpc"]), "0.0.0.0", "a client is at no endpoint");
        assert_eq!(address(&["grpc", "--ip", "10.0.0.1"]), "10.0.0.1");
        assert_eq!(address(&["envoy"]), "127.0.0.1");
        assert!(plain.get("certificate_providers").is_none(), "{plain}");
        let mutual = bootstrap(&["grpc", "--certificates", "/etc/certificates"]);
        let provider = &mutual["certificate_providers"]["default"];
        assert_eq!(provider["plugin_name"], "file_watcher");
        assert_eq!(provider["config"]["private_key_file"], "/etc/certificates/key.pem");
    }

    #[test]
    fn files_that_are_not_there_are_warned_of() {
        let of = |file: &str| {
            let args = ["x", "grpc", "--xds-ca-file", file];
            Cli::try_parse_from(args).unwrap().bootstrap.warnings()
        };
        assert_eq!(of("Cargo.toml"), Vec::<String>::new());
        assert_eq!(of("absent.pem").len(), 1);
        assert!(of("absent.pem")[0].starts_with("--xds-ca-file absent.pem: no such file"));
    }

    #[test]
    fn dns_capture_without_an_agent_is_warned_of() {
        let of = |pair: &str| {
            let args = ["x", "envoy", "--metadata", pair];
            Cli::try_parse_from(args).unwrap().bootstrap.warnings()
        };
        assert!(of("DNS_CAPTURE=true")[0].starts_with("--metadata DNS_CAPTURE=true: only Istio's agent"));
        assert_eq!(of("DNS_CAPTURE=false"), Vec::<String>::new());
    }

    #[test]
    fn an_address_must_have_a_port() {
        let cli = Cli::try_parse_from(["x", "grpc", "--xds-address", "nowhere"]).unwrap();
        assert!(cli.bootstrap.json().unwrap_err().to_string().contains("not HOST:PORT"));
    }
}
