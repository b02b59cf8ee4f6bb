//! Load balancing.

use super::draft::Draft;
use crate::envoy::duration;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::networking::{
    BackendUtilizationLb, ConsistentHashLb, LoadBalancerSettings, LocalityLoadBalancerSetting, SimpleLb,
    ZoneAwareLoadBalancerSetting,
};
use pilotfish_model::{Service, Switches, TrafficDistribution};
use pilotfish_proto::envoy::config::cluster::v3::cluster::common_lb_config::{
    LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig,
};
use pilotfish_proto::envoy::config::cluster::v3::cluster::{
    DiscoveryType, LbConfig, LbPolicy, LeastRequestLbConfig, MaglevLbConfig, RingHashLbConfig,
    RoundRobinLbConfig, SlowStartConfig,
};
use pilotfish_proto::envoy::config::cluster::v3::load_balancing_policy::Policy;
use pilotfish_proto::envoy::config::cluster::v3::{Cluster, LoadBalancingPolicy};
use pilotfish_proto::envoy::config::core::v3::{RuntimeDouble, TypedExtensionConfig};
use pilotfish_proto::envoy::extensions::load_balancing_policies::client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin;
use pilotfish_proto::envoy::extensions::load_balancing_policies::common::v3 as common;
use pilotfish_proto::envoy::r#type::v3::Percent;

/// Entries of a hash ring where no ring is mentioned.
const DEFAULT_RING_SIZE: u64 = 1024;
/// The share of its weight that a warming endpoint starts with, in percent.
const DEFAULT_WARMUP_PERCENT: f64 = 10.0;
/// Linear growth of that share.
const DEFAULT_WARMUP_AGGRESSION: f64 = 1.0;
/// Envoy insists on a key; none is to be set at run time, so it is a key that no runtime layer has.
const NO_RUNTIME_KEY: &str = "(";

/// Applies the settings. Comes after outlier detection, which decides whether failover makes sense.
pub(super) fn apply(
    draft: &mut Draft,
    mesh: &MeshConfig,
    switches: Switches,
    service: &Service,
    settings: Option<&LoadBalancerSettings>,
) {
    // Where unready endpoints are sent too, panic would bring traffic to them.
    let threshold = Percent { value: 0.0 };
    if service.traffic_distribution != TrafficDistribution::Any {
        draft.common_lb().healthy_panic_threshold = Some(threshold);
    } else if switches.unhealthy_endpoints {
        draft.common_lb().healthy_panic_threshold.get_or_insert(threshold);
    }
    locality(draft, Locality::of(mesh, service, settings));
    set_policy(draft, LbPolicy::LeastRequest);
    if draft.kind() == Some(DiscoveryType::OriginalDst) {
        set_policy(draft, LbPolicy::ClusterProvided);
        return;
    }
    let Some(settings) = settings else { return };
    match settings.simple.unwrap_or_default() {
        SimpleLb::Random => set_policy(draft, LbPolicy::Random),
        SimpleLb::RoundRobin => {
            set_policy(draft, LbPolicy::RoundRobin);
            draft.cluster.lb_config = slow_start(settings).map(|slow_start_config| {
                LbConfig::RoundRobinLbConfig(RoundRobinLbConfig {
                    slow_start_config: Some(slow_start_config),
                })
            });
        }
        SimpleLb::Passthrough => {
            set_policy(draft, LbPolicy::ClusterProvided);
            draft.set_kind(DiscoveryType::OriginalDst);
            draft.cluster.load_assignment = None;
        }
        SimpleLb::LeastConn | SimpleLb::LeastRequest | SimpleLb::Unspecified => {
            draft.cluster.lb_config = slow_start(settings).map(|slow_start_config| {
                LbConfig::LeastRequestLbConfig(LeastRequestLbConfig {
                    slow_start_config: Some(slow_start_config),
                    ..LeastRequestLbConfig::default()
                })
            });
        }
    }
    if let Some(hash) = &settings.consistent_hash {
        set_consistent_hash(&mut draft.cluster, hash);
    }
    if let Some(utilization) = &settings.backend_utilization {
        set_backend_utilization(draft, utilization, slow_start(settings));
    }
}

