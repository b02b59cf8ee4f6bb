//! Settings of `serve`, in two stages: what was written (flags, environment, file), and the checked parts that
//! components get. All mistakes are reported at once.

mod modes;
mod secure;
mod status;
mod webhooks;

use crate::lanes::{Window, Windows};
use crate::webhooks::WebhookSettings;
use clap::Args;
use pilotfish_config::status::Controllers;
use pilotfish_kube::client::ClientSettings;
use pilotfish_kube::remote::{InsecureOptions, KubeconfigsIn};
use pilotfish_kube_writer::auto_registration::RegistrationFeatures;
use pilotfish_kube_writer::status::AddressRanges;
use pilotfish_registry::RegistrySettings;
pub(crate) use secure::AUDIENCE;
pub use secure::{CertificateSource, SecureSettings};
use serde::Deserialize;
use status::Allocation;
pub use status::WriteStatus;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was written. A flag wins over its environment variable, both win over the settings file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Written {
    /// Folders and files with Kubernetes and Istio YAML; changes are picked up
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Reads a live cluster: all kinds of objects, from its API server
    #[arg(long, env = "PILOTFISH_KUBERNETES")]
    pub kubernetes: bool,
    /// The kubeconfig of that cluster [default: the Pod's service account, else $KUBECONFIG or ~/.kube/config]
    #[arg(long, env = "PILOTFISH_KUBECONFIG", value_name = "FILE", requires = "kubernetes")]
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of mesh-wide settings: ConfigMap `istio`, Secrets of remote clusters, Leases [default: istio-system]
    #[arg(long, env = "PILOTFISH_ROOT_NAMESPACE", value_name = "NS")]
    pub root_namespace: Option<String>,
    /// Whose status is written to the API server, by one of all replicas: off, gateway-api (and Ingress), all (and Istio's kinds are
    /// told what is wrong with them) [default: gateway-api]
    #[arg(long, env = "PILOTFISH_WRITE_STATUS", value_name = "MODE")]
    pub write_status: Option<String>,
    /// Whose Gateways and routes are told how they are, by controller name; where istiod goes on, name
    /// pilotfish.io/gateway-controller alone [default: istio.io/gateway-controller,pilotfish.io/gateway-controller]
    #[arg(long, env = "PILOTFISH_STATUS_CONTROLLERS", value_name = "NAME", value_delimiter = ',')]
    pub status_controllers: Vec<String>,
    /// How hosts of ServiceEntries without an address are given some: status (one of all replicas writes them to the entries'
    /// status, as istiod does), name (each process computes them from the names), off (only what a status says already counts)
    /// [default: status where status is written, else name]
    #[arg(long, env = "PILOTFISH_ALLOCATE_ADDRESSES", value_name = "MODE")]
    pub allocate_addresses: Option<String>,
    /// The ranges of addresses that are written to status [default: 240.240.0.0/16,2001:2::/48]
    #[arg(long, env = "PILOTFISH_ALLOCATION_RANGES", value_name = "IPV4,IPV6")]
    pub allocation_ranges: Option<String>,
    /// How long readiness waits for a remote cluster [default: 30s]
    #[arg(long, env = "PILOTFISH_REMOTE_CLUSTER_TIMEOUT", value_name = "DURATION")]
    pub remote_cluster_timeout: Option<String>,
    /// A folder with kubeconfigs of remote clusters, ID.yaml or ID.yml each, instead of Secrets with the label
    /// istio/multiCluster; changes are picked up
    #[arg(long, env = "PILOTFISH_REMOTE_KUBECONFIGS", value_name = "FOLDER", requires = "kubernetes")]
    pub remote_kubeconfigs: Option<PathBuf>,
    /// What kubeconfigs of remote clusters may ask for although it is dangerous: exec, clientKey, clientCertificate, tokenFile,
    /// certificateAuthority, insecureSkipTLSVerify, gcp, azure, openstack [default: nothing]
    #[arg(long, env = "PILOTFISH_INSECURE_KUBECONFIG_OPTIONS", value_name = "OPTION", value_delimiter = ',')]
    pub insecure_kubeconfig_options: Vec<String>,
    /// What is done with WorkloadEntries of workloads that connect: auto-registration (they are made from WorkloadGroups),
    /// health-checks (they say how the workload is), all, off [default: all]
    #[arg(long, env = "PILOTFISH_WORKLOAD_ENTRIES", value_name = "MODE")]
    pub workload_entries: Option<String>,
    /// How long the WorkloadEntry of a workload that registered itself is kept after it disconnected [default: 10s]
    #[arg(long, env = "PILOTFISH_WORKLOAD_ENTRY_GRACE_PERIOD", value_name = "DURATION")]
    pub workload_entry_grace_period: Option<String>,
    /// Istio's MeshConfig: a file with the settings themselves, or a ConfigMap with the key `mesh`; reloaded on change
    #[arg(long, env = "PILOTFISH_MESH_CONFIG", value_name = "FILE")]
    pub mesh_config: Option<PathBuf>,
    /// Istio's MeshNetworks: a file with the settings themselves, or a ConfigMap with the key `meshNetworks`
    #[arg(long, env = "PILOTFISH_MESH_NETWORKS", value_name = "FILE")]
    pub mesh_networks: Option<PathBuf>,
    /// Where proxies connect (plaintext gRPC) [default: 127.0.0.1:15010]
    #[arg(long, env = "PILOTFISH_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub xds_address: Option<String>,
    /// Where proxies connect over TLS, usually on port 15012, and prove who they are by a certificate or a token of their service
    /// account; without it there is no such port
    #[arg(long, env = "PILOTFISH_SECURE_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub secure_xds_address: Option<String>,
    /// The certificate that is shown there, a chain in PEM; read again when it changes [default: the one that the webhooks keep]
    #[arg(long, env = "PILOTFISH_TLS_CERT_FILE", value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key in PEM; read again when it changes
    #[arg(long, env = "PILOTFISH_TLS_KEY_FILE", value_name = "FILE")]
    pub tls_key_file: Option<PathBuf>,
    /// Authorities of proxies' certificates in PEM, read again when they change; may repeat. Whoever has a certificate of them is
    /// believed the SPIFFE identity in it
    #[arg(long = "ca-cert-file", env = "PILOTFISH_CA_CERT_FILE", value_name = "FILE", value_delimiter = ',')]
    pub ca_cert_files: Vec<PathBuf>,
    /// Whom tokens of proxies must be for, with --kubernetes [default: istio-ca]
    #[arg(long, env = "PILOTFISH_TOKEN_AUDIENCES", value_name = "AUDIENCE", value_delimiter = ',')]
    pub token_audiences: Vec<String>,
    /// Where health, metrics and debug pages are [default: 127.0.0.1:15014]
    #[arg(long, env = "PILOTFISH_ADMIN_ADDRESS", value_name = "HOST:PORT")]
    pub admin_address: Option<String>,
    /// The id of the cluster that the files describe: the CLUSTER_ID of its proxies [default: Kubernetes]
    #[arg(long, env = "PILOTFISH_CLUSTER_ID", value_name = "ID")]
    pub cluster_id: Option<String>,
    /// The domain of Kubernetes Services' host names [default: cluster.local]
    #[arg(long, env = "PILOTFISH_DOMAIN", value_name = "DOMAIN")]
    pub domain: Option<String>,
    /// How far ServiceExports and ServiceImports count: off, discovery (endpoints of Services that are not exported stay in their
    /// cluster), hosts (and imported Services have a host below clusterset.local), cluster-local (and only that host crosses
    /// clusters) [default: off]
    #[arg(long, env = "PILOTFISH_MULTI_CLUSTER_SERVICES", value_name = "MODE")]
    pub multi_cluster_services: Option<String>,
    /// Exports every Service of every cluster that is not local to it, by one of all replicas
    #[arg(long, env = "PILOTFISH_EXPORT_SERVICES", requires = "kubernetes")]
    pub export_services: bool,
    /// Registries to run, by name [default: Kubernetes,ServiceEntry]
    #[arg(long, env = "PILOTFISH_REGISTRIES", value_name = "NAME", value_delimiter = ',')]
    pub registries: Vec<String>,
    /// How long a graceful stop may take before streams are cut [default: 10s]
    #[arg(long, env = "PILOTFISH_DRAIN_DEADLINE", value_name = "DURATION")]
    pub drain_deadline: Option<String>,
    /// Largest request that a proxy may send, in bytes [default: 4194304]
    #[arg(long, env = "PILOTFISH_MAX_REQUEST_BYTES", value_name = "N")]
    pub max_request_bytes: Option<String>,
    /// Most streams at a time [default: 100000]
    #[arg(long, env = "PILOTFISH_MAX_STREAMS", value_name = "N")]
    pub max_streams: Option<String>,
    /// Most resource names that one stream may subscribe to, over all types [default: 100000]
    #[arg(long, env = "PILOTFISH_MAX_SUBSCRIPTIONS", value_name = "N")]
    pub max_subscriptions: Option<String>,
    /// How long a burst of endpoint changes of one namespace is gathered: pause and ceiling [default: 3ms,30ms]
    #[arg(long, env = "PILOTFISH_ENDPOINT_WINDOW", value_name = "PAUSE,CEILING")]
    pub endpoint_window: Option<String>,
    /// How long a burst of configuration changes of one namespace is gathered [default: 20ms,200ms]
    #[arg(long, env = "PILOTFISH_CONFIG_WINDOW", value_name = "PAUSE,CEILING")]
    pub config_window: Option<String>,
    /// Believe a proxy's node what namespace and service account it has, where its connection proves nothing: it then gets the
    /// secrets of that namespace. Only where nobody else can connect
    #[arg(long, env = "PILOTFISH_TRUST_NODES")]
    pub trust_nodes: bool,
    /// Where API servers ask the webhooks (HTTPS), usually on port 15017; without it there are none
    #[arg(long, env = "PILOTFISH_WEBHOOK_ADDRESS", value_name = "HOST:PORT", requires = "kubernetes")]
    pub webhook_address: Option<String>,
    /// The Service through which API servers reach the webhooks [default: pilotfish.ROOT-NAMESPACE]
    #[arg(long, env = "PILOTFISH_WEBHOOK_SERVICE", value_name = "NAME.NAMESPACE")]
    pub webhook_service: Option<String>,
    /// Where API servers reach the webhooks of a Pilotfish that runs outside of the cluster; written to the webhook configurations
    #[arg(long, env = "PILOTFISH_WEBHOOK_URL", value_name = "https://HOST:PORT")]
    pub webhook_url: Option<String>,
    /// The template of sidecars that the injecting webhook adds [default: see `pilotfish inject --print-template`]
    #[arg(long, env = "PILOTFISH_INJECTION_TEMPLATE", value_name = "FILE")]
    pub injection_template: Option<PathBuf>,
    /// A value for that template; may repeat
    #[arg(
        long = "injection-set",
        env = "PILOTFISH_INJECTION_SET",
        value_name = "NAME=VALUE",
        value_delimiter = ','
    )]
    pub injection_values: Vec<String>,
    /// Lets injected sidecars reach Pilotfish over TLS, with the token of their service account: a file with the authorities of its
    /// certificate in PEM, or `kept` for those of the webhooks' certificate [default: plaintext]
    #[arg(long, env = "PILOTFISH_INJECTION_XDS_CA", value_name = "FILE|kept")]
    pub injection_xds_ca: Option<String>,
    /// Where injected sidecars find Pilotfish [default: port 15010 of the webhooks' Service, over TLS 15012]
    #[arg(long, env = "PILOTFISH_INJECTION_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub injection_xds_address: Option<String>,
    /// Settings as YAML, with these names in camelCase (xdsAddress: ...)
    #[arg(long, env = "PILOTFISH_SETTINGS", value_name = "FILE")]
    #[serde(skip)]
    pub settings: Option<PathBuf>,
}

