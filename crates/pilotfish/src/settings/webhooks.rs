//! What was written of webhooks.

use super::{AUDIENCE, Check, Written, is_label};
use crate::cli::inject::TOKEN_AUDIENCE;
use crate::serve::webhooks::{Sidecars, WebhookSettings, url_host};
use pilotfish_node::bootstrap::PodTarget;
use pilotfish_registry::RegistrySettings;
use std::collections::BTreeMap;
use std::path::Path;

/// The word for the authorities that the webhooks keep.
const KEPT: &str = "kept";

impl Check {
    /// The webhooks, where there are any.
    pub(super) fn webhooks(&mut self, written: &Written, root_namespace: &str) -> Option<WebhookSettings> {
        let Some(address) = &written.webhook_address else {
            let others =
                [("--webhook-service", &written.webhook_service), ("--webhook-url", &written.webhook_url)];
            for (name, text) in others.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?))) {
                self.wrong(name, text, "there are no webhooks without --webhook-address");
            }
            return None;
        };
        if !written.kubernetes {
            self.wrong("--webhook-address", address, "there is no API server to ask without --kubernetes");
        }
        let service =
            written.webhook_service.clone().unwrap_or_else(|| format!("pilotfish.{root_namespace}"));
        match service.split_once('.') {
            Some((name, namespace)) if is_label(name) && is_label(namespace) => {}
            _ => {
                self.wrong("--webhook-service", &service, "not NAME.NAMESPACE, as in pilotfish.istio-system")
            }
        }
        if let Some(url) = written.webhook_url.as_deref().filter(|url| url_host(url).is_none()) {
            self.wrong("--webhook-url", url, "not https://HOST:PORT without a path");
        }
        if let Some(template) = &written.injection_template {
            self.exists("--injection-template", template);
        }
        let address = self.address("--webhook-address", Some(address.clone()), "");
        let mut values = self.values(&written.injection_values);
        let sidecars = match written.injection_xds_ca.as_deref() {
            None => Sidecars::Plain,
            Some(KEPT) => Sidecars::ByKeptAuthorities,
            Some(path) => {
                self.exists("--injection-xds-ca", Path::new(path));
                Sidecars::ByAuthorities(path.into())
            }
        };
        if sidecars != Sidecars::Plain {
            let audience = written.token_audiences.first().map_or(AUDIENCE, String::as_str);
            values.entry(TOKEN_AUDIENCE.to_owned()).or_insert_with(|| audience.to_owned());
        }
        let (xds_address, cluster_id) = self.target(written, &service, &sidecars)?;
        Some(WebhookSettings {
            address,
            sidecars,
            xds_address,
            cluster_id,
            service,
            url: written.webhook_url.clone(),
            namespace: root_namespace.to_owned(),
            template: written.injection_template.clone(),
            values,
        })
    }

    fn values(&mut self, written: &[String]) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        for pair in written {
            match pair.split_once('=') {
                Some((name, value)) => drop(values.insert(name.to_owned(), value.to_owned())),
                None => self.wrong("--injection-set", pair, "not NAME=VALUE, as in cpu=50m"),
            }
        }
        values
    }

    /// Where injected sidecars find us, and the cluster that they are in.
    fn target(&mut self, written: &Written, service: &str, sidecars: &Sidecars) -> Option<(String, String)> {
        let port = if *sidecars == Sidecars::Plain { 15010 } else { 15012 };
        let address =
            written.injection_xds_address.clone().unwrap_or_else(|| format!("{service}.svc:{port}"));
        let cluster = written.cluster_id.clone();
        let cluster = cluster.unwrap_or_else(|| RegistrySettings::default().cluster.to_string());
        if PodTarget::new(&address, &cluster).is_err() {
            let hint = "not HOST:PORT, as in pilotfish.istio-system.svc:15010";
            self.wrong("--injection-xds-address", &address, hint);
            return None;
        }
        Some((address, cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_belong_to_a_cluster() {
        let written = |address: Option<&str>, url: Option<&str>, kubernetes| Written {
            paths: vec![".".into()],
            kubernetes,
            root_namespace: Some("mesh".into()),
            webhook_address: address.map(str::to_owned),
            webhook_url: url.map(str::to_owned),
            ..Written::default()
        };
        let tls = Written {
            injection_xds_ca: Some("kept".into()),
            token_audiences: vec!["mesh".into()],
            ..written(Some("127.0.0.1:15017"), None, true)
        };
        let tls = tls.check().unwrap().webhooks.unwrap();
        assert_eq!(
            (tls.sidecars, tls.xds_address.as_str()),
            (Sidecars::ByKeptAuthorities, "pilotfish.mesh.svc:15012")
        );
        assert_eq!(tls.values["tokenAudience"], "mesh");
        let settings = written(Some("127.0.0.1:15017"), None, true).check().unwrap().webhooks.unwrap();
        assert!(settings.values.is_empty());
        assert_eq!((settings.service.as_str(), settings.namespace.as_str()), ("pilotfish.mesh", "mesh"));
        assert_eq!(written(None, None, true).check().unwrap().webhooks, None);
        for wrong in [
            Written { injection_values: vec!["cpu".into()], ..written(Some("127.0.0.1:0"), None, true) },
            Written { injection_xds_address: Some("x".into()), ..written(Some("127.0.0.1:0"), None, true) },
            Written { injection_xds_ca: Some("nowhere".into()), ..written(Some("127.0.0.1:0"), None, true) },
            written(Some("127.0.0.1:15017"), None, false),
            written(None, Some("https://192.0.2.1"), true),
            written(Some("127.0.0.1:15017"), Some("https://192.0.2.1/validate"), true),
            written(Some("nowhere"), None, true),
        ] {
            assert_eq!(wrong.check().unwrap_err().0.len(), 1);
        }
    }
}
