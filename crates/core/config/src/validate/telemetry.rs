//! Telemetry.

use crate::path::Path;
use crate::problem::Checker;
use crate::telemetry::{CustomTag, Metrics, MetricsOverrides, ProviderRef, TagOperation, Telemetry, Tracing};
use crate::validate::fields::cel;
use crate::validate::fields::names::each;
use crate::validate::fields::selectors::{self, Targets};
use crate::validate::fields::values::{at_most_one, duration, percent};
use pilotfish_model::ObjectMeta;
use std::collections::BTreeMap;

pub(in crate::validate) fn check(
    telemetry: &Telemetry,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let targets = Targets {
        selector: telemetry.selector.as_ref(),
        target_ref: telemetry.target_ref.as_ref(),
        target_refs: &telemetry.target_refs,
    };
    selectors::targets(&targets, at, checker);
    let traces = at.field("tracing");
    if telemetry.tracing.len() > 1 {
        checker.warning(&traces, "only the first item is used");
    }
    each(&telemetry.tracing, &traces, checker, tracing);
    each(&telemetry.metrics, &at.field("metrics"), checker, metrics);
    each(&telemetry.access_logging, &at.field("accessLogging"), checker, |logging, at, checker| {
        providers(&logging.providers, &at.field("providers"), checker);
        if let Some(filter) = &logging.filter {
            condition(&filter.expression, &at.field("filter").field("expression"), checker);
        }
    });
}

fn condition(expression: &str, at: &Path<'_>, checker: &mut Checker) {
    if expression.trim().is_empty() {
        checker.error(at, "must be set");
    } else if let Some(why) = cel::refusal(expression) {
        checker.error(at, format!("is no condition in CEL that Envoy takes: {why}"));
    }
}

fn providers(providers: &[ProviderRef], at: &Path<'_>, checker: &mut Checker) {
    each(providers, at, checker, |provider, at, checker| {
        if provider.name.is_empty() {
            checker.error(&at.field("name"), "must be set");
        }
    });
}

fn tracing(tracing: &Tracing, at: &Path<'_>, checker: &mut Checker) {
    let names = at.field("providers");
    if tracing.providers.len() > 1 {
        checker.warning(&names, "only the first provider is used");
    }
    providers(&tracing.providers, &names, checker);
    if let Some(value) = tracing.random_sampling_percentage {
        percent(value, &at.field("randomSamplingPercentage"), checker);
    }
    custom_tags(&tracing.custom_tags, &at.field("customTags"), checker);
}

/// Checks custom tags by name, also those of the mesh config.
pub(super) fn custom_tags(tags: &BTreeMap<String, CustomTag>, at: &Path<'_>, checker: &mut Checker) {
    for (name, tag) in tags {
        let at = at.key(name);
        if name.is_empty() {
            checker.error(&at, "the name of a tag is empty");
        }
        let (field, empty) = match tag {
            CustomTag::Unset => {
                checker.error(&at, "one of literal, environment, header and formatter must be set");
                continue;
            }
            CustomTag::Literal(literal) => (["literal", "value"], literal.value.is_empty()),
            CustomTag::Environment(environment) => (["environment", "name"], environment.name.is_empty()),
            CustomTag::Header(header) => (["header", "name"], header.name.is_empty()),
            CustomTag::Formatter(formatter) => (["formatter", "value"], formatter.value.is_empty()),
        };
        if empty {
            let [outer, inner] = field;
            checker.error(&at.field(outer).field(inner), "must be set");
        }
    }
}

fn metrics(metrics: &Metrics, at: &Path<'_>, checker: &mut Checker) {
    providers(&metrics.providers, &at.field("providers"), checker);
    duration(metrics.reporting_interval, &at.field("reportingInterval"), checker);
    each(&metrics.overrides, &at.field("overrides"), checker, overrides);
}

fn overrides(overrides: &MetricsOverrides, at: &Path<'_>, checker: &mut Checker) {
    if let Some(selector) = &overrides.r#match {
        let at = at.field("match");
        let set = [("metric", selector.metric.is_some()), ("customMetric", selector.custom_metric.is_some())];
        at_most_one(&set, &at, checker);
        if selector.custom_metric.as_ref().is_some_and(String::is_empty) {
            checker.error(&at.field("customMetric"), "must not be empty");
        }
    }
    let tags = at.field("tagOverrides");
    for (name, tag) in &overrides.tag_overrides {
        let at = tags.key(name);
        if name.is_empty() {
            checker.warning(&at, "the name of a tag is empty");
        }
        match (tag.operation, tag.value.is_empty()) {
            (TagOperation::Upsert, true) => {
                checker.error(&at.field("value"), "must be set for operation UPSERT");
            }
            (TagOperation::Remove, false) => {
                checker.error(&at.field("value"), "must not be set for operation REMOVE");
            }
            _ => {}
        }
    }
}