/// Weighs endpoints by the load that they report. Envoy refuses a policy of this form beside settings for
/// localities, whose priorities are in the endpoints anyway.
fn set_backend_utilization(
    draft: &mut Draft,
    settings: &BackendUtilizationLb,
    slow_start: Option<SlowStartConfig>,
) {
    let policy = ClientSideWeightedRoundRobin {
        blackout_period: settings.weight_stabilization_period.map(duration),
        weight_expiration_period: settings.weight_expiration_period.map(duration),
        weight_update_period: settings.weight_update_period.map(duration),
        error_utilization_penalty: penalty(settings.error_utilization_penalty_percent),
        metric_names_for_computing_utilization: settings.metric_names_for_computing_utilization.clone(),
        slow_start_config: slow_start.map(|config| common::SlowStartConfig {
            slow_start_window: config.slow_start_window,
            aggression: config.aggression,
            min_weight_percent: config.min_weight_percent,
        }),
        ..ClientSideWeightedRoundRobin::default()
    };
    let config = TypedExtensionConfig {
        name: "envoy.load_balancing_policies.client_side_weighted_round_robin".to_owned(),
        typed_config: Some(pilotfish_proto::any(&policy)),
    };
    draft.common_lb().locality_config_specifier = None;
    draft.cluster.lb_config = None;
    draft.cluster.load_balancing_policy =
        Some(LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(config) }] });
}

/// The factor of errors, of a percentage; `None` for the default of none.
fn penalty(percent: u32) -> Option<f32> {
    // Far above any use, and exact.
    let percent = u16::try_from(percent).unwrap_or(u16::MAX);
    (percent > 0).then(|| f32::from(percent) / 100.0)
}

fn set_policy(draft: &mut Draft, policy: LbPolicy) {
    draft.cluster.lb_policy = policy as i32;
}

/// Setting that decides among localities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Locality<'a> {
    /// No setting: localities do not count.
    Off,
    /// A setting of the rule or the mesh.
    Setting(&'a LocalityLoadBalancerSetting),
    /// The service's own preference.
    Preference,
    /// Envoy, among the zones of the own region.
    Zones(&'a ZoneAwareLoadBalancerSetting),
}

impl<'a> Locality<'a> {
    /// The setting in force: the rule's, by zones first, else the service's own preference, else the mesh's.
    pub(super) fn of(
        mesh: &'a MeshConfig,
        service: &Service,
        settings: Option<&'a LoadBalancerSettings>,
    ) -> Self {
        let enabled = |setting: &&LocalityLoadBalancerSetting| setting.enabled != Some(false);
        let own = settings.and_then(|settings| settings.locality_lb_setting.as_ref());
        if let Some(zones) = settings.and_then(|settings| settings.zone_aware_lb_setting.as_ref()) {
            return Self::Zones(zones);
        }
        match (own, &mesh.zone_aware_lb_setting) {
            (Some(own), _) => enabled(&own).then_some(own).map_or(Self::Off, Self::Setting),
            (None, _) if service.traffic_distribution != TrafficDistribution::Any => Self::Preference,
            (None, Some(zones)) => Self::Zones(zones),
            (None, None) => {
                mesh.locality_lb_setting.as_ref().filter(enabled).map_or(Self::Off, Self::Setting)
            }
        }
    }
}

/// Weights of localities count only where they mean something: elsewhere they would distort the choice among
/// endpoints.
fn locality(draft: &mut Draft, setting: Locality<'_>) {
    let weighted = match setting {
        Locality::Off => false,
        Locality::Zones(zones) => {
            let config = ZoneAwareLbConfig {
                routing_enabled: (zones.enabled == Some(false)).then_some(Percent { value: 0.0 }),
                min_cluster_size: zones.min_cluster_size.map(u64::from),
                ..ZoneAwareLbConfig::default()
            };
            draft.common_lb().locality_config_specifier =
                Some(LocalityConfigSpecifier::ZoneAwareLbConfig(config));
            false
        }
        Locality::Preference => true,
        Locality::Setting(setting) => {
            let fails_over = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
            !setting.distribute.is_empty() || fails_over && draft.cluster.outlier_detection.is_some()
        }
    };
    if weighted {
        draft.common_lb().locality_config_specifier =
            Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig::default()));
    }
}

