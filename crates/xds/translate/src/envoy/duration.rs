//! Durations in Envoy's form.

use pilotfish_config::Duration as ConfigDuration;
use pilotfish_proto::Duration;

/// Converts a duration to its protobuf message, limited to the longest that protobuf supports.
pub(crate) fn duration(duration: ConfigDuration) -> Duration {
    Duration {
        seconds: i64::try_from(duration.0.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.0.subsec_nanos()).unwrap_or(0),
    }
}
