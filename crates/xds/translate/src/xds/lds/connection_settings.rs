//! Limits and timeouts of the connections of clients (`connectionSettings` of ProxyConfig).

use crate::envoy::duration;
use pilotfish_config::Duration;
use pilotfish_config::mesh::{
    ConnectionProfile, ConnectionSettings, HeadersWithUnderscoresAction as Underscores,
    PathWithEscapedSlashesAction as Slashes, ProxyConfig,
};
use pilotfish_proto::envoy::config::core::v3::http_protocol_options::HeadersWithUnderscoresAction;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::PathWithEscapedSlashesAction,
};

/// The settings of a proxy, at a gateway with those of its profile beneath.
pub(super) fn of(config: &ProxyConfig, is_gateway: bool) -> Option<Effective> {
    let written = config.connection_settings.as_ref()?;
    Some(Effective(match written.profile {
        ConnectionProfile::Edge if is_gateway => over_edge(written),
        _ => written.clone(),
    }))
}

/// Settings in force, with those of the profile.
pub(super) struct Effective(ConnectionSettings);

impl Effective {
    /// Maximum number of bytes that a connection may buffer.
    pub(super) fn buffer_limit(&self) -> Option<u32> {
        self.0.listener_per_connection_buffer_limit_bytes.and_then(positive)
    }
}

fn over_edge(written: &ConnectionSettings) -> ConnectionSettings {
    let seconds = |own: Option<Duration>, default| own.or(Some(Duration::from_secs(default)));
    ConnectionSettings {
        listener_per_connection_buffer_limit_bytes: written
            .listener_per_connection_buffer_limit_bytes
            .or(Some(32 << 10)),
        http_idle_timeout: seconds(written.http_idle_timeout, 3_600),
        http_stream_idle_timeout: seconds(written.http_stream_idle_timeout, 300),
        http_request_timeout: seconds(written.http_request_timeout, 300),
        http_request_headers_timeout: seconds(written.http_request_headers_timeout, 60),
        http_max_concurrent_streams: written.http_max_concurrent_streams.or(Some(100)),
        http2_initial_stream_window_size: written.http2_initial_stream_window_size.or(Some(64 << 10)),
        http2_initial_connection_window_size: written.http2_initial_connection_window_size.or(Some(1 << 20)),
        http_headers_with_underscores_action: written
            .http_headers_with_underscores_action
            .or(Some(Underscores::HeadersWithUnderscoresRejectRequest)),
        http_merge_slashes: written.http_merge_slashes.or(Some(true)),
        http_path_with_escaped_slashes_action: written
            .http_path_with_escaped_slashes_action
            .or(Some(Slashes::UnescapeAndRedirect)),
        ..written.clone()
    }
}

/// Returns a number above zero; others count as not set.
fn positive(number: i32) -> Option<u32> {
    u32::try_from(number).ok().filter(|number| *number > 0)
}

/// Applies what concerns HTTP.
pub(super) fn apply(Effective(settings): &Effective, manager: &mut HttpConnectionManager) {
    apply_common(settings, manager);
    apply_http2(settings, manager);
    if let Some(timeout) = settings.http_stream_idle_timeout {
        manager.stream_idle_timeout = Some(duration(timeout));
    }
    manager.request_timeout = settings.http_request_timeout.map(duration);
    manager.request_headers_timeout = settings.http_request_headers_timeout.map(duration);
    manager.drain_timeout = settings.http_drain_timeout.map(duration);
    manager.merge_slashes = settings.http_merge_slashes.unwrap_or(manager.merge_slashes);
    if let Some(action) = settings.http_path_with_escaped_slashes_action {
        manager.path_with_escaped_slashes_action = match action {
            Slashes::KeepUnchanged => PathWithEscapedSlashesAction::KeepUnchanged,
            Slashes::RejectRequest => PathWithEscapedSlashesAction::RejectRequest,
            Slashes::UnescapeAndRedirect => PathWithEscapedSlashesAction::UnescapeAndRedirect,
            Slashes::UnescapeAndForward => PathWithEscapedSlashesAction::UnescapeAndForward,
        }
        .into();
    }
}

