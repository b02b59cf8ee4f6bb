//! Deployments and Services of Gateways.

use super::check::Check;
use super::parse;
use crate::serve::webhooks::{Sidecars, WebhookSettings};
use clap::Args;
use pilotfish_config::status::{CONTROLLERS, Controllers};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

const DEPLOYMENTS: &str = "--gateway-deployments";
const ISTIO_CLASS: &str = "--gateway-istio-class";

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Gateways")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GatewayArgs {
    /// Making of a Deployment and a Service for each Gateway of the Gateway API that names no Service, by one
    /// replica: on (needs --webhook-address, and the rights of deploy/kubernetes/rbac-gateways.yaml) or off
    /// [default: off]
    #[arg(long, env = "PILOTFISH_GATEWAY_DEPLOYMENTS", value_name = "MODE")]
    pub(crate) gateway_deployments: Option<String>,
    /// Succession of an istiod that is gone, with --gateway-deployments on: creates the GatewayClass istio if
    /// it is missing, and takes over the Deployments and Services that the istiod made for Gateways of its
    /// controller: on or off [default: off]
    #[arg(long, env = "PILOTFISH_GATEWAY_ISTIO_CLASS", value_name = "MODE")]
    pub(crate) gateway_istio_class: Option<String>,
    /// The template of their objects [default: the one in docs/gateway-api.md]
    #[arg(long, env = "PILOTFISH_GATEWAY_TEMPLATE", value_name = "FILE")]
    pub(crate) gateway_template: Option<PathBuf>,
    /// A value for that template, as in cpu=50m; may repeat
    #[arg(
        long = "gateway-set",
        env = "PILOTFISH_GATEWAY_SET",
        value_name = "NAME=VALUE",
        value_delimiter = ','
    )]
    pub(crate) gateway_values: Vec<String>,
}

/// Deployments and Services of Gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewaySettings {
    /// Template of the objects; `None` for the default.
    pub(crate) template: Option<PathBuf>,
    /// Values of the template.
    pub(crate) values: BTreeMap<String, String>,
    /// True to create the GatewayClass `istio`, and to take over what an istiod made.
    pub(crate) istio_class: bool,
}

impl GatewayArgs {
    /// `None` where nothing is made for Gateways.
    pub(super) fn check(
        &self,
        webhooks: Option<&WebhookSettings>,
        token_audience: &str,
        controllers: Controllers,
        check: &mut Check,
    ) -> Option<GatewaySettings> {
        let mode = |mode: &str| match mode {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err("not one of on and off".into()),
        };
        let is_on = check.parse(DEPLOYMENTS, self.gateway_deployments.as_deref(), mode).unwrap_or_default();
        let istio_class = check.parse(ISTIO_CLASS, self.gateway_istio_class.as_deref(), mode);
        let istio_class = istio_class.unwrap_or_default();
        if istio_class && !is_on {
            check.wrong(ISTIO_CLASS, "on", "needs --gateway-deployments on");
        } else if istio_class && !controllers.names().contains(&CONTROLLERS[0]) {
            let why = format!("needs {} among --status-controllers", CONTROLLERS[0]);
            check.wrong(ISTIO_CLASS, "on", &why);
        }
        if !is_on {
            return None;
        }
        if let Some(template) = &self.gateway_template {
            check.exists("--gateway-template", template);
        }
        let mut values = parse::pairs("--gateway-set", &self.gateway_values, check);
        let Some(webhooks) = webhooks else {
            // A mistake in the settings of webhooks is reported there.
            check.wrong(
                DEPLOYMENTS,
                "on",
                "needs --webhook-address: gateways connect to Pilotfish as injected sidecars do",
            );
            return None;
        };
        if webhooks.sidecars != Sidecars::Plain {
            values.entry("tokenAudience".to_owned()).or_insert_with(|| token_audience.to_owned());
        }
        Some(GatewaySettings { template: self.gateway_template.clone(), values, istio_class })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServeArgs, SourceArgs, StatusArgs, WebhookArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;

    fn of(
        mode: Option<&str>,
        webhooks: WebhookArgs,
        values: &[&str],
    ) -> Result<Option<GatewaySettings>, String> {
        let sources = SourceArgs { paths: vec![".".into()], kubernetes: true, ..SourceArgs::default() };
        let gateways = GatewayArgs {
            gateway_deployments: mode.map(str::to_owned),
            gateway_values: values.iter().map(|value| (*value).to_owned()).collect(),
            ..GatewayArgs::default()
        };
        let args = ServeArgs { sources, webhooks, gateways, ..ServeArgs::default() };
        let settings = args.check(RegistryTable::default()).map_err(|mistakes| mistakes.to_string())?;
        Ok(settings.gateways)
    }

    #[test]
    fn gateways_are_deployed_where_pods_have_an_address_for_pilotfish() {
        let webhooks =
            || WebhookArgs { webhook_address: Some("127.0.0.1:15017".into()), ..WebhookArgs::default() };
        let over_tls = WebhookArgs { injection_xds_ca: Some("kept".into()), ..webhooks() };
        assert_eq!(of(None, webhooks(), &[]), Ok(None));
        assert_eq!(of(Some("off"), webhooks(), &[]), Ok(None));
        let on = of(Some("on"), webhooks(), &["cpu=1"]).unwrap().unwrap();
        assert_eq!(on.values, BTreeMap::from([("cpu".to_owned(), "1".to_owned())]));
        let on = of(Some("on"), over_tls, &[]).unwrap().unwrap();
        assert_eq!(on.values["tokenAudience"], "istio-ca");
        let istio = |deployments: Option<&str>, controllers: &[&str]| {
            let gateways = GatewayArgs {
                gateway_deployments: deployments.map(str::to_owned),
                gateway_istio_class: Some("on".into()),
                ..GatewayArgs::default()
            };
            let controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
            let status = StatusArgs { status_controllers: controllers, ..StatusArgs::default() };
            let sources = SourceArgs { paths: vec![".".into()], kubernetes: true, ..SourceArgs::default() };
            let args = ServeArgs { sources, webhooks: webhooks(), gateways, status, ..ServeArgs::default() };
            let settings = args.check(RegistryTable::default()).map_err(|mistakes| mistakes.to_string())?;
            Ok::<_, String>(settings.gateways.unwrap().istio_class)
        };
        assert_eq!(istio(Some("on"), &[]), Ok(true));
        assert!(istio(None, &[]).unwrap_err().contains("needs --gateway-deployments on"));
        let without = istio(Some("on"), &[CONTROLLERS[1]]).unwrap_err();
        assert!(without.contains("needs istio.io/gateway-controller among"), "{without}");
        for (mode, webhooks, values, expected) in [
            ("on", WebhookArgs::default(), [].as_slice(), "needs --webhook-address"),
            ("auto", webhooks(), &[], "not one of on and off"),
            ("on", webhooks(), &["cpu"], "not NAME=VALUE"),
        ] {
            let mistakes = of(Some(mode), webhooks, values).unwrap_err();
            assert!(mistakes.contains(expected), "{mistakes}");
        }
    }
}
