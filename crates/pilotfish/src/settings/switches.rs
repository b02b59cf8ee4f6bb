//! Behaviours that newer versions of Istio changed.

use super::check::Check;
use clap::Args;
use pilotfish_model::Switches;
use serde::{Deserialize, Serialize};

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Switches of behaviour")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SwitchArgs {
    /// Endpoints that are not ready: on (sent, marked UNHEALTHY, and clusters never panic), off (left out,
    /// unless the service has a traffic distribution) [default: on]
    #[arg(long, env = "PILOTFISH_SEND_UNHEALTHY_ENDPOINTS", value_name = "SWITCH")]
    pub(crate) send_unhealthy_endpoints: Option<String>,
    /// Istio's Gateways behind a Gateway whose proxies its controller makes: on (only of the namespaces of
    /// such Gateways), off (of all namespaces) [default: on]
    #[arg(long, env = "PILOTFISH_STRICT_GATEWAY_MERGING", value_name = "SWITCH")]
    pub(crate) strict_gateway_merging: Option<String>,
    /// The destination of a VirtualService that several other namespaces have: on (a Kubernetes Service, else
    /// the oldest), off (that of the first namespace by name) [default: on]
    #[arg(long, env = "PILOTFISH_BEST_SERVICE_NAMESPACE", value_name = "SWITCH")]
    pub(crate) best_service_namespace: Option<String>,
}

impl SwitchArgs {
    pub(super) fn check(self, check: &mut Check) -> Switches {
        let mut switch = |flag, written: Option<String>| {
            let parse = |text: &str| match text {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err("not one of on and off".to_owned()),
            };
            check.parse(flag, written.as_deref(), parse).unwrap_or(true)
        };
        Switches {
            unhealthy_endpoints: switch("--send-unhealthy-endpoints", self.send_unhealthy_endpoints),
            strict_gateway_merging: switch("--strict-gateway-merging", self.strict_gateway_merging),
            best_service_namespace: switch("--best-service-namespace", self.best_service_namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServeArgs, SourceArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;

    fn of(switches: SwitchArgs) -> Result<Switches, String> {
        let sources = SourceArgs { paths: vec![".".into()], ..SourceArgs::default() };
        let args = ServeArgs { sources, switches, ..ServeArgs::default() };
        let settings = args.check(RegistryTable::default()).map_err(|mistakes| mistakes.to_string())?;
        Ok(settings.switches)
    }

    #[test]
    fn switches_are_on_unless_they_are_off() {
        let with = |written: &str| SwitchArgs {
            send_unhealthy_endpoints: Some(written.into()),
            best_service_namespace: Some(written.into()),
            ..SwitchArgs::default()
        };
        assert_eq!(of(SwitchArgs::default()), Ok(Switches::default()));
        assert_eq!(of(with("on")), Ok(Switches::default()));
        let off = Switches {
            unhealthy_endpoints: false,
            best_service_namespace: false,
            strict_gateway_merging: true,
        };
        assert_eq!(of(with("off")), Ok(off));
        let mistakes = of(with("maybe")).unwrap_err();
        assert!(mistakes.contains("--send-unhealthy-endpoints"), "{mistakes}");
        assert!(mistakes.contains("--best-service-namespace"), "{mistakes}");
    }
}
