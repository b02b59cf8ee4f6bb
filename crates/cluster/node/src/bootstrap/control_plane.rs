//! Connection of a client to Pilotfish: plaintext, or TLS with authentication.

use super::{REFRESH, host_port};
use anyhow::{Context, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Where Pilotfish is, and how it is reached.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct ControlPlane {
    /// Where Pilotfish is [default: 127.0.0.1:15010, over TLS 127.0.0.1:15012]
    #[arg(long, value_name = "HOST:PORT")]
    xds_address: Option<String>,
    /// The authorities of Pilotfish's certificate in PEM: with them, it is reached over TLS
    #[arg(long, value_name = "FILE")]
    xds_ca_file: Option<PathBuf>,
    /// The client's certificate for that, a chain in PEM
    #[arg(long, value_name = "FILE", requires = "xds_ca_file", requires = "xds_key_file")]
    xds_cert_file: Option<PathBuf>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE", requires = "xds_cert_file")]
    xds_key_file: Option<PathBuf>,
    /// Or the client's token, as that of a service account; read again for each connection
    #[arg(long, value_name = "FILE", requires = "xds_ca_file", conflicts_with = "xds_cert_file")]
    xds_token_file: Option<PathBuf>,
}

/// Complete settings, with absolute paths.
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    tls: Option<Tls>,
}

struct Tls {
    authorities: Authorities,
    proof: Proof,
}

/// Location of the authorities.
enum Authorities {
    File(String),
    /// PEM text in the bootstrap itself.
    Inline(String),
}

impl Authorities {
    /// Converts it to an Envoy data source.
    fn source(&self) -> Value {
        match self {
            Self::File(path) => json!({"filename": path}),
            Self::Inline(pem) => json!({"inline_string": pem}),
        }
    }
}

/// Authentication of the client.
enum Proof {
    Nothing,
    Certificate { chain: String, key: String },
    Token(String),
}

impl ControlPlane {
    /// Configured files, by flag.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("--xds-ca-file", &self.xds_ca_file),
            ("--xds-cert-file", &self.xds_cert_file),
            ("--xds-key-file", &self.xds_key_file),
            ("--xds-token-file", &self.xds_token_file),
        ];
        files.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// # Errors
    /// If the address is malformed or a path cannot be made absolute.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        let default = if self.xds_ca_file.is_some() { "127.0.0.1:15012" } else { "127.0.0.1:15010" };
        let (host, port) = host_port("--xds-address", self.xds_address.as_deref().unwrap_or(default))?;
        let Some(authorities) = &self.xds_ca_file else { return Ok(Target { host, port, tls: None }) };
        let proof = match (&self.xds_cert_file, &self.xds_key_file, &self.xds_token_file) {
            (Some(chain), Some(key), _) => Proof::Certificate {
                chain: absolute("--xds-cert-file", chain)?,
                key: absolute("--xds-key-file", key)?,
            },
            (_, _, Some(token)) => Proof::Token(absolute("--xds-token-file", token)?),
            _ => Proof::Nothing,
        };
        let authorities = Authorities::File(absolute("--xds-ca-file", authorities)?);
        Ok(Target { host, port, tls: Some(Tls { authorities, proof }) })
    }
}

/// Absolute path, so that the client can be started in any directory.
fn absolute(name: &str, path: &Path) -> anyhow::Result<String> {
    let path = std::path::absolute(path).with_context(|| format!("{name} {}", path.display()))?;
    let text = path.to_str().map(str::to_owned);
    text.with_context(|| format!("{name} {}: not a path in UTF-8", path.display()))
}