fn apply_common(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let durations = [
        settings.http_idle_timeout,
        settings.http_max_connection_duration,
        settings.http_max_stream_duration,
    ];
    let action = settings.http_headers_with_underscores_action;
    if durations.iter().all(Option::is_none) && action.is_none() {
        return;
    }
    let common = manager.common_http_protocol_options.get_or_insert_default();
    let [idle, connection, stream] = durations.map(|written| written.map(duration));
    common.idle_timeout = idle.or(common.idle_timeout);
    common.max_connection_duration = connection;
    common.max_stream_duration = stream;
    common.headers_with_underscores_action = match action.unwrap_or_default() {
        Underscores::HeadersWithUnderscoresAllow => HeadersWithUnderscoresAction::Allow,
        Underscores::HeadersWithUnderscoresRejectRequest => HeadersWithUnderscoresAction::RejectRequest,
        Underscores::HeadersWithUnderscoresDropHeader => HeadersWithUnderscoresAction::DropHeader,
    }
    .into();
}

/// Options are there if anything is written, even if no value counts.
fn apply_http2(settings: &ConnectionSettings, manager: &mut HttpConnectionManager) {
    let written = [
        settings.http_max_concurrent_streams,
        settings.http2_initial_stream_window_size,
        settings.http2_initial_connection_window_size,
    ];
    if written.iter().all(Option::is_none) {
        return;
    }
    let options = manager.http2_protocol_options.get_or_insert_default();
    let [streams, stream_window, connection_window] = written.map(|number| number.and_then(positive));
    options.max_concurrent_streams = streams;
    options.initial_stream_window_size = stream_window;
    options.initial_connection_window_size = connection_window;
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::Duration as Seconds;

    /// The manager of a proxy with these settings. Rule 18 of Istio 1.31.
    fn manager(settings: &str, is_gateway: bool) -> HttpConnectionManager {
        let config: ProxyConfig =
            serde_json::from_str(&format!("{{\"connectionSettings\": {settings}}}")).unwrap();
        let mut manager = HttpConnectionManager { merge_slashes: true, ..Default::default() };
        if let Some(settings) = of(&config, is_gateway) {
            apply(&settings, &mut manager);
        }
        manager
    }

    #[test]
    fn edge_profile_fills_what_a_gateway_leaves_out() {
        let edge = r#"{"profile": "EDGE", "httpIdleTimeout": "10s", "httpMergeSlashes": false}"#;
        let found = manager(edge, true);
        let common = found.common_http_protocol_options.unwrap();
        assert_eq!(common.idle_timeout, Some(Seconds { seconds: 10, nanos: 0 }));
        assert_eq!(common.headers_with_underscores_action(), HeadersWithUnderscoresAction::RejectRequest);
        assert_eq!(found.stream_idle_timeout, Some(Seconds { seconds: 300, nanos: 0 }));
        assert_eq!(found.http2_protocol_options.clone().unwrap().max_concurrent_streams, Some(100));
        assert!(!found.merge_slashes);
        let sidecar = manager(edge, false);
        assert_eq!((sidecar.stream_idle_timeout, sidecar.http2_protocol_options), (None, None));
    }

    #[test]
    fn negative_sizes_leave_empty_options() {
        let found = manager(r#"{"httpMaxConcurrentStreams": -1}"#, true);
        assert_eq!(found.http2_protocol_options, Some(Default::default()));
        assert_eq!(found.common_http_protocol_options, None);
        let config =
            ConnectionSettings { listener_per_connection_buffer_limit_bytes: Some(-1), ..Default::default() };
        assert_eq!(Effective(config).buffer_limit(), None);
    }
}