/// What components get.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folders and files with objects.
    pub paths: Vec<PathBuf>,
    /// The live cluster, where one is read.
    pub kubernetes: Option<ClientSettings>,
    /// The namespace of mesh-wide settings.
    pub root_namespace: String,
    /// Whose status is written.
    pub write_status: WriteStatus,
    /// Whose Gateways and routes are told how they are.
    pub status_controllers: Controllers,
    /// The ranges from which hosts of ServiceEntries are given addresses in their status, where they are.
    pub allocation_ranges: Option<AddressRanges>,
    /// How long readiness waits for a remote cluster.
    pub remote_cluster_timeout: Duration,
    /// How long the WorkloadEntry of a workload that left is kept.
    pub workload_entry_grace_period: Duration,
    /// Whether every Service is exported.
    pub export_services: bool,
    /// Where kubeconfigs of remote clusters are.
    pub remote_kubeconfigs: KubeconfigsIn,
    /// What is done with WorkloadEntries of workloads that connect; `None` for nothing.
    pub workload_entries: Option<RegistrationFeatures>,
    /// What kubeconfigs of remote clusters may ask for.
    pub insecure_kubeconfig_options: InsecureOptions,
    /// Istio's MeshConfig.
    pub mesh_config: Option<PathBuf>,
    /// Istio's MeshNetworks.
    pub mesh_networks: Option<PathBuf>,
    /// Where proxies connect.
    pub xds_address: SocketAddr,
    /// Where they connect over TLS.
    pub secure: Option<SecureSettings>,
    /// Where the admin API is.
    pub admin_address: SocketAddr,
    /// For the registries.
    pub registry: RegistrySettings,
    /// Registries to run, by name.
    pub registries: Vec<String>,
    /// How long a graceful stop may take.
    pub drain_deadline: Duration,
    /// Largest request in bytes.
    pub max_request_bytes: usize,
    /// Most streams at a time.
    pub max_streams: usize,
    /// Most names of one stream.
    pub max_subscriptions: usize,
    /// How long bursts are gathered.
    pub windows: Windows,
    /// Whether a proxy's node is believed who it is.
    pub trust_nodes: bool,
    /// The webhooks, where there are any.
    pub webhooks: Option<WebhookSettings>,
}

