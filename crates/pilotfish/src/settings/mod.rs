//! Settings of `serve`: groups of flags, one file each with its own parsing, checks and help.
//!
//! ```text
//! settings file < environment < flags ─▶ ServeArgs ── check ─▶ Settings, a part for each component
//!                                                   └───────▶ Mistakes, all of them at once
//! ```
//!
//! A new setting is a field in its group's `Args` struct, and the line of that group's `check` that makes
//! something of it. Its flag, its variable and its name in the settings file come from the field.

mod admin;
mod auto_registration;
mod ca;
mod check;
mod client_listener;
mod consul;
mod eureka;
mod file;
mod gateways;
mod multi_cluster;
mod nacos;
mod parse;
mod registration;
mod registries;
mod sources;
mod status;
mod switches;
mod telemetry;
mod tls;
mod webhooks;
mod xds;

pub(crate) use admin::{AdminArgs, AdminSettings};
pub(crate) use auto_registration::{AutoRegistrationArgs, AutoRegistrationSettings};
pub(crate) use ca::{CaArgs, CaSettings, CaSource};
pub(crate) use check::Mistakes;
pub(crate) use consul::{ConsulArgs, ConsulListener};
pub(crate) use eureka::{EurekaArgs, EurekaListener};
pub(crate) use gateways::{GatewayArgs, GatewaySettings};
pub(crate) use multi_cluster::{MultiClusterArgs, RemoteClusterSettings};
pub(crate) use nacos::{NacosArgs, NacosListener};
pub(crate) use registration::{RegistrationArgs, RegistrationSettings, StoreSettings};
use registries::LiveRegistry;
pub(crate) use registries::{RegistriesArgs, RegistriesSettings};
pub(crate) use sources::{SourceArgs, SourceSettings};
pub(crate) use status::{StatusArgs, StatusSettings, WriteStatus};
pub(crate) use switches::SwitchArgs;
pub(crate) use telemetry::{TelemetryArgs, TelemetrySettings};
pub(crate) use tls::{CertificateSource, TlsArgs, TlsSettings};
pub(crate) use webhooks::WebhookArgs;
pub(crate) use xds::{XdsArgs, XdsSettings};

use crate::serve::webhooks::WebhookSettings;
use check::Check;
use clap::Args;
use pilotfish_model::Switches;
use pilotfish_node::injection::AUDIENCE;
use pilotfish_registry::RegistryTable;
use pilotfish_runtime::read_regular_text;
use std::path::PathBuf;

/// Size limit of the settings file in bytes.
const SETTINGS_BYTES: u64 = 4 << 20;

/// Declares the groups, once: each is flattened into the flags, read from the settings file and merged with
/// it.
macro_rules! groups {
    ($($name:ident: $group:ty),* $(,)?) => {
        /// Settings as given. A flag wins over its environment variable, both win over the settings file.
        #[derive(Args, Clone, Debug, Default)]
        pub(crate) struct ServeArgs {
            /// Settings as YAML, with the names of flags in camelCase (xdsAddress: ...)
            #[arg(long, env = "PILOTFISH_SETTINGS", value_name = "FILE")]
            pub(crate) settings: Option<PathBuf>,
            $(#[command(flatten)] pub(crate) $name: $group,)*
        }

        impl ServeArgs {
            /// Completes what was given by the text of a settings file.
            fn with_text(self, text: &str) -> Result<Self, Vec<String>> {
                let mut file = file::SettingsFile::read(text)?;
                $(file.knows::<$group>();)*
                let merged = Self { settings: self.settings, $($name: file.complete(self.$name),)* };
                file.finish().map(|()| merged)
            }
        }
    };
}

// In the order of `--help`: what most people set comes first.
groups! {
    sources: SourceArgs,
    xds: XdsArgs,
    admin: AdminArgs,
    telemetry: TelemetryArgs,
    tls: TlsArgs,
    ca: CaArgs,
    registration: RegistrationArgs,
    consul: ConsulArgs,
    eureka: EurekaArgs,
    nacos: NacosArgs,
    registries: RegistriesArgs,
    multi_cluster: MultiClusterArgs,
    auto_registration: AutoRegistrationArgs,
    status: StatusArgs,
    switches: SwitchArgs,
    webhooks: WebhookArgs,
    gateways: GatewayArgs,
}

/// Validated settings, as components receive them.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) sources: SourceSettings,
    /// `None` where services do not register themselves.
    pub(crate) registration: Option<RegistrationSettings>,
    /// `None` where clients of Consul do not register.
    pub(crate) consul: Option<ConsulListener>,
    /// `None` where clients of Eureka do not register.
    pub(crate) eureka: Option<EurekaListener>,
    /// `None` where clients of Nacos do not register.
    pub(crate) nacos: Option<NacosListener>,
    pub(crate) registries: RegistriesSettings,
    pub(crate) remote_clusters: RemoteClusterSettings,
    /// True if every Service is exported.
    pub(crate) export_services: bool,
    /// `None` where WorkloadEntries of workloads that connect are left alone.
    pub(crate) auto_registration: Option<AutoRegistrationSettings>,
    pub(crate) xds: XdsSettings,
    /// File with issuers of JWTs.
    pub(crate) jwt_rules: Option<PathBuf>,
    /// `None` where xDS is served in plaintext only.
    pub(crate) tls: Option<TlsSettings>,
    /// `None` where no certificates are signed.
    pub(crate) ca: Option<CaSettings>,
    pub(crate) admin: AdminSettings,
    /// `None` where no traces are sent.
    pub(crate) telemetry: Option<TelemetrySettings>,
    pub(crate) status: StatusSettings,
    pub(crate) switches: Switches,
    /// `None` where there are no webhooks.
    pub(crate) webhooks: Option<WebhookSettings>,
    /// `None` where nothing is made for Gateways.
    pub(crate) gateways: Option<GatewaySettings>,
}

