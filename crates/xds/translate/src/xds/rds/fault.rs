//! Fault injection.

use super::convert::{percent, whole_percent};
use crate::envoy::duration;
use pilotfish_config::networking::{Abort, Delay, GRPC_STATUSES, HttpFaultInjection};
use pilotfish_proto::envoy::extensions::filters::common::fault::v3::FaultDelay;
use pilotfish_proto::envoy::extensions::filters::common::fault::v3::fault_delay::FaultDelaySecifier;
use pilotfish_proto::envoy::extensions::filters::http::fault::v3::fault_abort::ErrorType;
use pilotfish_proto::envoy::extensions::filters::http::fault::v3::{FaultAbort, HttpFault};
use pilotfish_proto::{Any, any};

/// The name of the filter.
pub(super) const FILTER: &str = "envoy.filters.http.fault";

/// The filter's settings for a route; `None` when it has nothing that Envoy supports.
pub(super) fn fault(fault: &HttpFaultInjection) -> Option<Any> {
    let delay = fault.delay.as_ref().and_then(delay);
    let abort = fault.abort.as_ref().and_then(abort);
    if delay.is_none() && abort.is_none() {
        return None;
    }
    Some(any(&HttpFault { delay, abort, ..Default::default() }))
}

fn delay(delay: &Delay) -> Option<FaultDelay> {
    let whole = || whole_percent(u32::try_from(delay.percent).unwrap_or(0));
    Some(FaultDelay {
        percentage: Some(delay.percentage.map_or_else(whole, percent)),
        fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(delay.fixed_delay?))),
    })
}

fn abort(abort: &Abort) -> Option<FaultAbort> {
    let error = match (abort.http_status, &abort.grpc_status) {
        (Some(status), _) => ErrorType::HttpStatus(u32::try_from(status).ok()?),
        (None, Some(name)) => ErrorType::GrpcStatus(grpc_status(name)?),
        (None, None) => return None,
    };
    Some(FaultAbort {
        percentage: abort.percentage.map(percent),
        error_type: Some(error),
        ..Default::default()
    })
}

/// The number of a gRPC status.
fn grpc_status(name: &str) -> Option<u32> {
    GRPC_STATUSES.iter().position(|known| *known == name).and_then(|number| u32::try_from(number).ok())
}