fn slow_start(settings: &LoadBalancerSettings) -> Option<SlowStartConfig> {
    let Some(warmup) = &settings.warmup else {
        return settings.warmup_duration_secs.map(|window| SlowStartConfig {
            slow_start_window: Some(duration(window)),
            ..SlowStartConfig::default()
        });
    };
    Some(SlowStartConfig {
        slow_start_window: warmup.duration.map(duration),
        aggression: Some(RuntimeDouble {
            default_value: warmup.aggression.unwrap_or(DEFAULT_WARMUP_AGGRESSION),
            runtime_key: NO_RUNTIME_KEY.to_owned(),
        }),
        min_weight_percent: Some(Percent { value: warmup.minimum_percent.unwrap_or(DEFAULT_WARMUP_PERCENT) }),
    })
}

/// Chooses the endpoint by a hash; routes set what is hashed.
pub(super) fn set_consistent_hash(cluster: &mut Cluster, hash: &ConsistentHashLb) {
    if let Some(maglev) = &hash.maglev {
        cluster.lb_policy = LbPolicy::Maglev as i32;
        cluster.lb_config = (maglev.table_size > 0)
            .then_some(LbConfig::MaglevLbConfig(MaglevLbConfig { table_size: Some(maglev.table_size) }));
        return;
    }
    // A ring hash without a size has Envoy's default size.
    let size = match &hash.ring_hash {
        Some(ring) => (ring.minimum_ring_size > 0).then_some(ring.minimum_ring_size),
        None if hash.minimum_ring_size > 0 => Some(hash.minimum_ring_size),
        None => Some(DEFAULT_RING_SIZE),
    };
    cluster.lb_policy = LbPolicy::RingHash as i32;
    cluster.lb_config = size.map(|size| {
        LbConfig::RingHashLbConfig(RingHashLbConfig {
            minimum_ring_size: Some(size),
            ..RingHashLbConfig::default()
        })
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::service;
    use pilotfish_config::networking::WarmupConfiguration;

    /// Rule 20 of Istio 1.31: the rule's zones, the rule's locality, the service, the mesh's zones, the
    /// mesh's locality.
    #[test]
    fn the_setting_of_the_rule_comes_before_those_of_service_and_mesh() {
        let (zones, locality) =
            (r#""zoneAwareLbSetting": {"minClusterSize": 7}"#, r#""localityLbSetting": {}"#);
        let off = r#""localityLbSetting": {"enabled": false}"#;
        for (rule, distribution, mesh, want) in [
            ("", TrafficDistribution::Any, "", "locality"),
            ("", TrafficDistribution::Any, zones, "zones"),
            ("", TrafficDistribution::PreferSameZone, zones, "preference"),
            (locality, TrafficDistribution::PreferSameZone, zones, "locality"),
            (off, TrafficDistribution::PreferSameZone, zones, "off"),
            (zones, TrafficDistribution::PreferSameZone, "", "zones"),
            ("", TrafficDistribution::Any, off, "off"),
        ] {
            let settings: LoadBalancerSettings = serde_json::from_str(&format!("{{{rule}}}")).unwrap();
            let mesh: MeshConfig = serde_json::from_str(&format!("{{{mesh}}}")).unwrap();
            let web = service("web", "shop").with(|service| service.traffic_distribution = distribution);
            let found = match Locality::of(&mesh, &web.0, Some(&settings)) {
                Locality::Off => "off",
                Locality::Setting(_) => "locality",
                Locality::Preference => "preference",
                Locality::Zones(_) => "zones",
            };
            assert_eq!(found, want, "{rule} {distribution:?}");
        }
    }

    /// Rule 20 of Istio 1.31: Envoy prefers its zone, unless the setting is off.
    #[test]
    fn zones_are_preferred_by_envoy_unless_the_setting_is_off() {
        let web = service("web", "shop");
        for (setting, want) in [
            ("{}", (None, None)),
            (r#"{"minClusterSize": 7}"#, (None, Some(7))),
            (r#"{"enabled": false}"#, (Some(0.0), None)),
            (r#"{"enabled": false, "minClusterSize": 7}"#, (Some(0.0), Some(7))),
        ] {
            let settings = format!(r#"{{"zoneAwareLbSetting": {setting}}}"#);
            let settings: LoadBalancerSettings = serde_json::from_str(&settings).unwrap();
            let mut draft = Draft::new("outbound|80||web".to_owned(), DiscoveryType::Eds);
            apply(&mut draft, &MeshConfig::default(), Switches::default(), &web.0, Some(&settings));
            let specifier = draft.common_lb().locality_config_specifier;
            let Some(LocalityConfigSpecifier::ZoneAwareLbConfig(config)) = specifier else {
                panic!("{setting}: {specifier:?}");
            };
            let enabled = config.routing_enabled.map(|percent| percent.value);
            assert_eq!((enabled, config.min_cluster_size), want, "{setting}");
        }
    }

    /// A field of Istio 1.32.
    #[test]
    fn load_that_endpoints_report_weighs_them() {
        use prost::Message;
        let web = service("web", "shop");
        for (setting, want) in [
            ("{}", (None, None, None, &[][..])),
            (
                r#"{"weightStabilizationPeriod": "10s", "weightUpdatePeriod": "1s", "errorUtilizationPenaltyPercent": 150,
                   "metricNamesForComputingUtilization": ["named_metrics.foo"]}"#,
                (Some(10), Some(1), Some(1.5), &["named_metrics.foo"]),
            ),
        ] {
            let settings = format!(r#"{{"backendUtilization": {setting}, "zoneAwareLbSetting": {{}}}}"#);
            let settings: LoadBalancerSettings = serde_json::from_str(&settings).unwrap();
            let mut draft = Draft::new("outbound|80||web".to_owned(), DiscoveryType::Eds);
            apply(&mut draft, &MeshConfig::default(), Switches::default(), &web.0, Some(&settings));
            assert_eq!(draft.common_lb().locality_config_specifier, None, "Envoy refuses both");
            let policy = draft.cluster.load_balancing_policy.take().unwrap().policies.swap_remove(0);
            let config = policy.typed_extension_config.unwrap().typed_config.unwrap();
            let found = ClientSideWeightedRoundRobin::decode(&*config.value).unwrap();
            let seconds = |period: Option<pilotfish_proto::Duration>| period.map(|period| period.seconds);
            let names = found.metric_names_for_computing_utilization;
            assert_eq!(
                (
                    seconds(found.blackout_period),
                    seconds(found.weight_update_period),
                    found.error_utilization_penalty
                ),
                (want.0, want.1, want.2),
                "{setting}"
            );
            assert_eq!(names, want.3, "{setting}");
        }
    }

    #[test]
    fn aggression_of_a_warmup_is_sent_as_written() {
        let aggression = |written: Option<f64>| {
            let warmup = WarmupConfiguration { aggression: written, ..WarmupConfiguration::default() };
            let settings = LoadBalancerSettings { warmup: Some(warmup), ..LoadBalancerSettings::default() };
            slow_start(&settings).unwrap().aggression.unwrap().default_value
        };
        for (written, sent) in
            [(Some(0.01), 0.01), (Some(0.5), 0.5), (Some(1.5), 1.5), (None, DEFAULT_WARMUP_AGGRESSION)]
        {
            assert!((aggression(written) - sent).abs() < f64::EPSILON, "{written:?}");
        }
    }
}