impl Target {
    /// True if the client proves an identity.
    pub(super) fn has_proof(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !matches!(tls.proof, Proof::Nothing))
    }

    /// Creates a target without TLS.
    pub(super) fn plain(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, tls: None }
    }

    /// TLS connection of a client with the authorities in its bootstrap, and a token in a file.
    pub(super) fn by_token(host: &str, port: u16, authorities: &str, token: &str) -> Self {
        let tls = Tls {
            authorities: Authorities::Inline(authorities.to_owned()),
            proof: Proof::Token(token.to_owned()),
        };
        Self { host: host.to_owned(), port, tls: Some(tls) }
    }

    /// `grpc_services` entry of Envoy's `ads_config`. The cluster id selects the API server that validates
    /// the client's token.
    pub(super) fn grpc_service(&self, cluster_id: &str) -> Value {
        let mut service = match &self.tls {
            Some(Tls { authorities, proof: Proof::Token(token) }) => {
                json!({"google_grpc": self.with_token(authorities, token)})
            }
            _ => json!({"envoy_grpc": {"cluster_name": "xds-grpc"}}),
        };
        if self.tls.is_some() {
            service["initial_metadata"] = json!([{"key": "clusterid", "value": cluster_id}]);
        }
        service
    }

    /// Google's gRPC client, since Envoy's own one cannot reload a token.
    fn with_token(&self, authorities: &Authorities, token: &str) -> Value {
        const FROM_FILE: &str = "envoy.grpc_credentials.file_based_metadata";
        json!({
            "target_uri": self.uri(), "stat_prefix": "xds-grpc",
            "credentials_factory_name": FROM_FILE,
            "channel_credentials": {"ssl_credentials": {"root_certs": authorities.source()}},
            "call_credentials": [{"from_plugin": {"name": FROM_FILE, "typed_config": {
                "@type": "type.googleapis.com/envoy.config.grpc_credential.v3.FileBasedMetadataConfig",
                "secret_data": {"filename": token}, "header_key": "authorization", "header_prefix": "Bearer ",
            }}}],
            "channel_args": {"args": {
                "grpc.keepalive_time_ms": {"int_value": "30000"},
                "grpc.keepalive_timeout_ms": {"int_value": "5000"},
            }},
        })
    }

    /// Transport socket of the cluster for Pilotfish in an Envoy.
    pub(super) fn transport_socket(&self) -> Option<Value> {
        let tls = self.tls.as_ref()?;
        let is_ip = self.host.parse::<IpAddr>().is_ok();
        let san_type = if is_ip { "IP_ADDRESS" } else { "DNS" };
        let mut context = json!({
            "alpn_protocols": ["h2"],
            "tls_params": {
                "tls_minimum_protocol_version": "TLSv1_2",
                "tls_maximum_protocol_version": "TLSv1_3",
            },
            "validation_context": {
                "trusted_ca": tls.authorities.source(),
                "match_typed_subject_alt_names": [{"san_type": san_type, "matcher": {"exact": self.host}}],
            },
        });
        if let Proof::Certificate { chain, key } = &tls.proof {
            context["tls_certificates"] =
                json!([{"certificate_chain": {"filename": chain}, "private_key": {"filename": key}}]);
        }
        let mut config = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": context,
        });
        if !is_ip {
            config["sni"] = json!(self.host);
        }
        Some(json!({"name": "envoy.transport_sockets.tls", "typed_config": config}))
    }

    /// `xds_servers` entry of gRPC's bootstrap.
    pub(super) fn xds_server(&self) -> anyhow::Result<Value> {
        let mut server = json!({
            "server_uri": self.uri(),
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        });
        // gRPC reads authorities from files only.
        let Some(Tls { authorities: Authorities::File(authorities), proof }) = &self.tls else {
            return Ok(server);
        };
        ensure!(!self.host.is_empty(), "--xds-address: TLS needs the name of a host");
        let mut config = json!({"ca_certificate_file": authorities, "refresh_interval": REFRESH});
        match proof {
            Proof::Nothing => {}
            Proof::Certificate { chain, key } => {
                config["certificate_file"] = json!(chain);
                config["private_key_file"] = json!(key);
            }
            Proof::Token(token) => {
                server["call_creds"] =
                    json!([{"type": "jwt_token_file", "config": {"jwt_token_file": token}}]);
            }
        }
        server["channel_creds"] = json!([{"type": "tls", "config": config}]);
        Ok(server)
    }

    fn uri(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        control_plane: ControlPlane,
    }

    fn target(args: &[&str]) -> Target {
        Cli::try_parse_from([&["x"], args].concat()).unwrap().control_plane.target().unwrap()
    }

    #[test]
    fn plain_unless_there_are_authorities() {
        let plain = target(&[]);
        assert_eq!((plain.uri().as_str(), plain.transport_socket()), ("127.0.0.1:15010", None));
        assert_eq!(plain.grpc_service("c"), json!({"envoy_grpc": {"cluster_name": "xds-grpc"}}));
        assert_eq!(plain.xds_server().unwrap()["channel_creds"], json!([{"type": "insecure"}]));
        assert_eq!(target(&["--xds-ca-file", "/ca.pem"]).uri(), "127.0.0.1:15012");
        assert_eq!(target(&["--xds-address", "[::1]:1"]).uri(), "[::1]:1");
    }

    #[test]
    fn a_certificate_is_shown_by_both() {
        let certificate =
            ["--xds-ca-file", "/ca.pem", "--xds-cert-file", "/c.pem", "--xds-key-file", "/k.pem"];
        let target = target(&[&certificate[..], &["--xds-address", "pilotfish.mesh.svc:15012"]].concat());
        let socket = target.transport_socket().unwrap();
        let (config, context) = (&socket["typed_config"], &socket["typed_config"]["common_tls_context"]);
        assert_eq!(config["sni"], "pilotfish.mesh.svc");
        assert_eq!(context["tls_certificates"][0]["private_key"]["filename"], "/k.pem");
        assert_eq!(context["validation_context"]["match_typed_subject_alt_names"][0]["san_type"], "DNS");
        assert_eq!(target.grpc_service("west")["initial_metadata"][0]["value"], "west");
        let server = target.xds_server().unwrap();
        assert_eq!(server["channel_creds"][0]["config"]["certificate_file"], "/c.pem");
    }

    #[test]
    fn a_token_is_read_from_its_file() {
        let target = target(&["--xds-ca-file", "/ca.pem", "--xds-token-file", "/token"]);
        let google = &target.grpc_service("c")["google_grpc"];
        let plugin = &google["call_credentials"][0]["from_plugin"]["typed_config"];
        assert_eq!(plugin["secret_data"]["filename"], "/token");
        assert_eq!(google["target_uri"], "127.0.0.1:15012");
        let server = target.xds_server().unwrap();
        assert_eq!(server["call_creds"][0]["config"]["jwt_token_file"], "/token");
        assert_eq!(server["channel_creds"][0]["type"], "tls");
    }

    #[test]
    fn half_a_proof_is_refused() {
        for args in [
            &["--xds-ca-file", "c", "--xds-cert-file", "c"][..],
            &["--xds-ca-file", "c", "--xds-key-file", "c"],
            &["--xds-cert-file", "c", "--xds-key-file", "c"],
            &["--xds-token-file", "c"],
        ] {
            assert!(Cli::try_parse_from([&["x"], args].concat()).is_err(), "{args:?}");
        }
    }
}
