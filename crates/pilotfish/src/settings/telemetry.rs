//! Export of traces (OTLP).

use super::check::Check;
use clap::Args;
use pilotfish_otlp::Endpoint;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Traces")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TelemetryArgs {
    /// Sends a trace of each change, from its arrival to the last acknowledgement, to an OpenTelemetry
    /// collector (OTLP over gRPC)
    #[arg(long, env = "PILOTFISH_OTLP_ENDPOINT", value_name = "http://HOST:4317")]
    pub(crate) otlp_endpoint: Option<String>,
    /// The authorities of a collector with https://, in PEM [default: those of the system]
    #[arg(long, env = "PILOTFISH_OTLP_CA_FILE", value_name = "FILE")]
    pub(crate) otlp_ca_file: Option<PathBuf>,
}

/// Receiver of traces (OTLP).
#[derive(Clone, Debug)]
pub(crate) struct TelemetrySettings {
    pub(crate) endpoint: Endpoint,
    pub(crate) ca: Option<PathBuf>,
}

impl TelemetryArgs {
    /// `None` where there are no traces.
    pub(super) fn check(self, check: &mut Check) -> Option<TelemetrySettings> {
        const CA: &str = "--otlp-ca-file";
        let parse = |text: &str| Endpoint::parse(text).map_err(|error| error.to_string());
        let endpoint = check.parse("--otlp-endpoint", self.otlp_endpoint.as_deref(), parse);
        if let Some(ca) = &self.otlp_ca_file {
            check.exists(CA, ca);
            let is_tls = endpoint.as_ref().is_none_or(Endpoint::is_tls);
            if self.otlp_endpoint.is_none() || !is_tls {
                check.wrong(CA, &ca.to_string_lossy(), "there is no --otlp-endpoint with https://");
            }
        }
        endpoint.map(|endpoint| TelemetrySettings { endpoint, ca: self.otlp_ca_file })
    }
}
