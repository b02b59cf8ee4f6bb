//! Load balancing by locality: in DestinationRules and in the mesh config.

use crate::networking::{Distribute, Failover, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting};
use crate::path::Path;
use crate::problem::Checker;
use crate::validate::fields::names::{each, quoted};
use std::collections::BTreeSet;

pub(in crate::validate) fn check(
    setting: &LocalityLoadBalancerSetting,
    has_outlier_detection: bool,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    if !setting.distribute.is_empty() && !setting.failover.is_empty() {
        checker.warning(&at.field("failover"), "has no effect beside distribute");
    }
    if !setting.failover.is_empty() {
        without_topology(&setting.failover_priority, "must not be set beside failover", at, checker);
    }
    let by_failure = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
    if by_failure && !has_outlier_detection {
        checker.warning(at, "needs outlierDetection, or no endpoint ever counts as failed");
    }
    let sources = setting.distribute.iter().map(|rule| rule.from.as_str());
    let distribute_at = at.field("distribute");
    localities(
        sources,
        |index, checker, message| {
            checker.error(&distribute_at.index(index).field("from"), message);
        },
        checker,
    );
    each(&setting.distribute, &distribute_at, checker, distribute);
    each(&setting.failover, &at.field("failover"), checker, failover);
}

pub(in crate::validate) fn check_zone_aware(
    setting: &ZoneAwareLoadBalancerSetting,
    at: &Path<'_>,
    checker: &mut Checker,
) {
    without_topology(&setting.failover_priority, "must not be set: Envoy compares it itself", at, checker);
    if setting.min_cluster_size == Some(0) {
        checker.error(&at.field("minClusterSize"), "must be at least 1");
    }
    each(&setting.failover, &at.field("failover"), checker, failover);
}

/// Reports labels of region, zone and sub-zone in `failoverPriority`.
fn without_topology(labels: &[String], wrong: &str, at: &Path<'_>, checker: &mut Checker) {
    each(labels, &at.field("failoverPriority"), checker, |label, at, checker| {
        let topology =
            ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"];
        let key = label.split('=').next().unwrap_or_default();
        if topology.contains(&key) {
            checker.error(at, format!("{} {wrong}", quoted(label)));
        }
    });
}

fn distribute(rule: &Distribute, at: &Path<'_>, checker: &mut Checker) {
    let at = at.field("to");
    let mut total = 0_u64;
    for (locality, weight) in &rule.to {
        if !(1..=100).contains(weight) {
            checker.error(&at.key(locality), format!("{weight} is not a percentage, must be 1 to 100"));
        }
        total += u64::from(*weight);
    }
    if total != 100 {
        checker.error(&at, format!("the percentages add up to {total}, not to 100"));
    }
    let mut names: Vec<_> = rule.to.keys().map(String::as_str).collect();
    names.sort_by_key(|name| *name == "*");
    localities(
        names.iter().copied(),
        |index, checker, message| {
            let name = names.get(index).copied().unwrap_or_default();
            checker.error(&at.key(name), message);
        },
        checker,
    );
}

fn failover(rule: &Failover, at: &Path<'_>, checker: &mut Checker) {
    for (field, region) in [("from", &rule.from), ("to", &rule.to)] {
        if region.contains(['/', '*']) {
            let message =
                format!("{} is not a region, zones and wildcards are not supported here", quoted(region));
            checker.error(&at.field(field), message);
        }
    }
    if rule.from == rule.to {
        checker.error(at, format!("from and to are the same region {}", quoted(&rule.to)));
    }
}

/// Checks localities `region/zone/subzone`, each part but the first optional, with `*` at the end at most:
/// none may contain another.
fn localities<'a>(
    names: impl Iterator<Item = &'a str>,
    report: impl Fn(usize, &mut Checker, String),
    checker: &mut Checker,
) {
    // Localities without their wildcard, and everything that is above one of them.
    let (mut known, mut above) = (BTreeSet::new(), BTreeSet::new());
    for (index, name) in names.enumerate() {
        let wrong = |what: &str| format!("{} is not a locality: {what}", quoted(name));
        if name.split('/').any(str::is_empty) {
            report(index, checker, wrong("region, zone and subzone must not be empty"));
            continue;
        }
        let body = name.strip_suffix('*').unwrap_or(name);
        if body.contains('*') {
            report(index, checker, wrong("'*' is only allowed at the end"));
            continue;
        }
        let body = body.trim_end_matches('/');
        let parents = body.match_indices('/').filter_map(|(end, _)| body.get(..end)).chain([""]);
        let covered = known.contains(body) || parents.clone().any(|parent| known.contains(parent));
        // `*` after all others is for the rest.
        if covered || (!body.is_empty() && above.contains(body)) {
            report(index, checker, format!("{} overlaps with another locality", quoted(name)));
        }
        known.insert(body);
        above.extend(parents);
    }
}
