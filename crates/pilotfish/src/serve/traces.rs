//! Exporter of traces.

use super::subsystem::{StopOrder, Subsystem};
use crate::settings::TelemetrySettings;
use anyhow::{Context, Result};
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_otlp::{Traces, Value, exporter};
use std::sync::Arc;

/// Opens the exporter to a collector, if one is configured.
///
/// # Errors
/// When the address of the collector is not a URI.
pub(super) fn open(
    settings: Option<&TelemetrySettings>,
    recorder: &Arc<PrometheusRecorder>,
) -> Result<Option<(Traces, Subsystem)>> {
    let Some(settings) = settings else { return Ok(None) };
    let version = env!("CARGO_PKG_VERSION");
    let text = |text: &str| Value::Text(text.to_owned());
    let mut resource = vec![("service.name", text("pilotfish")), ("service.version", text(version))];
    // The host name of a Pod is its name.
    if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        resource.push(("host.name", text(host.trim())));
        resource.push(("service.instance.id", text(&format!("{}-{}", host.trim(), std::process::id()))));
    }
    let (traces, exporter) =
        exporter(&settings.endpoint, settings.ca.clone(), version, resource, recorder.clone())
            .context("--otlp-endpoint")?;
    let subsystem = Subsystem::new("the exporter of traces", StopOrder::AfterStreams).task(|stop| async {
        exporter.run(stop.requested()).await;
        Ok(())
    });
    Ok(Some((traces, subsystem)))
}