impl ServeArgs {
    /// Adds the settings file, if one is named, to the settings that were given.
    ///
    /// # Errors
    /// When the file cannot be read or is no settings file.
    pub(crate) fn with_file(self) -> Result<Self, Mistakes> {
        let Some(path) = self.settings.clone() else { return Ok(self) };
        let named = |error: String| format!("--settings {}: {error}", path.display());
        let text = read_regular_text(&path, SETTINGS_BYTES);
        let text = text.map_err(|error| Mistakes::from(vec![named(error.to_string())]))?;
        self.with_text(&text)
            .map_err(|errors| Mistakes::from(errors.into_iter().map(named).collect::<Vec<_>>()))
    }

    /// Checks everything, with the registries of the table.
    ///
    /// # Errors
    /// All mistakes, not just the first.
    pub(crate) fn check(self, table: RegistryTable) -> Result<Settings, Mistakes> {
        let mut check = Check::default();
        let sources =
            self.sources.check(self.registries.has_live() || self.registration.is_wanted(), &mut check);
        let reads_cluster = sources.kubernetes.is_some();
        let auto_registration = self.auto_registration.check(&mut check);
        let status = self.status.check(reads_cluster, &mut check);
        let multi_cluster = self.multi_cluster.check(reads_cluster, &mut check);
        let mut registries = self.registries.check(table, &mut check);
        registries.settings.multi_cluster_services = multi_cluster.services;
        registries.settings.system_namespace = sources.root_namespace.as_str().into();
        registries.settings.workload_entry_health_checks =
            auto_registration.as_ref().is_some_and(|settings| settings.wanted.health_checks);
        registries.settings.allocate_addresses = status.addresses_by_name;
        let webhooks = self.webhooks.check(&sources, &registries, &self.tls, &mut check);
        let audience = self.tls.token_audiences.first().map_or(AUDIENCE, String::as_str);
        let gateways = self.gateways.check(webhooks.as_ref(), audience, status.controllers, &mut check);
        let (has_tls, keeps_ca) = (self.tls.secure_xds_address.is_some(), self.ca.is_kept());
        let has_ca = self.ca.signs_own();
        let kept = match (has_ca, self.webhooks.webhook_address.is_some()) {
            (true, _) => Some(CertificateSource::Authority),
            (false, true) => Some(CertificateSource::Webhooks),
            (false, false) => None,
        };
        let (data_folder, is_registration_wanted) =
            (self.registration.data_folder(), self.registration.is_wanted());
        let registration = self.registration.check(keeps_ca, &mut check);
        let listeners = client_listener::Registration {
            settings: registration.as_ref(),
            is_wanted: is_registration_wanted,
        };
        let jwt_rules = self.tls.jwt_rules.clone();
        if let Some(path) = &jwt_rules {
            check.exists("--jwt-rules", path);
        }
        let settings = Settings {
            jwt_rules,
            consul: self.consul.check(listeners, &mut check),
            eureka: self.eureka.check(listeners, &mut check),
            nacos: self.nacos.check(listeners, &mut check),
            tls: self.tls.check(reads_cluster, kept, &mut check),
            ca: self.ca.check(has_tls, reads_cluster, data_folder, &mut check),
            xds: self.xds.check(&mut check),
            admin: self.admin.check(reads_cluster, has_ca, &mut check),
            telemetry: self.telemetry.check(&mut check),
            remote_clusters: multi_cluster.remote,
            export_services: multi_cluster.export_services,
            registration,
            sources,
            registries,
            auto_registration,
            status,
            switches: self.switches.check(&mut check),
            webhooks,
            gateways,
        };
        check.finish(settings)
    }
}

impl Settings {
    /// True if there is any source of objects.
    pub(crate) fn has_objects(&self) -> bool {
        self.sources.has_any() || self.registries.live.iter().any(LiveRegistry::has_objects)
    }
}

#[cfg(test)]
mod tests;
