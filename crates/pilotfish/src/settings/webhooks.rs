//! Admission webhooks, and the sidecars that the injecting one adds.

use super::check::Check;
use super::parse;
use super::{RegistriesSettings, SourceSettings, TlsArgs};
use crate::serve::webhooks::{Sidecars, WebhookSettings, url_host};
use clap::Args;
use pilotfish_node::bootstrap::PodTarget;
use pilotfish_node::injection::{AUDIENCE, TOKEN_AUDIENCE};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The value of `--injection-xds-ca` for the CA that the webhooks keep.
const KEPT: &str = "kept";

#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
#[command(next_help_heading = "Webhooks and injection")]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WebhookArgs {
    /// Listen address of the webhooks (HTTPS), usually on port 15017; without it there are none
    #[arg(long, env = "PILOTFISH_WEBHOOK_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) webhook_address: Option<String>,
    /// The Service through which API servers reach the webhooks [default: pilotfish.ROOT-NAMESPACE, with a
    /// revision pilotfish-REVISION.ROOT-NAMESPACE]
    #[arg(long, env = "PILOTFISH_WEBHOOK_SERVICE", value_name = "NAME.NAMESPACE")]
    pub(crate) webhook_service: Option<String>,
    /// The URL by which API servers reach the webhooks of a Pilotfish outside of the cluster; it is written
    /// to the webhook configurations in place of the Service
    #[arg(long, env = "PILOTFISH_WEBHOOK_URL", value_name = "https://HOST:PORT")]
    pub(crate) webhook_url: Option<String>,
    /// The template of injected sidecars [default: that of `pilotfish inject --print-template`]
    #[arg(long, env = "PILOTFISH_INJECTION_TEMPLATE", value_name = "FILE")]
    pub(crate) injection_template: Option<PathBuf>,
    /// A value for that template; may repeat
    #[arg(
        long = "injection-set",
        env = "PILOTFISH_INJECTION_SET",
        value_name = "NAME=VALUE",
        value_delimiter = ','
    )]
    pub(crate) injection_values: Vec<String>,
    /// Authorities for injected sidecars to reach Pilotfish over TLS, with the token of their service
    /// account: a file with the CA of its certificate in PEM, or `kept` for that of the webhooks' certificate
    /// [default: plaintext]
    #[arg(long, env = "PILOTFISH_INJECTION_XDS_CA", value_name = "FILE|kept")]
    pub(crate) injection_xds_ca: Option<String>,
    /// Address that injected sidecars connect to [default: port 15010 of the webhooks' Service, over TLS
    /// 15012]
    #[arg(long, env = "PILOTFISH_INJECTION_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub(crate) injection_xds_address: Option<String>,
}

impl WebhookArgs {
    /// `None` where there are no webhooks, or not enough is known of them.
    pub(super) fn check(
        &self,
        sources: &SourceSettings,
        registries: &RegistriesSettings,
        tls: &TlsArgs,
        check: &mut Check,
    ) -> Option<WebhookSettings> {
        const ADDRESS: &str = "--webhook-address";
        let Some(address) = &self.webhook_address else {
            let others = [("--webhook-service", &self.webhook_service), ("--webhook-url", &self.webhook_url)];
            for (flag, text) in others.into_iter().filter_map(|(flag, text)| Some((flag, text.as_ref()?))) {
                check.wrong(flag, text, "there are no webhooks without --webhook-address");
            }
            return None;
        };
        if sources.kubernetes.is_none() {
            check.wrong(ADDRESS, address, "there is no API server to ask without --kubernetes");
        }
        let service = self.service(sources, check);
        check.parse("--webhook-url", self.webhook_url.as_deref(), |url| {
            url_host(url).map(drop).ok_or_else(|| "not https://HOST:PORT without a path".into())
        });
        if let Some(template) = &self.injection_template {
            check.exists("--injection-template", template);
        }
        let address = check.parse(ADDRESS, Some(address), parse::address);
        let sidecars = self.sidecars(check);
        let mut values = parse::pairs("--injection-set", &self.injection_values, check);
        if sidecars != Sidecars::Plain {
            let audience = tls.token_audiences.first().map_or(AUDIENCE, String::as_str);
            values.entry(TOKEN_AUDIENCE.to_owned()).or_insert_with(|| audience.to_owned());
        }
        let cluster_id = registries.settings.cluster.to_string();
        let xds_address = self.target(&service, &sidecars, &cluster_id, check)?;
        Some(WebhookSettings {
            address: address?,
            sidecars,
            xds_address,
            cluster_id,
            service,
            url: self.webhook_url.clone(),
            revision: sources.revision.clone(),
            namespace: sources.root_namespace.clone(),
            template: self.injection_template.clone(),
            values,
        })
    }