/// Everything that is wrong with the settings.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<String>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0.len() == 1 { "setting is" } else { "settings are" };
        write!(f, "{} {plural} wrong:", self.0.len())?;
        for mistake in &self.0 {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl Written {
    /// What was written here, completed by a settings file if one is named.
    ///
    /// # Errors
    /// When the file cannot be read or is no settings file.
    pub fn with_file(self) -> Result<Self, Mistakes> {
        let Some(path) = &self.settings else { return Ok(self) };
        let fail =
            |error: &dyn fmt::Display| Mistakes(vec![format!("--settings {}: {error}", path.display())]);
        let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
        let file: Self = serde_saphyr::from_str(&text).map_err(|error| fail(&error))?;
        Ok(self.or(file))
    }

    fn or(self, file: Self) -> Self {
        fn list<T>(own: Vec<T>, file: Vec<T>) -> Vec<T> {
            if own.is_empty() { file } else { own }
        }
        Self {
            paths: list(self.paths, file.paths),
            kubernetes: self.kubernetes || file.kubernetes,
            kubeconfig: self.kubeconfig.or(file.kubeconfig),
            root_namespace: self.root_namespace.or(file.root_namespace),
            write_status: self.write_status.or(file.write_status),
            status_controllers: list(self.status_controllers, file.status_controllers),
            allocate_addresses: self.allocate_addresses.or(file.allocate_addresses),
            allocation_ranges: self.allocation_ranges.or(file.allocation_ranges),
            remote_cluster_timeout: self.remote_cluster_timeout.or(file.remote_cluster_timeout),
            workload_entries: self.workload_entries.or(file.workload_entries),
            remote_kubeconfigs: self.remote_kubeconfigs.or(file.remote_kubeconfigs),
            workload_entry_grace_period: self
                .workload_entry_grace_period
                .or(file.workload_entry_grace_period),
            insecure_kubeconfig_options: list(
                self.insecure_kubeconfig_options,
                file.insecure_kubeconfig_options,
            ),
            webhook_address: self.webhook_address.or(file.webhook_address),
            webhook_service: self.webhook_service.or(file.webhook_service),
            webhook_url: self.webhook_url.or(file.webhook_url),
            injection_template: self.injection_template.or(file.injection_template),
            injection_values: list(self.injection_values, file.injection_values),
            injection_xds_address: self.injection_xds_address.or(file.injection_xds_address),
            injection_xds_ca: self.injection_xds_ca.or(file.injection_xds_ca),
            mesh_config: self.mesh_config.or(file.mesh_config),
            mesh_networks: self.mesh_networks.or(file.mesh_networks),
            xds_address: self.xds_address.or(file.xds_address),
            secure_xds_address: self.secure_xds_address.or(file.secure_xds_address),
            tls_cert_file: self.tls_cert_file.or(file.tls_cert_file),
            tls_key_file: self.tls_key_file.or(file.tls_key_file),
            ca_cert_files: list(self.ca_cert_files, file.ca_cert_files),
            token_audiences: list(self.token_audiences, file.token_audiences),
            admin_address: self.admin_address.or(file.admin_address),
            cluster_id: self.cluster_id.or(file.cluster_id),
            domain: self.domain.or(file.domain),
            multi_cluster_services: self.multi_cluster_services.or(file.multi_cluster_services),
            export_services: self.export_services || file.export_services,
            registries: list(self.registries, file.registries),
            drain_deadline: self.drain_deadline.or(file.drain_deadline),
            max_request_bytes: self.max_request_bytes.or(file.max_request_bytes),
            max_streams: self.max_streams.or(file.max_streams),
            max_subscriptions: self.max_subscriptions.or(file.max_subscriptions),
            endpoint_window: self.endpoint_window.or(file.endpoint_window),
            config_window: self.config_window.or(file.config_window),
            trust_nodes: self.trust_nodes || file.trust_nodes,
            settings: self.settings,
        }
    }

    /// Checks everything.
    ///
    /// # Errors
    /// All mistakes, not just the first.
    pub fn check(self) -> Result<Settings, Mistakes> {
        let mut check = Check::default();
        check.inputs(&self);
        let defaults = RegistrySettings::default();
        let root_namespace = check.namespace(
            "--root-namespace",
            self.root_namespace.clone(),
            defaults.system_namespace.as_str(),
        );
        let windows = Windows::default();
        let workload_entries = check.workload_entries(self.workload_entries.as_deref());
        let webhooks = check.webhooks(&self, &root_namespace);
        let (write_status, allocation) = check.status(&self);
        let settings = Settings {
            webhooks,
            secure: check.secure(&self),
            xds_address: check.address("--xds-address", self.xds_address, "127.0.0.1:15010"),
            admin_address: check.address("--admin-address", self.admin_address, "127.0.0.1:15014"),
            registry: RegistrySettings {
                cluster: self.cluster_id.map_or(defaults.cluster, Into::into),
                domain: check.domain(self.domain),
                multi_cluster_services: check.multi_cluster_services(self.multi_cluster_services),
                system_namespace: root_namespace.as_str().into(),
                workload_entry_health_checks: workload_entries.is_some_and(|wanted| wanted.health_checks),
                allocate_addresses: allocation == Allocation::ByName,
                ..RegistrySettings::default()
            },
            kubernetes: self.kubernetes.then_some(ClientSettings { kubeconfig: self.kubeconfig }),
            root_namespace,
            write_status,
            status_controllers: check.status_controllers(&self.status_controllers),
            allocation_ranges: allocation.ranges(),
            remote_cluster_timeout: check.duration(
                "--remote-cluster-timeout",
                self.remote_cluster_timeout,
                Duration::from_secs(30),
            ),
            remote_kubeconfigs: self.remote_kubeconfigs.map_or(KubeconfigsIn::Secrets, KubeconfigsIn::Folder),
            export_services: self.export_services,
            workload_entries,
            workload_entry_grace_period: check.duration(
                "--workload-entry-grace-period",
                self.workload_entry_grace_period,
                Duration::from_secs(10),
            ),
            insecure_kubeconfig_options: check.insecure_options(&self.insecure_kubeconfig_options),
            registries: check.registries(self.registries),
            drain_deadline: check.duration("--drain-deadline", self.drain_deadline, Duration::from_secs(10)),
            max_request_bytes: check.number("--max-request-bytes", self.max_request_bytes, 4 << 20),
            max_streams: check.number("--max-streams", self.max_streams, 100_000),
            max_subscriptions: check.number("--max-subscriptions", self.max_subscriptions, 100_000),
            windows: Windows {
                endpoints: check.window("--endpoint-window", self.endpoint_window, windows.endpoints),
                config: check.window("--config-window", self.config_window, windows.config),
            },
            trust_nodes: self.trust_nodes,
            paths: self.paths,
            mesh_config: self.mesh_config,
            mesh_networks: self.mesh_networks,
        };
        if check.mistakes.is_empty() { Ok(settings) } else { Err(Mistakes(check.mistakes)) }
    }
}

/// Collects mistakes; what is wrong is replaced by its default so that checking goes on.
#[derive(Default)]
struct Check {
    mistakes: Vec<String>,
}

impl Check {
    /// There is something to read, and what is named exists.
    fn inputs(&mut self, written: &Written) {
        if written.paths.is_empty() && !written.kubernetes {
            self.mistakes.push(
                "PATH: name at least one folder or file with YAML, as in `pilotfish serve ./mesh`, or a cluster with \
                 --kubernetes"
                    .into(),
            );
        }
        let files = [
            ("--mesh-config", &written.mesh_config),
            ("--mesh-networks", &written.mesh_networks),
            ("--kubeconfig", &written.kubeconfig),
            ("--remote-kubeconfigs", &written.remote_kubeconfigs),
        ];
        for (name, path) in files.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
            self.exists(name, path);
        }
        for path in &written.paths {
            self.exists("PATH", path);
        }
        let off = written.multi_cluster_services.as_deref().is_none_or(|mode| mode == "off");
        if written.export_services && off {
            self.mistakes.push(
                "--export-services: needs a mode of --multi-cluster-services in which exports count".into(),
            );
        }
    }

    fn wrong(&mut self, name: &str, text: &str, hint: &str) {
        self.mistakes.push(format!("{name} {text:?}: {hint}"));
    }

    fn exists(&mut self, name: &str, path: &Path) {
        if let Err(error) = std::fs::metadata(path) {
            self.wrong(name, &path.to_string_lossy(), &error.to_string());
        }
    }

    fn address(&mut self, name: &str, text: Option<String>, default: &str) -> SocketAddr {
        let fallback = SocketAddr::from(([127, 0, 0, 1], 0));
        let Some(text) = text else { return default.parse().unwrap_or(fallback) };
        // A name is looked up once, at the start: addresses to listen on are this machine's.
        match std::net::ToSocketAddrs::to_socket_addrs(&text).map(|mut found| found.next()) {
            Ok(Some(address)) => address,
            _ => {
                self.wrong(name, &text, "not HOST:PORT of this machine, as in 127.0.0.1:15010 or [::]:15010");
                fallback
            }
        }
    }

    fn number(&mut self, name: &str, text: Option<String>, default: usize) -> usize {
        let Some(text) = text else { return default };
        match text.parse() {
            Ok(number) if number > 0 => number,
            _ => {
                self.wrong(name, &text, "not a whole number above 0");
                default
            }
        }
    }

    fn duration(&mut self, name: &str, text: Option<String>, default: Duration) -> Duration {
        let Some(text) = text else { return default };
        pilotfish_config::Duration::parse(&text).map(Into::into).unwrap_or_else(|error| {
            self.wrong(name, &text, &error);
            default
        })
    }

    fn window(&mut self, name: &str, text: Option<String>, default: Window) -> Window {
        let Some(text) = text else { return default };
        let part =
            |part: Option<&str>| part.and_then(|part| pilotfish_config::Duration::parse(part.trim()).ok());
        let mut parts = text.split(',');
        match (part(parts.next()), part(parts.next()), parts.next()) {
            (Some(quiet), Some(ceiling), None) if quiet <= ceiling => {
                Window { quiet: quiet.into(), ceiling: ceiling.into() }
            }
            _ => {
                self.wrong(
                    name,
                    &text,
                    "not PAUSE,CEILING with the ceiling at least as long, as in 3ms,30ms",
                );
                default
            }
        }
    }

    fn namespace(&mut self, name: &str, text: Option<String>, default: &str) -> String {
        let Some(text) = text else { return default.to_owned() };
        if !is_label(&text) {
            self.wrong(name, &text, "not a namespace: 1 to 63 of a-z, 0-9 and '-'");
        }
        text
    }

    fn domain(&mut self, text: Option<String>) -> std::sync::Arc<str> {
        let text = text.unwrap_or_else(|| "cluster.local".into());
        if let Err(error) = pilotfish_model::Hostname::parse(&text) {
            self.wrong("--domain", &text, &error.to_string());
        }
        text.into()
    }

    fn insecure_options(&mut self, names: &[String]) -> InsecureOptions {
        InsecureOptions::of(names).unwrap_or_else(|error| {
            self.mistakes.push(format!("--insecure-kubeconfig-options: {error}"));
            InsecureOptions::default()
        })
    }

    fn registries(&mut self, names: Vec<String>) -> Vec<String> {
        let names = if names.is_empty() { vec!["Kubernetes".into(), "ServiceEntry".into()] } else { names };
        let texts: Vec<&str> = names.iter().map(String::as_str).collect();
        if let Err(error) = pilotfish_registry::select(&texts) {
            self.mistakes.push(format!("--registries: {error}"));
        }
        names
    }
}

