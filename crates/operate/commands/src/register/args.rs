//! Flags of `pilotfish register`.

use clap::Args;
use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// Runs a program as a registered service.
#[derive(Args, Debug)]
pub struct Register {
    /// The service: a short name (web is web.NAMESPACE.svc.cluster.local), or a host name with a dot
    #[arg(long, env = "PILOTFISH_SERVICE", value_name = "NAME")]
    pub(super) service: String,
    /// Port that the program listens on; it gets this number as the variable PORT. Registered once a
    /// connection is accepted there
    #[arg(long, env = "PILOTFISH_PORT", value_name = "PORT")]
    pub(super) port: NonZeroU16,
    /// The port that clients of the service connect to, the same for all of its instances
    #[arg(long, default_value = "8080", value_name = "PORT")]
    pub(super) service_port: NonZeroU16,
    /// The protocol: http, http2, grpc, tcp, ...
    #[arg(long, default_value = "http", value_name = "PROTOCOL")]
    pub(super) protocol: String,
    /// The namespace of the service
    #[arg(long, env = "PILOTFISH_NAMESPACE", default_value = "default", value_name = "NAME")]
    pub(super) namespace: String,
    /// The name of this instance, unique in the service [default: HOST-PORT]
    #[arg(long, env = "PILOTFISH_INSTANCE_ID", value_name = "ID")]
    pub(super) id: Option<String>,
    /// The address at which others reach the program [default: the one that leads to the server]
    #[arg(long, env = "PILOTFISH_ADDRESS", value_name = "IP")]
    pub(super) address: Option<IpAddr>,
    /// A label, for subsets and policies; may repeat
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) labels: Vec<(String, String)>,
    /// A text that nothing selects by; may repeat
    #[arg(long = "metadata", value_name = "KEY=VALUE", value_parser = pair)]
    pub(super) metadata: Vec<(String, String)>,
    /// Locality of the instance, for locality load balancing
    #[arg(long, env = "PILOTFISH_LOCALITY", value_name = "REGION[/ZONE[/SUBZONE]]")]
    pub(super) locality: Option<String>,
    /// Its network, where there are several
    #[arg(long, value_name = "NETWORK")]
    pub(super) network: Option<String>,
    /// Its share of the traffic beside the other instances' [default: the usual one]
    #[arg(long, value_name = "NUMBER")]
    pub(super) weight: Option<u32>,
    /// Its service account, for policies and mutual TLS
    #[arg(long, value_name = "NAME")]
    pub(super) service_account: Option<String>,
    /// Lease duration: time until the instance is removed if this process dies without deregistering
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = pilotfish_duration::parse)]
    pub(super) ttl: std::time::Duration,
    /// Time between a signal to end and the end of the program, in which the instance is draining
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = pilotfish_duration::parse)]
    pub(super) drain: std::time::Duration,
    /// A check that Pilotfish runs against the port; an instance that fails gets no requests. May repeat
    #[arg(long = "check", value_name = "tcp|http:PATH|grpc[:SERVICE]")]
    pub(super) checks: Vec<String>,
    #[command(flatten)]
    pub(super) server: ServerArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Address of the registration API, and credentials for it.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Pilotfish's --registration-address, with https:// where it has a certificate; several are tried in
    /// turn
    #[arg(
        long = "server",
        env = "PILOTFISH_REGISTRATION_SERVER",
        default_value = "http://127.0.0.1:15016",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub(super) servers: Vec<String>,
    /// A file with the token that authenticates this client; read again when it changes
    #[arg(long, env = "PILOTFISH_REGISTRATION_TOKEN_FILE", value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// CAs of the server's certificate in PEM [default: those of the system]
    #[arg(long, env = "PILOTFISH_REGISTRATION_CA_FILE", value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
    /// Certificate of this client in PEM, for mutual TLS
    #[arg(long, env = "PILOTFISH_REGISTRATION_CERT_FILE", requires = "key_file", value_name = "FILE")]
    pub(super) cert_file: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, env = "PILOTFISH_REGISTRATION_KEY_FILE", requires = "cert_file", value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "not KEY=VALUE".to_owned())
}
