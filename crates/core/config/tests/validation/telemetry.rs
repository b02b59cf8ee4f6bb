//! Telemetry.

use super::{check, spec_of};

#[test]
fn telemetry() {
    check(
        spec_of("telemetry.istio.io/v1", "Telemetry"),
        &[
            (
                "metrics: [{providers: [{name: \"\"}]}]",
                "spec.metrics[0].providers[0].name: must be set",
                "metrics: [{providers: [{name: a}]}]",
            ),
            (
                "metrics: [{overrides: [{match: {customMetric: \"\"}}]}]",
                "spec.metrics[0].overrides[0].match.customMetric: must not be empty",
                "metrics: [{overrides: [{match: {customMetric: a}}]}]",
            ),
            (
                "metrics: [{overrides: [{match: {customMetric: a, metric: REQUEST_SIZE}}]}]",
                "spec.metrics[0].overrides[0].match: only one of metric, customMetric may be set",
                "metrics: [{overrides: [{match: {metric: REQUEST_SIZE}}]}]",
            ),
            (
                "metrics: [{overrides: [{tagOverrides: {a: {operation: UPSERT}}}]}]",
                "spec.metrics[0].overrides[0].tagOverrides[a].value: must be set for operation UPSERT",
                "metrics: [{overrides: [{tagOverrides: {a: {value: b}}}]}]",
            ),
            (
                "metrics: [{overrides: [{tagOverrides: {a: {operation: REMOVE, value: b}}}]}]",
                "spec.metrics[0].overrides[0].tagOverrides[a].value: must not be set for operation REMOVE",
                "metrics: [{overrides: [{tagOverrides: {a: {operation: REMOVE}}}]}]",
            ),
            (
                "metrics: [{reportingInterval: 0s}]",
                "spec.metrics[0].reportingInterval: must be at least 1ms",
                "metrics: [{reportingInterval: 5s}]",
            ),
            (
                "tracing: [{randomSamplingPercentage: 101}]",
                "spec.tracing[0].randomSamplingPercentage: 101 is not a percentage, must be 0 to 100",
                "tracing: [{randomSamplingPercentage: 100}]",
            ),
            ("tracing: [{}, {}]", "warning: spec.tracing: only the first item is used", "tracing: [{}]"),
            (
                "tracing: [{providers: [{name: a}, {name: b}]}]",
                "warning: spec.tracing[0].providers: only the first provider is used",
                "tracing: [{providers: [{name: a}]}]",
            ),
            (
                "tracing: [{customTags: {a: {}}}]",
                "spec.tracing[0].customTags[a]: one of literal, environment, header and formatter must be set",
                "tracing: [{customTags: {a: {literal: {value: b}}}}]",
            ),
            (
                "tracing: [{customTags: {a: {literal: {}}}}]",
                "spec.tracing[0].customTags[a].literal.value: must be set",
                "tracing: [{customTags: {a: {formatter: {value: b}}}}]",
            ),
            (
                "tracing: [{customTags: {a: {header: {defaultValue: b}}}}]",
                "spec.tracing[0].customTags[a].header.name: must be set",
                "tracing: [{customTags: {a: {header: {name: b}}}}]",
            ),
            (
                "tracing: [{customTags: {a: {environment: {}}}}]",
                "spec.tracing[0].customTags[a].environment.name: must be set",
                "tracing: [{customTags: {a: {environment: {name: b}}}}]",
            ),
            (
                "accessLogging: [{filter: {expression: \" \"}}]",
                "spec.accessLogging[0].filter.expression: must be set",
                "accessLogging: [{filter: {expression: \"response.code >= 400\"}}]",
            ),
            (
                "accessLogging: [{providers: [{}]}]",
                "spec.accessLogging[0].providers[0].name: must be set",
                "accessLogging: [{providers: [{name: envoy}]}]",
            ),
        ],
    );
}
