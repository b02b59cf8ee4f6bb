//! The case of header names in HTTP/1.

use pilotfish_proto::config_any;
use pilotfish_proto::envoy::config::core::v3::TypedExtensionConfig;
use pilotfish_proto::envoy::config::core::v3::http1_protocol_options::HeaderKeyFormat;
use pilotfish_proto::envoy::config::core::v3::http1_protocol_options::header_key_format::HeaderFormat;
use pilotfish_proto::envoy::extensions::http::header_formatters::preserve_case::v3 as preserve_case;
use preserve_case::PreserveCaseFormatterConfig;

/// Names are sent as they were written (`preserveHttp1HeaderCase`).
pub(crate) fn preserved() -> HeaderKeyFormat {
    let formatter = TypedExtensionConfig {
        name: "preserve_case".to_owned(),
        typed_config: config_any(&PreserveCaseFormatterConfig::default()),
    };
    HeaderKeyFormat { header_format: Some(HeaderFormat::StatefulFormatter(formatter)) }
}
