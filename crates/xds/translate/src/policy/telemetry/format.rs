//! Formats of access logs.

use crate::envoy::metadata::json;
use pilotfish_config::mesh::{AccessLogEncoding, EnvoyFileAccessLogProvider, LogFormat, MeshConfig};
use pilotfish_proto::envoy::config::core::v3::substitution_format_string::Format;
use pilotfish_proto::envoy::config::core::v3::{
    DataSource, JsonFormatOptions, SubstitutionFormatString, TypedExtensionConfig, data_source,
};
use pilotfish_proto::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use pilotfish_proto::envoy::extensions::formatter::req_without_query::v3::ReqWithoutQuery;
use pilotfish_proto::opentelemetry::proto::common::v1::{AnyValue, KeyValue, KeyValueList, any_value};
use pilotfish_proto::{Struct, config_any};
use serde_json::{Map, Value};

/// The text that is logged where nothing else is written.
const TEXT: &str = concat!(
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
     %RESPONSE_FLAGS% ",
    "%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" \
     %BYTES_RECEIVED% ",
    "%BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
     \"%REQ(USER-AGENT)%\" ",
    "\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% \
     %UPSTREAM_LOCAL_ADDRESS% ",
    "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n",
);

/// The fields that are logged as JSON where nothing else is written.
const FIELDS: [(&str, &str); 24] = [
    ("start_time", "%START_TIME%"),
    ("route_name", "%ROUTE_NAME%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("authority", "%REQ(:AUTHORITY)%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
];

/// The command that needs a formatter of its own.
const WITHOUT_QUERY: &str = "%REQ_WITHOUT_QUERY";

/// The format of the mesh settings.
pub(super) fn of_mesh(mesh: &MeshConfig) -> SubstitutionFormatString {
    match mesh.access_log_encoding {
        AccessLogEncoding::Text => text(&mesh.access_log_format),
        AccessLogEncoding::Json => {
            let written = serde_json::from_str::<Map<String, Value>>(&mesh.access_log_format).ok();
            fields(written.as_ref())
        }
    }
}

/// The format of a file provider.
pub(super) fn of_file(provider: &EnvoyFileAccessLogProvider) -> SubstitutionFormatString {
    let format = match &provider.log_format {
        Some(LogFormat { labels: Some(labels), .. }) => {
            fields(Some(labels).filter(|labels| !labels.is_empty()))
        }
        Some(LogFormat { text: Some(written), .. }) => text(written),
        _ => text(""),
    };
    SubstitutionFormatString { omit_empty_values: provider.omit_empty_values, ..format }
}

fn text(written: &str) -> SubstitutionFormatString {
    let text = match written {
        "" => TEXT.to_owned(),
        written if written.ends_with('\n') => written.to_owned(),
        written => format!("{written}\n"),
    };
    SubstitutionFormatString {
        formatters: formatters(text.contains(WITHOUT_QUERY)),
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(data_source::Specifier::InlineString(text)),
            ..Default::default()
        })),
        ..Default::default()
    }
}

fn fields(written: Option<&Map<String, Value>>) -> SubstitutionFormatString {
    let fields = match written {
        Some(written) => written.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
        None => FIELDS
            .iter()
            .map(|(key, value)| ((*key).to_owned(), crate::envoy::metadata::text(value)))
            .collect(),
    };
    SubstitutionFormatString {
        formatters: formatters(written.is_some_and(needs_formatter)),
        format: Some(Format::JsonFormat(Struct { fields })),
        json_format_options: Some(JsonFormatOptions::default()),
        ..Default::default()
    }
}

fn needs_formatter(labels: &Map<String, Value>) -> bool {
    labels.values().any(|value| value.as_str().is_some_and(|text| text.contains(WITHOUT_QUERY)))
}

fn formatters(without_query: bool) -> Vec<TypedExtensionConfig> {
    let formatter = || TypedExtensionConfig {
        name: "envoy.formatter.req_without_query".to_owned(),
        typed_config: config_any(&ReqWithoutQuery::default()),
    };
    without_query.then(formatter).into_iter().collect()
}

/// Body, attributes and formatters of a log in OpenTelemetry's form.
pub(super) fn open_telemetry(written: Option<&LogFormat>) -> OpenTelemetryAccessLogConfig {
    let body = written.and_then(|format| format.text.as_deref()).filter(|text| !text.is_empty());
    let body = body.unwrap_or(TEXT);
    let labels = written.and_then(|format| format.labels.as_ref());
    let string = |text: &str| AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) };
    let attributes = labels.filter(|labels| !labels.is_empty()).map(|labels| {
        let mut values: Vec<KeyValue> = labels
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.clone(),
                value: Some(string(value.as_str().unwrap_or_default())),
                ..Default::default()
            })
            .collect();
        values.sort_by(|a, b| a.key.cmp(&b.key));
        KeyValueList { values }
    });
    OpenTelemetryAccessLogConfig {
        formatters: formatters(body.contains(WITHOUT_QUERY) || labels.is_some_and(needs_formatter)),
        body: Some(string(body)),
        attributes,
        ..Default::default()
    }
}