fn is_label(text: &str) -> bool {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.len() <= 63 && text.chars().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_istiods() {
        let settings = Written { paths: vec![".".into()], ..Written::default() }.check().unwrap();
        assert_eq!(settings.xds_address.to_string(), "127.0.0.1:15010");
        assert_eq!(settings.admin_address.to_string(), "127.0.0.1:15014");
        assert_eq!(&*settings.registry.domain, "cluster.local");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let written = Written {
            xds_address: Some("nowhere".into()),
            max_streams: Some("many".into()),
            drain_deadline: Some("-1s".into()),
            endpoint_window: Some("5ms,1ms".into()),
            registries: vec!["Eureka".into()],
            multi_cluster_services: Some("some".into()),
            write_status: Some("sometimes".into()),
            workload_entries: Some("some".into()),
            status_controllers: vec!["example.com/other".into()],
            remote_cluster_timeout: Some("soon".into()),
            insecure_kubeconfig_options: vec!["exec".into(), "all".into()],
            ..Written::default()
        };
        let mistakes = written.check().unwrap_err();
        assert_eq!(mistakes.0.len(), 12, "{mistakes}");
        assert!(mistakes.to_string().starts_with("12 settings are wrong:\n  PATH: name at least one"));
        assert!(mistakes.to_string().contains("Kubernetes"), "the known registries are named");
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "xdsAddress: 127.0.0.1:1\nadminAddress: 127.0.0.1:2\npaths: [.]\n")
            .unwrap();
        let written = Written {
            xds_address: Some("127.0.0.1:9".into()),
            settings: Some(file.path().to_owned()),
            ..Written::default()
        };
        let settings = written.with_file().unwrap().check().unwrap();
        assert_eq!((settings.xds_address.port(), settings.admin_address.port()), (9, 2));
        std::fs::write(file.path(), "xdsAdress: x\n").unwrap();
        let typo = Written { settings: Some(file.path().to_owned()), ..Written::default() };
        assert!(typo.with_file().unwrap_err().to_string().contains("xdsAdress"));
    }
}