    fn service(&self, sources: &SourceSettings, check: &mut Check) -> String {
        let SourceSettings { root_namespace, revision, .. } = sources;
        let default = || format!("{}.{root_namespace}", revision.name_of("pilotfish"));
        let service = self.webhook_service.clone().unwrap_or_else(default);
        match service.split_once('.') {
            Some((name, namespace)) if parse::is_label(name) && parse::is_label(namespace) => {}
            _ => {
                check.wrong("--webhook-service", &service, "not NAME.NAMESPACE, as in pilotfish.istio-system")
            }
        }
        service
    }

    fn sidecars(&self, check: &mut Check) -> Sidecars {
        match self.injection_xds_ca.as_deref() {
            None => Sidecars::Plain,
            Some(KEPT) => Sidecars::ByKeptAuthorities,
            Some(path) => {
                check.exists("--injection-xds-ca", Path::new(path));
                Sidecars::ByAuthorities(path.into())
            }
        }
    }

    /// Address that injected sidecars connect to.
    fn target(
        &self,
        service: &str,
        sidecars: &Sidecars,
        cluster_id: &str,
        check: &mut Check,
    ) -> Option<String> {
        let port = if *sidecars == Sidecars::Plain { 15010 } else { 15012 };
        let address = self.injection_xds_address.clone().unwrap_or_else(|| format!("{service}.svc:{port}"));
        if PodTarget::new(&address, cluster_id).is_err() {
            let hint = "not HOST:PORT, as in pilotfish.istio-system.svc:15010";
            check.wrong("--injection-xds-address", &address, hint);
            return None;
        }
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ServeArgs, SourceArgs};
    use super::*;
    use pilotfish_registry::RegistryTable;

    fn args(address: Option<&str>, url: Option<&str>, kubernetes: bool) -> ServeArgs {
        ServeArgs {
            sources: SourceArgs {
                paths: vec![".".into()],
                kubernetes,
                root_namespace: Some("mesh".into()),
                ..SourceArgs::default()
            },
            webhooks: WebhookArgs {
                webhook_address: address.map(str::to_owned),
                webhook_url: url.map(str::to_owned),
                ..WebhookArgs::default()
            },
            ..ServeArgs::default()
        }
    }

    /// The same with more of the group.
    fn with(change: impl FnOnce(&mut WebhookArgs)) -> ServeArgs {
        let mut args = args(Some("127.0.0.1:15017"), None, true);
        change(&mut args.webhooks);
        args
    }

    #[test]
    fn webhooks_belong_to_a_cluster() {
        let mut tls = with(|webhooks| webhooks.injection_xds_ca = Some("kept".into()));
        tls.tls.token_audiences = vec!["mesh".into()];
        let tls = tls.check(RegistryTable::default()).unwrap().webhooks.unwrap();
        assert_eq!(
            (tls.sidecars, tls.xds_address.as_str()),
            (Sidecars::ByKeptAuthorities, "pilotfish.mesh.svc:15012")
        );
        assert_eq!(tls.values["tokenAudience"], "mesh");
        let settings = args(Some("127.0.0.1:15017"), None, true)
            .check(RegistryTable::default())
            .unwrap()
            .webhooks
            .unwrap();
        assert!(settings.values.is_empty());
        assert_eq!((settings.service.as_str(), settings.namespace.as_str()), ("pilotfish.mesh", "mesh"));
        let mut canary = args(Some("127.0.0.1:15017"), None, true);
        canary.sources.revision = Some("canary".into());
        let canary = canary.check(RegistryTable::default()).unwrap().webhooks.unwrap();
        assert_eq!(canary.xds_address, "pilotfish-canary.mesh.svc:15010");
        assert_eq!(args(None, None, true).check(RegistryTable::default()).unwrap().webhooks, None);
        for wrong in [
            with(|webhooks| webhooks.injection_values = vec!["cpu".into()]),
            with(|webhooks| webhooks.injection_xds_address = Some("x".into())),
            with(|webhooks| webhooks.injection_xds_ca = Some("nowhere".into())),
            args(Some("127.0.0.1:15017"), None, false),
            args(None, Some("https://192.0.2.1"), true),
            args(Some("127.0.0.1:15017"), Some("https://192.0.2.1/validate"), true),
            args(Some("nowhere"), None, true),
        ] {
            assert_eq!(wrong.check(RegistryTable::default()).unwrap_err().lines.len(), 1);
        }
    }
}
